"""Places of samples on a map: principal components at once, UMAP or PaCMAP where they are installed."""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krepes.errors import InvalidInputError
from krepes.explore.room import Array
from krepes.explore.state import State

SPACES = ("encoder", "surrogate")
DRAWN = 200_000
"""Points that are sent to be drawn; of more, a random sample, and more of it where the reader looks closer."""
FITTED = 20_000
"""Samples that UMAP or PaCMAP is fitted to; the others are placed by them."""
PACKAGES = {"umap": "umap", "pacmap": "pacmap"}


def projections() -> list[str]:
    """Return the names of projections that can be asked for on this machine."""
    return ["pca", *(name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is not None)]


@dataclass(eq=False)
class Maps:
    """Coordinates of all samples of a run, by space and projection, each computed when it is first asked for."""

    state: State
    _known: dict[tuple[str, str], Array] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def places(self, space: str = "encoder", projection: str = "pca") -> Array:
        """Return coordinates, ``(N, 2)``, float32: all but a few outliers within one unit of zero.

        Args:
            space: ``"encoder"`` for the embeddings that are explained, ``"surrogate"`` for those of the kernel model.
            projection: One of `projections`.

        Returns:
            The coordinates.

        Raises:
            InvalidInputError: If there is no such space or projection.
        """
        if space not in SPACES or projection not in projections():
            raise InvalidInputError(
                f"there is no map {space!r} by {projection!r}: spaces are {', '.join(SPACES)}, projections on this "
                f"machine are {', '.join(projections())}."
            )
        with self._lock:
            if (space, projection) not in self._known:
                Z = self.state.found.latent if space == "encoder" else self.state.found.Z
                self._known[space, projection] = _scaled(_principal(Z) if projection == "pca" else _near(Z, projection))
            return self._known[space, projection]

    def drawn(self, places: Array, box: tuple[float, float, float, float] | None = None) -> Array:
        """Return which samples to draw: all, or a random sample that keeps every landmark.

        Args:
            places: Coordinates, ``(N, 2)``.
            box: Left, bottom, right and top of what the reader sees; by default everything.

        Returns:
            Places of the samples, sorted.
        """
        inside = np.arange(len(places))
        if box is not None:
            low, high = np.array(box[:2], np.float32), np.array(box[2:], np.float32)
            inside = np.flatnonzero(((places >= low) & (places <= high)).all(1))
        if len(inside) <= DRAWN:
            return inside
        chosen = np.random.default_rng(0).choice(inside, DRAWN - len(self.state.landmarks), replace=False)
        return np.union1d(chosen, np.intersect1d(inside, self.state.landmarks))


def _principal(Z: Array) -> Array:
    """Return the first two principal components, ``(n, 2)``, the same signs on every machine."""
    mean = Z.mean(0, dtype=np.float64)
    cov = np.zeros((Z.shape[1], Z.shape[1]))
    for start in range(0, len(Z), 65_536):
        part = Z[start : start + 65_536] - mean
        cov += part.T @ part
    V = np.linalg.eigh(cov)[1][:, ::-1][:, :2]
    V = V if V.shape[1] == 2 else np.pad(V, ((0, 0), (0, 2 - V.shape[1])))
    V = V * np.where(np.take_along_axis(V, np.abs(V).argmax(0)[None], 0) < 0, -1, 1)
    return (Z - mean.astype(np.float32)) @ V.astype(np.float32)


def _near(Z: Array, projection: str) -> Array:
    """Return a map that keeps neighbours, by the package that was asked for."""
    few = np.sort(np.random.default_rng(0).permutation(len(Z))[:FITTED])
    module: Any = importlib.import_module(PACKAGES[projection])
    if projection == "umap":
        fitted = module.UMAP(random_state=0).fit(Z[few])
        return np.asarray(fitted.embedding_ if len(few) == len(Z) else fitted.transform(Z), dtype=np.float32)
    reducer = module.PaCMAP(random_state=0, save_tree=len(few) < len(Z))
    found = reducer.fit_transform(np.asarray(Z[few]))
    return np.asarray(found if len(few) == len(Z) else reducer.transform(np.asarray(Z), basis=Z[few]), np.float32)


def _scaled(xy: Array) -> Array:
    """Return coordinates about their middle, so that 99.8 % of both axes lie within one unit."""
    low, high = np.quantile(xy[:: max(1, len(xy) // 100_000)], [0.001, 0.999], axis=0)
    half = float(max((high - low).max() / 2, 1e-30))
    return np.ascontiguousarray((xy - (low + high) / 2) / half, dtype=np.float32)


def inside(places: Array, polygon: Array) -> Array:
    """Return which points lie inside a polygon, by the even-odd rule.

    Args:
        places: Points, ``(N, 2)``.
        polygon: Corners, ``(k, 2)``, at least three.

    Returns:
        A mask, ``(N,)``.
    """
    x, y = places[:, 0].astype(np.float64), places[:, 1].astype(np.float64)
    found = np.zeros(len(places), dtype=bool)
    low, high = polygon.min(0), polygon.max(0)
    near = np.flatnonzero((x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1]))
    x, y = x[near], y[near]
    crossed = np.zeros(len(near), dtype=bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 != y1:
            crossed ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    found[near] = crossed
    return found
