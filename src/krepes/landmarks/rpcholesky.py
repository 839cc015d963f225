r"""Randomly pivoted Cholesky: each landmark is drawn in proportion to what the earlier ones leave unexplained.

    d = diag K;  repeat:  s ~ d / Σd,   g = (K[:, s] - F F[s]ᵀ) / √d_s,   F <- [F, g],   d <- d - g²

``K ≈ F Fᵀ`` is the Nyström approximation on the pivots and ``Σd`` its trace error (Chen, Epperly, Tropp and Webber).
One pivot at a time reads all of ``X`` and ``F`` for a single column. Here a block of pivots is proposed from the
present ``d`` and each is accepted with the probability by which ``d`` there has shrunk since (Epperly, Tropp and
Webber, "Embrace rejection"). Rejection sampling makes the pivots exactly as likely as one at a time, and the accepted
ones cost one pass, all in matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_finite, require_range
from krepes.batches import Batch
from krepes.errors import RankDeficientKernelError
from krepes.kernels.base import Kernel
from krepes.landmarks.base import (
    LandmarkSelector,
    draw,
    pieces_within,
    require_kernel,
    require_selectable,
    squared_norms,
)
from krepes.landmarks.factor import Factor, open_factor


@dataclass(frozen=True)
class Pivots:
    """The outcome of a pivoted Cholesky factorisation ``K ≈ F Fᵀ``.

    Attributes:
        index: Pivots in the order in which they were drawn, ``(m,)``.
        residual: ``k(x, x) - |F_x|²``, ``(n,)``, float64; its sum is the trace error of the Nyström approximation.
    """

    index: Tensor
    residual: Tensor


@dataclass(frozen=True)
class RPCholesky(LandmarkSelector):
    """Randomly pivoted Cholesky, accelerated by blocks; the default.

    Each block costs one pass ``kernel.rows(X, pivots)``, besides one for the diagonal. Where a pass is expensive, as
    with a tangent kernel, make the block larger, or pass fewer candidates. Samples whose residual is below the rounding
    of their own ``k(x, x)`` count as explained, so float64 data finds more pivots than float32 where the spectrum ends
    early.

    Attributes:
        block: Pivots proposed in one pass; ``None`` for ``m / 2``, at least 64.
        memory_budget: For the factor and the pieces; a factor ``(n, m)`` above a quarter of it goes to a file.
    """

    name: ClassVar[str] = "rpcholesky"
    block: int | None = None

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices, ``(m,)``."""
        return self.pivots(X, m, kernel=kernel, generator=generator).index.sort().values

    def pivots(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Pivots:
        """Draw ``m`` pivots.

        Args:
            X: A batch of ``n`` samples; arrays may be memory-mapped.
            m: Number of landmarks.
            kernel: Measures what is left unexplained.
            generator: Draws the pivots.

        Returns:
            The pivots, and what they leave unexplained of each sample.
        """
        kernel = require_kernel(kernel, self.name)
        n = require_selectable(X, m)
        block = self.block if self.block is not None else max(64, m // 2)
        require_range(block, "block", low=1)
        d = squared_norms(kernel, X, self.budget)
        dtype = kernel(batches.take(X, slice(0, 1)), batches.take(X, slice(0, 1))).dtype
        floor = 32 * torch.finfo(dtype).eps * d
        index = torch.empty(0, dtype=torch.int64)
        with open_factor(n, m, dtype=dtype, budget=self.budget) as F:
            while (k := len(index)) < m:
                d[d <= floor] = 0
                _require_residual(d, k, m, dtype)
                proposed = draw(d, block, generator)
                chosen, L = _accept(kernel, X, proposed, F.read(proposed, k), d, floor, generator)
                if len(chosen):
                    chosen, L = chosen[: m - k], L[: m - k, : m - k]
                    self._absorb(kernel, X, chosen, L, F, k, d)
                    index = torch.cat([index, chosen])
        return Pivots(index, d)

    def _absorb(self, kernel: Kernel, X: Batch, chosen: Tensor, L: Tensor, F: Factor, k: int, d: Tensor) -> None:
        """Append the columns of the chosen pivots to ``F`` after its first ``k``, and take them off ``d``."""
        prepared = kernel.prepare(batches.take(X, chosen))
        F_chosen = F.read(chosen, k)
        row_bytes = F.dtype.itemsize * (k + 3 * len(chosen))
        for piece, x in pieces_within(X, row_bytes, self.budget, share=1 / 8):
            K = kernel.rows(x, prepared).K.cpu()
            G = torch.addmm(K, F.read(piece, k), F_chosen.T, alpha=-1)
            G = torch.linalg.solve_triangular(L.T.to(G.dtype), G, upper=True, left=False)
            F.write(piece, k, G)
            d[piece] -= G.square().sum(1)
        require_finite(d, "the residual of the kernel over X")
        d.clamp_(min=0)
        d[chosen] = 0


def _require_residual(d: Tensor, k: int, m: int, dtype: torch.dtype) -> None:
    """Raise `RankDeficientKernelError` if ``k`` pivots explain every sample to rounding."""
    if not bool(d.any()):
        raise RankDeficientKernelError(
            f"only {k} of m={m} landmarks were found: after them no sample of {len(d)} has a residual above the "
            f"rounding of {dtype}. Ask for at most {k}, drop duplicates, or pass float64 data if the kernel's "
            f"spectrum decays fast."
        )


def _accept(
    kernel: Kernel, X: Batch, proposed: Tensor, F: Tensor, d: Tensor, floor: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Accept proposals in turn, each with the share of ``d`` that the accepted ones before it have left.

    Args:
        kernel: The kernel.
        X: All samples.
        proposed: Indices drawn from ``d``, ``(b,)``.
        F: Their rows of the factor, ``(b, k)``.
        d: Residual diagonal, ``(n,)``; brought up to date at the proposed samples.
        floor: Residuals that count as zero, ``(n,)``.
        generator: Decides.

    Returns:
        The accepted indices ``(a,)``, and the Cholesky factor ``(a, a)`` of their residual kernel, float64.
    """
    points = batches.take(X, proposed)
    H = kernel.enter(points, gram=True)[1].K.double().cpu() - F.double() @ F.double().T
    threshold = d[proposed] * torch.rand(len(proposed), generator=generator, dtype=torch.float64)
    threshold = threshold.maximum(floor[proposed])
    # The float64 value here is better than the running one, and where that was only rounding, the loop would not end.
    d[proposed] = left = H.diagonal().clamp_min(0)
    L = torch.zeros_like(H)
    accepted: list[int] = []
    for i in range(len(proposed)):
        if left[i] > threshold[i]:
            a = len(accepted)
            L[:, a] = (H[:, i] - L[:, :a] @ L[i, :a]) / left[i].sqrt()
            left = left - L[:, a].square()
            accepted.append(i)
    index = torch.tensor(accepted, dtype=torch.int64)
    return proposed[index], L[index, : len(accepted)].tril()
