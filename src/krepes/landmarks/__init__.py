"""Landmarks: the few samples whose kernel values describe all others, chosen by one of five selectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_range
from krepes.batches import Batch
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
    "Candidates",
    "KMeansPlusPlus",
    "LandmarkSelector",
    "LeverageHutchinson",
    "LeverageNystrom",
    "RPCholesky",
    "Uniform",
    "select",
]

SELECTORS: dict[str, Callable[[], LandmarkSelector]] = {
    selector.name: selector for selector in (RPCholesky, KMeansPlusPlus, LeverageNystrom, LeverageHutchinson, Uniform)
}
"""Selectors with their default settings, by name."""


@dataclass(frozen=True)
class Candidates:
    """A selector that sees only a uniform sample of the data, so that the cost of its passes is bounded.

    Attributes:
        selector: Chooses among the candidates.
        size: How many candidates to draw; they are held in memory.
    """

    selector: LandmarkSelector
    size: int

    @property
    def name(self) -> str:
        """The name of the selector within."""
        return self.selector.name

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices, ``(m,)``."""
        n = batches.count(X)
        require_range(self.size, "candidates", low=m)
        candidates = torch.randperm(n, generator=generator)[: self.size].sort().values
        return candidates[self.selector(batches.take(X, candidates), m, kernel=kernel, generator=generator)]


@without_autocast()
def select(
    X: Batch,
    m: int,
    *,
    generator: torch.Generator,
    kernel: Kernel | None = None,
    method: str | LandmarkSelector = "rpcholesky",
    candidates: int | None = None,
) -> Tensor:
    """Choose ``m`` landmarks.

    Args:
        X: A batch of ``n`` samples; arrays may be memory-mapped and larger than memory.
        m: Number of landmarks, at most ``n``.
        generator: Source of every random choice: the same seed gives the same landmarks.
        kernel: Measures the samples; 'uniform' and 'kmeans++' do without.
        method: A key of `SELECTORS`, or a selector with settings of its own.
        candidates: Choose among this many uniformly drawn samples only. A kernel that runs a network pays for each
            sample in each pass; this bounds the price.

    Returns:
        Indices of ``m`` distinct samples, sorted, int64, ``(m,)``.

    Raises:
        InvalidInputError: If the method is unknown.

    Example:
        >>> from krepes.kernels.classic import RBF
        >>> X = torch.cat([torch.zeros(50, 1), torch.ones(1, 1), torch.full((1, 1), 9.0)])
        >>> select(X, 3, kernel=RBF(1.0), generator=torch.Generator().manual_seed(0))[1:]
        tensor([50, 51])
    """
    if isinstance(method, str) and method not in SELECTORS:
        raise InvalidInputError(f"method={method!r} is unknown: it must be one of {sorted(SELECTORS)}.")
    selector = SELECTORS[method]() if isinstance(method, str) else method
    if candidates is not None:
        selector = Candidates(selector, candidates)
    return selector(X, m, kernel=kernel, generator=generator)
