r"""k-means++ seeding: each landmark is drawn in proportion to its squared distance to the nearest one chosen so far.

    D²(x) = min over chosen c of |x - c|²,      or in kernel space  k(x, x) + k(c, c) - 2 k(x, c)

One trial per pick. As in `krepes.landmarks.rpcholesky`, a block is proposed from the present ``D²`` and each proposal
accepted with the share of ``D²`` that the accepted ones before it have left: the picks are as likely as one at a time,
and a block costs one pass over ``X``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_range
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.kernels.classic import Linear
from krepes.kernels.vectors import distances_from_products, flatten
from krepes.landmarks.base import (
    LandmarkSelector,
    draw,
    pieces_within,
    require_kernel,
    require_selectable,
    squared_norms,
)


@dataclass(frozen=True)
class KMeansPlusPlus(LandmarkSelector):
    """k-means++ seeding with one trial, without replacement.

    A sample whose distance to a chosen one is below rounding counts as its duplicate and is never chosen.

    Attributes:
        space: ``"input"`` measures flattened samples and needs no kernel; ``"kernel"`` measures features.
        block: Picks proposed in one pass; ``None`` for ``m / 2``, at least 64.
        memory_budget: For the pieces of a pass.
    """

    name: ClassVar[str] = "kmeans++"
    space: Literal["input", "kernel"] = "input"
    block: int | None = None

    @property
    def measures(self) -> bool:
        """It asks the kernel in kernel space alone."""
        return self.space == "kernel"

    def __post_init__(self) -> None:
        if self.space not in {"input", "kernel"}:
            raise InvalidInputError(f"space={self.space!r} is unknown: it must be 'input' or 'kernel'.")

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None = None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices.

        Args:
            X: A batch of ``n`` samples; arrays may be memory-mapped.
            m: Number of landmarks.
            kernel: Measures distances if ``space="kernel"``; not used otherwise.
            generator: Draws the picks.

        Returns:
            Indices, ``(m,)``.

        Raises:
            InvalidInputError: If fewer than ``m`` samples are distinct.
        """
        n = require_selectable(X, m)
        metric = require_kernel(kernel, self.name) if self.space == "kernel" else _about_mean(X, self.budget)
        block = self.block if self.block is not None else max(64, m // 2)
        require_range(block, "block", low=1)
        squares = squared_norms(metric, X, self.budget)
        chosen = torch.randint(n, (1,), generator=generator)
        d = self._distances(metric, X, chosen, squares)
        while len(chosen) < m:
            if not bool(d.any()):
                raise InvalidInputError(
                    f"only {len(chosen)} of m={m} landmarks were found: every other sample of {n} equals one of them "
                    f"to rounding in {self.space} space. Ask for at most {len(chosen)}, or drop duplicates."
                )
            proposed = draw(d, block, generator)
            accepted = _accept(metric, X, proposed, squares, d, generator)[: m - len(chosen)]
            d = d.minimum(self._distances(metric, X, accepted, squares))
            chosen = torch.cat([chosen, accepted])
        return chosen.sort().values

    def _distances(self, metric: Kernel, X: Batch, chosen: Tensor, squares: Tensor) -> Tensor:
        """Return the squared distance of every sample to the nearest of the chosen, ``(n,)``, float64."""
        prepared = metric.prepare(batches.take(X, chosen))
        d = torch.empty_like(squares)
        for piece, x in pieces_within(X, 32 * len(chosen), self.budget):
            D = distances_from_products(metric.rows(x, prepared).K.cpu(), squares[piece], squares[chosen])
            d[piece] = D.amin(1).double()
        d[chosen] = 0
        return d


@dataclass(frozen=True)
class _Shifted(Linear):
    """``(x - o)ᵀ(z - o)``: same distances, but data far from the origin keep their digits."""

    origin: Tensor

    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        return (X - self.origin) @ (Y - self.origin).T

    def self_block(self, X: Tensor) -> Tensor:
        return (X - self.origin).square().sum(1)


def _about_mean(X: Batch, budget: Budget) -> _Shifted:
    """Return the input-space metric about the mean of the first thousand samples: near the data is enough."""
    first = budget.rows(2 * batches.sample_bytes(X), what="a candidate", share=1 / 4, most=1000)
    return _Shifted(flatten(batches.take(X, slice(0, first))).mean(0), memory_budget=budget)


def _accept(
    metric: Kernel, X: Batch, proposed: Tensor, squares: Tensor, d: Tensor, generator: torch.Generator
) -> Tensor:
    """Accept proposals in turn, each with the share of ``d`` that the accepted ones before it have left."""
    points = batches.take(X, proposed)
    K = metric.enter(points, gram=True)[1].K.cpu()
    D = distances_from_products(K, squares[proposed], squares[proposed]).double()
    # An index proposed twice has no distance to itself, whatever rounding says.
    D.masked_fill_(proposed[:, None] == proposed, 0)
    threshold = d[proposed] * torch.rand(len(proposed), generator=generator, dtype=torch.float64)
    left = d[proposed]
    accepted: list[int] = []
    for i in range(len(proposed)):
        if left[i] > threshold[i]:
            accepted.append(i)
            left = left.minimum(D[i])
    return proposed[torch.tensor(accepted)]
