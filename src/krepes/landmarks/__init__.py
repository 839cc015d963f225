"""Landmarks: the few samples whose kernel values describe all others, chosen by one of five selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from krepes import registry
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.landmarks.base import LandmarkSelector
from krepes.landmarks.kmeans import KMeansPlusPlus
from krepes.landmarks.leverage import LeverageHutchinson, LeverageNystrom
from krepes.landmarks.rpcholesky import RPCholesky
from krepes.landmarks.uniform import Uniform
from krepes.linalg import without_autocast

__all__ = [
    "SELECTORS",
    "KMeansPlusPlus",
    "LandmarkSelector",
    "LeverageHutchinson",
    "LeverageNystrom",
    "RPCholesky",
    "Uniform",
    "make_selector",
    "select",
]

SELECTORS: dict[str, Callable[..., LandmarkSelector]] = registry.loaded(registry.LANDMARKS)
"""Selectors by name."""


def make_selector(
    method: str | Mapping[str, Any] | LandmarkSelector, *, memory_budget: MemoryBudget = DEFAULT_BUDGET
) -> LandmarkSelector:
    """Return the selector, made with its default settings if only its name is given.

    Args:
        method: A key of `SELECTORS`, what a selector's ``describe`` returned, or a selector.
        memory_budget: Of a selector that is made here; one that is given has its own.

    Returns:
        The selector.

    Raises:
        InvalidInputError: If the name is unknown.
    """
    if isinstance(method, LandmarkSelector):
        return method
    settings = {"name": method} if isinstance(method, str) else dict(method)
    name = settings.pop("name", None)
    if name not in SELECTORS:
        raise InvalidInputError(f"method={name!r} is unknown: it must be one of {sorted(SELECTORS)}.")
    return SELECTORS[name](**settings, memory_budget=memory_budget)


@without_autocast()
def select(
    X: Batch,
    m: int,
    *,
    generator: torch.Generator,
    kernel: Kernel | None = None,
    method: str | LandmarkSelector = "rpcholesky",
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
) -> Tensor:
    """Choose ``m`` landmarks.

    Args:
        X: A batch of ``n`` samples; arrays may be memory-mapped and larger than memory. A kernel that runs a network
            pays for each of them in each pass: a uniformly drawn part bounds the price.
        m: Number of landmarks, at most ``n``.
        generator: Source of every random choice: the same seed gives the same landmarks.
        kernel: Measures the samples; 'uniform' and 'kmeans++' do without.
        method: A key of `SELECTORS`, or a selector with settings of its own.
        memory_budget: Of a method given by name, besides ``X`` and what the kernel itself needs.

    Returns:
        Indices of ``m`` distinct samples, sorted, int64, ``(m,)``.

    Example:
        >>> from krepes.kernels.classic import RBF
        >>> X = torch.cat([torch.zeros(50, 1), torch.ones(1, 1), torch.full((1, 1), 9.0)])
        >>> select(X, 3, kernel=RBF(1.0), generator=torch.Generator().manual_seed(0))[1:]
        tensor([50, 51])
    """
    return make_selector(method, memory_budget=memory_budget)(X, m, kernel=kernel, generator=generator)
