"""A run folder of somebody else is believed only as far as its parts fit together; what does not is one plain error."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krepes.engine.init import ENCODER
from krepes.errors import KrepesError, RunFolderError

DESCRIBED = ("selector", "objective", "kernel", "data")


@contextmanager
def readable(folder: str | Path) -> Generator[None, None, None]:
    """Turn what a manifest of the wrong kind causes anywhere below into one `RunFolderError`.

    Args:
        folder: The run, for the message.

    Yields:
        Nothing.

    Raises:
        KrepesError: As it is, if it is ours already.
        RunFolderError: Instead of errors about types, keys, shapes and values.
    """
    try:
        yield
    except KrepesError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
        raise RunFolderError(
            f"the manifest or the arrays of {folder} do not describe a model of this version ({type(error).__name__}: "
            f"{error}). Fit and save it again, or pass the encoder of the run."
        ) from error


def require_manifest(manifest: Mapping[str, Any], folder: str | Path) -> None:
    """Refuse a manifest whose parts are not of the kind that they must be."""
    dicts = {name: manifest.get(name) for name in ("parameters", "solution", "kernel_choice", *DESCRIBED)}
    wrong = [name for name, value in dicts.items() if not isinstance(value, dict)]
    nameless = [name for name in DESCRIBED[:3] if name not in wrong and not isinstance(dicts[name].get("name"), str)]  # type: ignore[union-attr]
    if wrong or nameless or not isinstance(manifest.get("landmark_ids"), list):
        parts = ", ".join([*wrong, *nameless]) or "landmark_ids"
        raise RunFolderError(
            f"the manifest of {folder} does not describe a model of this version: {parts} is missing or of another "
            f"kind. Fit and save it again."
        )
    data = manifest["data"]
    counts = [data.get(name) for name in ("n", "p")]
    if not all(isinstance(count, int) and not isinstance(count, bool) and 0 < count < 2**62 for count in counts):
        raise RunFolderError(f"the manifest of {folder} states n={counts[0]!r} samples in p={counts[1]!r} views.")


def require_arrays(arrays: Mapping[str, Tensor], manifest: Mapping[str, Any], points: int, folder: str | Path) -> None:
    """Refuse arrays that do not fit one another.

    Args:
        arrays: Of the run.
        manifest: Of the run.
        points: Landmark points that the run holds.
        folder: The run, for the message.

    Raises:
        RunFolderError: If a shape, a type or a number cannot be.
    """
    n, p = manifest["data"]["n"], manifest["data"]["p"]
    landmarks, theta = arrays["landmarks"], arrays["theta"]
    m = len(manifest["landmark_ids"])
    q, h = m * p, theta.shape[-1] if theta.ndim else 0
    rows = q + 1 + (h if manifest["parameters"].get("init") == ENCODER else 0)
    shapes = {"landmarks": (m,), "theta": (rows, h), "theta0": (rows, h), "K_mm": (q, q), "M": (p, p, rows, rows)}
    found = [
        f"{name} is {tuple(arrays[name].shape)} of {arrays[name].dtype}, not {shape}"
        for name, shape in shapes.items()
        if name in arrays
        and (tuple(arrays[name].shape) != shape or (name != "landmarks" and arrays[name].dtype != torch.float64))
    ]
    if not found and points != q:
        found.append(f"there are {points} landmark points, not {q}")
    if not found and (landmarks.dtype != torch.int64 or not 0 <= int(landmarks.min()) <= int(landmarks.max()) < n):
        found.append(f"landmarks must be whole numbers between 0 and {n - 1}")
    if not found and not all(bool(torch.isfinite(arrays[name]).all()) for name in shapes if name in arrays):
        found.append("not every number is finite")
    if found:
        raise RunFolderError(f"the arrays of {folder} do not belong together: {'; '.join(found)}. Fit it again.")
