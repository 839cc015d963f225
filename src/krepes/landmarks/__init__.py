"""Landmarks: the few samples whose kernel values describe all others, chosen by one of five selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from krepes import batches, registry
from krepes._describe import Description, described
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
    "given_landmarks",
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


def given_landmarks(landmarks: Any, n: int) -> Tensor | None:
    """Return the landmarks that the user names, or ``None`` if a selector shall choose them.

    Args:
        landmarks: ``"all"`` for every sample, their indices, or a selector or its name.
        n: Number of samples.

    Returns:
        Sorted indices, ``(m,)``, int64.

    Raises:
        InvalidInputError: If the indices are not distinct whole numbers between 0 and ``n - 1``.

    Example:
        >>> given_landmarks([4, 0, 2], n=5)
        tensor([0, 2, 4])
    """
    if isinstance(landmarks, str) and landmarks == "all":
        return torch.arange(n)
    if isinstance(landmarks, (str, LandmarkSelector)):
        return None
    try:
        found = torch.as_tensor(landmarks)
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(0)
    whole = found.ndim == 1 and len(found) and not found.is_floating_point() and found.dtype != torch.bool
    if not whole or found.is_complex():
        raise InvalidInputError(
            f"landmarks={landmarks!r} are none: pass 'all', the indices of samples as a list of whole numbers, or a "
            f"selector: one of {sorted(SELECTORS)}."
        )
    indices = found.to("cpu", torch.int64).sort().values
    low, high, distinct = int(indices[0]), int(indices[-1]), len(indices.unique())
    if low < 0 or high >= n or distinct < len(indices):
        raise InvalidInputError(
            f"{len(indices)} landmarks between {low} and {high} were named, {distinct} of them distinct: each must be "
            f"named once and lie between 0 and {n - 1}."
        )
    return indices


def selector_record(landmarks: Any) -> Description:
    """Return how landmarks were chosen, as plain JSON values: a selector's description, ``all`` or ``given``."""
    if isinstance(landmarks, LandmarkSelector) or (isinstance(landmarks, str) and landmarks != "all"):
        return make_selector(landmarks).describe()
    return described("all" if isinstance(landmarks, str) else "given", {})


def recorded_landmarks(record: Description, indices: Tensor) -> Any:
    """Return what to choose landmarks by again, or ``None`` if a record names a selector that is not of this package.

    Args:
        record: What `selector_record` returned.
        indices: The landmarks that were chosen, ``(m,)``.

    Returns:
        ``"all"``, indices, the name of a selector with default settings, or a selector.
    """
    if record["name"] == "given":
        return indices.tolist()
    if record["name"] not in SELECTORS:
        return "all" if record["name"] == "all" else None
    selector = make_selector(record)
    return selector.name if selector == make_selector(selector.name) else selector


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
    selector = make_selector(method, memory_budget=memory_budget)
    if m == batches.count(X):  # nothing to choose, and a centred kernel has one direction less than samples
        return torch.arange(m)
    return selector(X, m, kernel=kernel, generator=generator)
