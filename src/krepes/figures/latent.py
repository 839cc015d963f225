"""Latent map: a sample among the landmarks, tied in green to those that attract it and in red to those that repel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.figures.style import ATTRACTIVE, GREY, INK, MARKERS, PALE, REPULSIVE, SERIES, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Those of a line, of the sample and of what is merged come last.
SHADES = sorted(SERIES, key=(INK, GREY, ATTRACTIVE, REPULSIVE).__contains__)


@styled
def latent_map(
    Z_sample: Tensor,
    Z_landmarks: Tensor,
    scores: Tensor,
    *,
    k: int = 5,
    names: Sequence[Any] | None = None,
    own: Any = None,
    rest: Any = None,
) -> Figure:
    """Draw embeddings in the plane of their first two principal components.

    Args:
        Z_sample: Embedding of the test sample, ``(h,)``.
        Z_landmarks: Embeddings of the landmarks, ``(m, h)``.
        scores: Influence scores of the landmarks on the sample, ``(m,)``.
        k: Edges to draw of each sign, at most; strength is width.
        names: Classes or groups of the landmarks, ``m`` of them, as colours and marks; at most nine distinct ones.
        own: The name of the sample: it stands in the title, and landmarks that have it are larger and first in the key.
        rest: The name of all that is merged: grey, small and last in the key.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If the numbers do not fit.
    """
    m = len(Z_landmarks)
    require_range(k, "k", low=1, high=m)
    if scores.shape != (m,) or Z_sample.shape != Z_landmarks.shape[1:] or (names is not None and len(names) != m):
        raise InvalidInputError(
            f"needs an embedding (h,), landmarks (m, h), scores and names (m,), got {tuple(Z_sample.shape)}, "
            f"{tuple(Z_landmarks.shape)}, {tuple(scores.shape)} and {None if names is None else len(names)} names."
        )
    centre = Z_landmarks.double().mean(0)
    V = torch.linalg.svd(Z_landmarks.double() - centre, full_matrices=False).Vh[:2].T
    V = V * V.gather(0, V.abs().argmax(0, keepdim=True)).sign()
    landmarks, sample = ((Z.double() - centre) @ V for Z in (Z_landmarks, Z_sample))  # (m, 2), (2,)
    figure = new_figure(4.6)
    ax = figure.add_subplot()
    _edges(ax, sample.numpy(), landmarks.numpy(), scores.double(), k)
    _points(ax, landmarks.numpy(), names, own, rest)
    x, y = sample.tolist()
    ax.scatter(x, y, marker="*", s=260, color=INK, edgecolor="white", zorder=5, label="test sample")
    ax.set(xlabel="first principal component", ylabel="second principal component", xticks=[], yticks=[])
    if own is not None:
        ax.set_title(f"a test sample of class {shorten(own, 18)} among the landmarks", loc="left")
    figure.legend(loc="outside right upper")
    return figure


def _edges(ax: Axes, sample: np.ndarray[Any, Any], landmarks: np.ndarray[Any, Any], scores: Tensor, k: int) -> None:
    """Draw the ``k`` strongest edges of each sign; colour is doubled by the dash."""
    largest = float(scores.abs().max()) or 1.0
    for sign, colour, line, label in (
        (1, ATTRACTIVE, "solid", "attracts"),
        (-1, REPULSIVE, (0, (4, 2)), "repels"),
    ):
        for l in (sign * scores).topk(k).indices.tolist():
            strength = sign * float(scores[l]) / largest
            if strength <= 0:
                break
            ends = np.stack([sample, landmarks[l]])
            ax.plot(*ends.T, color=colour, linestyle=line, linewidth=0.8 + 2.7 * strength, zorder=3, label=label)
            label = "_nolegend_"


def _points(
    ax: Axes, landmarks: np.ndarray[Any, Any], names: Sequence[Any] | None, own: Any = None, rest: Any = None
) -> None:
    style: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "white"}
    if names is None:
        ax.scatter(*landmarks.T, color=GREY, label="landmarks", **style | {"s": 20, "zorder": 4})
        return
    distinct = sorted(set(names) - {own, rest}, key=str)
    distinct = [own] * (own in names) + distinct
    if len(distinct) > len(SERIES):
        raise InvalidInputError(
            f"{len(distinct)} distinct names cannot be told apart by colour and mark: at most {len(SERIES)}. Merge "
            f"the rare ones, or leave names out."
        )
    marks = [(name, colour, marker) for name, colour, marker in zip(distinct, SHADES, MARKERS, strict=False)]
    for name, colour, marker in [*marks, *([(rest, PALE, "o")] if rest in names else [])]:
        chosen = np.array([other == name for other in names])
        size = (
            {"s": 56, "zorder": 4.5}
            if name == own
            else {"s": 12, "zorder": 2}
            if name == rest
            else {"s": 20, "zorder": 4}
        )
        label = f"{shorten(name, 18)} (the sample's)" if name == own else shorten(name, 18)
        ax.scatter(*landmarks[chosen].T, color=colour, marker=marker, label=label, **style | size)
