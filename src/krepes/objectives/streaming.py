r"""Objectives that need the rows: a loss of the embeddings of one batch, summed over a fixed partition.

    L(Θ) = Σ_b (b/n) ℓ_b(K̄_b Θ),      ∇L = Σ_b (b/n) K̄_bᵀ ∇ℓ_b(Z_b),      H V = Σ_b (b/n) K̄_bᵀ Q_b(Z_b)[K̄_b V]

A short last batch counts by its size. A loss that is a mean over samples is therefore blind to the partition; one that
compares the samples of a batch, as SimCLR does, is defined by it, and ``batch`` is one of its hyper-parameters. A sum
in place of the mean is ``scale(n)`` times as large, which matters to an absolute damping.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.errors import InvalidInputError
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import kronecker
from krepes.objectives.base import Linearisation, Product, RowObjective, RowSource
from krepes.objectives.parts import Part, pull_back, rows_of, sample_of
from krepes.objectives.shared import SharedRows

__all__ = ["BatchLoss", "MemoryRows", "StreamedObjective", "batch_generator", "pull_back", "unit_rows"]


class BatchLoss(ABC):
    """The loss ``ℓ`` of one batch as a function of its embeddings ``Z`` ``(p, b, h)``."""

    @abstractmethod
    def value(self, Z: Tensor) -> Tensor:
        """Return ``ℓ(Z)``, a scalar."""

    @abstractmethod
    def gradient(self, Z: Tensor) -> Tensor:
        """Return ``∇ℓ``, ``(p, b, h)``."""

    @abstractmethod
    def product(self, Z: Tensor, dZ: Tensor) -> Tensor:
        """Return ``Q dZ``, ``(p, b, h)``, with ``Q`` positive semi-definite."""

    def curvature(self, Z: Tensor) -> Product:
        """Return ``dZ -> Q dZ`` at ``Z`` for many products: what they share is made once."""
        return partial(self.product, Z)

    def held(self, Z: Tensor) -> int:
        """Return the bytes that `curvature` keeps."""
        return self.least(Z)

    def least(self, Z: Tensor) -> int:
        """Return the bytes that `product` at ``Z`` needs: embeddings, and what this loss holds of its batch."""
        return Z.nbytes

    def summary(self, Kbar: Tensor, Z: Tensor) -> dict[str, Tensor]:
        """Return what is cheap to know about this batch's curvature, to be averaged over batches.

        Args:
            Kbar: Augmented rows, ``(p, b, q + 1)``.
            Z: Their embeddings, ``(p, b, h)``.

        Returns:
            Any of ``diagonal`` ``(q + 1, h)``, and the Kronecker pair ``M`` ``(q + 1, q + 1)`` and ``S`` ``(h, h)``
            whose product ``M V S`` stands in for ``H V`` as a preconditioner.
        """
        return {}


class StreamedObjective(RowObjective):
    """A row objective made of batch losses; a subclass says which, and has a ``batch`` size."""

    batch: int
    curvature_rows: int

    @abstractmethod
    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the loss of batch number ``index`` with augmented rows ``Kbar`` ``(p, b, q + 1)``."""

    def scale(self, n: int) -> float:
        """Return by how much the loss of ``n`` samples is larger than its mean over them."""
        return 1.0

    def value(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the loss, a scalar tensor, at ``theta`` ``(q + 1, h)``."""
        return self._sums(data)("value", self, theta, True)["value"]

    def gradient(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the gradient in ``theta``, ``(q + 1, h)``."""
        return self._sums(data)("gradient", self, theta)["gradient"]

    def linearise(self, data: RowSource, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and its preconditioner at ``theta``, from one pass over the rows.

        Value and gradient are of all rows. The curvature is of ``curvature_rows`` of them, in whole batches drawn by
        the seed. What products share is kept up to half of the budget, or at least the embeddings are; beyond it each
        product computes them again.
        """
        theta = theta.detach()
        do = self._sums(data)
        sums = do("expand", self, theta)
        chosen = sample_of(self, data.n)
        rows = rows_of(chosen, data.n, self.batch)

        def operator(whole: bool, diagonal: Tensor | None) -> LinearOperator:
            return LinearOperator(lambda v: do("product", self, v, whole)["product"], tuple(theta.shape), diagonal)

        return Linearisation(
            value=float(sums["value"]),
            gradient=sums["gradient"],
            H=operator(False, sums.get("diagonal")),
            # Both factors were summed, and one of them may carry the scale of the loss.
            preconditioner=kronecker(sums["M"], sums["S"] / self.scale(data.n)) if "M" in sums else None,
            rows=rows,
            whole=operator(True, None) if rows < data.n else None,
            estimate=(lambda at: do("value", self, at, False)["value"]) if rows < data.n else None,
        )

    def _sums(self, data: RowSource) -> Callable[..., dict[str, Tensor]]:
        """Return what adds up batches: this process, or all that share the rows."""
        return data.do if isinstance(data, SharedRows) else Part(data).do


@dataclass(frozen=True)
class MemoryRows:
    """Augmented kernel rows held in memory: a `RowSource` for data that fits.

    Attributes:
        Kbar: ``(p, n, q + 1)``, the last column one.
        K: Gram matrix of the landmark points, ``(q, q)``.
        budget: What objectives may keep of the rows in memory.
    """

    Kbar: Tensor
    K: Tensor
    budget: Budget = DEFAULT_BUDGET

    @classmethod
    def from_kernel(cls, rows: Tensor, K: Tensor) -> MemoryRows:
        """Return the rows ``(p, n, q)`` in float64 with the constant column appended."""
        require_finite(rows, "kernel rows")
        return cls(torch.nn.functional.pad(rows.double(), (0, 1), value=1.0), K.double())

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.Kbar.shape[1])

    def batches(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield ``K̄``, ``(p, b, q + 1)``, with ``b <= size``: all batches, or the ``chosen`` numbers."""
        parts = self.Kbar.split(size, dim=1)
        yield from parts if chosen is None else (parts[number] for number in chosen)


def require_reduction(reduction: str) -> None:
    """Refuse what is neither ``"mean"`` nor ``"sum"``."""
    if reduction not in {"mean", "sum"}:
        raise InvalidInputError(f"reduction must be 'mean' or 'sum', got {reduction!r}.")


def unit_rows(Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``Z / |z|`` and the norms ``|z|`` ``(..., 1)``; a zero embedding has no direction and is refused."""
    norm = torch.linalg.vector_norm(Z, dim=-1, keepdim=True)
    zero = int((norm == 0).sum())
    if zero:
        raise InvalidInputError(
            f"{zero} of {norm.numel()} embeddings of a batch are exactly zero and have no direction, but this loss "
            f"normalises each. Drop samples whose kernel row is zero, widen the kernel, or start from a non-zero shift."
        )
    return Z / norm, norm


def batch_generator(seed: int, index: int, device: torch.device) -> torch.Generator:
    """Return a generator that depends on the seed and the batch alone, so that every pass draws the same numbers."""
    state = np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state >> np.uint64(1)))
