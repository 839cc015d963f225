"""What a landmark selector is, and the little that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_finite
from krepes._describe import Description, described, fields_of
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel


@dataclass(frozen=True)
class LandmarkSelector(ABC):
    """Chooses ``m`` of the samples to carry the coefficients; a frozen dataclass that holds its settings.

    Attributes:
        memory_budget: What a selector may hold besides ``X`` and what the kernel itself needs: bytes, or text such as
            ``"2G"``.
    """

    name: ClassVar[str]
    memory_budget: MemoryBudget = field(default=DEFAULT_BUDGET, kw_only=True, compare=False)

    @abstractmethod
    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct indices into ``X``, sorted, int64, ``(m,)``."""

    def describe(self) -> Description:
        """Return name and settings as plain JSON values."""
        return described(self.name, fields_of(self))

    @property
    def measures(self) -> bool:
        """Whether it asks the kernel about the samples."""
        return True

    @property
    def budget(self) -> Budget:
        """The memory budget."""
        return Budget.of(self.memory_budget)


def require_selectable(X: Batch, m: int) -> int:
    """Return ``n``, the number of samples.

    Args:
        X: A batch of ``n`` samples.
        m: Landmarks asked for.

    Returns:
        ``n``.

    Raises:
        InvalidInputError: If ``X`` is empty, or ``m`` is not between 1 and ``n``.
    """
    n = batches.count(X)
    if n == 0:
        raise InvalidInputError("X holds no sample, so there is nothing to choose landmarks from.")
    if not 1 <= m <= n:
        raise InvalidInputError(f"m={m} landmarks cannot be chosen from n={n} samples: m must lie between 1 and {n}.")
    return n


def require_kernel(kernel: Kernel | None, name: str) -> Kernel:
    """Return the kernel, or raise `InvalidInputError` if there is none."""
    if kernel is None:
        raise InvalidInputError(
            f"the selector '{name}' measures samples with a kernel, and none was given. Pass kernel=..., for example "
            f"the one you will fit with, or choose 'uniform' or 'kmeans++'."
        )
    return kernel


def squared_norms(kernel: Kernel, X: Batch, budget: Budget) -> Tensor:
    """Return ``k(x, x)``, ``(n,)``, in float64 on the CPU, or raise `InvalidInputError` if one is not finite."""
    pieces = [kernel.diagonal(x).double().cpu() for _, x in pieces_within(X, 8, budget)]
    values = torch.cat(pieces)
    require_finite(values, "the kernel's diagonal over X")
    return values.clamp_min(0)


def pieces_within(X: Batch, row_bytes: int, budget: Budget, *, share: float = 1 / 4) -> Iterator[tuple[slice, Batch]]:
    """Yield ``(slice, samples)`` pieces that take a share of a memory budget.

    Args:
        X: A batch of ``n`` samples.
        row_bytes: Bytes needed for one sample besides the sample itself.
        budget: The memory budget.
        share: The part of it.

    Yields:
        Each slice of ``range(n)`` with its samples.
    """
    size = budget.rows(batches.sample_bytes(X) + row_bytes, what="a candidate and its kernel values", share=share)
    yield from batches.chunks(X, size)


def draw(weights: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw ``size`` indices with replacement, each with probability in proportion to its weight.

    Args:
        weights: ``(n,)``, float64, not negative, at least one positive.
        size: Number of draws.
        generator: Draws them.

    Returns:
        Indices, ``(size,)``, none of weight zero.
    """
    # torch.multinomial stops at 2**24 categories, and a sum in float32 would lose the light ones.
    edges = weights.cumsum(0)
    u = torch.rand(size, generator=generator, dtype=torch.float64) * edges[-1]
    last = int(weights.nonzero()[-1])
    return torch.searchsorted(edges, u, right=True).clamp_max(last)


def draw_distinct(weights: Tensor, m: int, generator: torch.Generator) -> Tensor:
    """Draw ``m`` distinct indices one after the other, each in proportion to the weights of those that are left.

    Args:
        weights: ``(n,)``, float64, not negative, at least ``m`` positive.
        m: Number of draws.
        generator: Draws them.

    Returns:
        Sorted indices, ``(m,)``.
    """
    # The m smallest of independent exponential clocks with these rates ring in exactly that order.
    clocks = torch.empty_like(weights).exponential_(generator=generator) / weights
    return clocks.topk(m, largest=False).indices.sort().values
