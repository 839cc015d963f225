"""Checks of what comes in from outside: they raise with numbers, or return nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.errors import InvalidInputError


def require_finite(x: Tensor, what: str) -> None:
    """Raise `InvalidInputError` if ``x`` (any shape) holds NaN or infinity, and say how many and where first."""
    if not x.is_floating_point():
        return
    # A finite sum has finite terms, and it is far cheaper than a mask; one that overflows falls through to the mask.
    if bool(torch.isfinite(x.sum())):
        return
    bad = ~torch.isfinite(x)
    if not bool(bad.any()):
        return
    first = tuple(int(i) for i in bad.nonzero()[0])
    raise InvalidInputError(
        f"{what} holds {int(bad.sum())} NaN or infinite entries of {x.numel()}, the first at index {first}. "
        f"Every entry must be finite: impute or drop those samples before calling."
    )


def require_range(value: float, what: str, *, low: float, high: float = float("inf")) -> None:
    """Raise `InvalidInputError` unless ``low <= value <= high``."""
    if not low <= value <= high:
        bound = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
        raise InvalidInputError(f"{what}={value:g} is out of range: it must be {bound}.")


def require_symmetric(K: Tensor, what: str, *, rtol: float = 1e-4) -> None:
    """Raise `InvalidInputError` unless ``K`` is square and symmetric to ``rtol`` of its largest entry."""
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise InvalidInputError(f"{what} must be a square matrix, got shape {tuple(K.shape)}.")
    gap = float((K - K.T).abs().max()) if K.numel() else 0.0
    scale = float(K.abs().max()) if K.numel() else 0.0
    if gap > rtol * scale:
        raise InvalidInputError(
            f"{what} is not symmetric: the largest difference to its transpose is {gap:.2e}, "
            f"its largest entry {scale:.2e}. Pass the kernel between one set of points and itself."
        )
