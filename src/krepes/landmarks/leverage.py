r"""Ridge leverage scores: how much of a sample's own feature the ridge regression on all others leaves to itself.

    ℓ_j = [K (K + λ n I)⁻¹]_jj,      Σ ℓ_j = effective dimension

Landmarks are drawn without replacement in proportion to an estimate of ``ℓ``. With ``λ n = trace(K) / m``, the default,
the effective dimension stays below ``m``: there is a landmark for every direction that counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_finite, require_range
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.kernels.classic import Linear
from krepes.kernels.vectors import flatten
from krepes.landmarks.base import (
    LandmarkSelector,
    draw_distinct,
    pieces_within,
    require_kernel,
    require_selectable,
    squared_norms,
)
from krepes.landmarks.factor import Factor, open_factor
from krepes.linalg import safe_cholesky, top_eigenpairs


@dataclass(frozen=True)
class LeverageNystrom(LandmarkSelector):
    r"""Leverage scores through ``D`` uniformly drawn columns, with a correction for what they do not reach.

    With ``Φ = K_nD W``, ``W Wᵀ = K_DD⁻¹``, and the residual ``r_j = k_jj - |Φ_j|²``

        ℓ̂_j = Φ_j (ΦᵀΦ + λ n I)⁻¹ Φ_jᵀ + r_j / (r_j + λ n)

    which lies in ``[0, 2)`` and takes one pass over ``X``.

    Attributes:
        columns: ``D``; ``None`` for ``m``.
        ridge: ``λ`` as a share of the mean ``k(x, x)``; ``None`` for ``1 / m``.
        memory_budget: For ``Φ`` and the pieces; a ``Φ`` above half of it goes to a file.
    """

    name: ClassVar[str] = "leverage-nystrom"
    columns: int | None = None
    ridge: float | None = None

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices, ``(m,)``."""
        return _sample(self.scores(X, m, kernel=kernel, generator=generator), m, generator, "columns")

    def scores(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return the estimate ``ℓ̂``, ``(n,)``, float64.

        Args:
            X: A batch of ``n`` samples.
            m: Number of landmarks that the defaults of ``columns`` and ``ridge`` refer to.
            kernel: The kernel.
            generator: Draws the columns.

        Returns:
            The scores.
        """
        kernel = require_kernel(kernel, self.name)
        n = require_selectable(X, m)
        require_range(D := min(n, m if self.columns is None else self.columns), "columns", low=1)
        squares = squared_norms(kernel, X, self.budget)
        damping = _damping(squares, self.ridge, m)
        points = batches.take(X, torch.randperm(n, generator=generator)[:D].sort().values)
        prepared, own = kernel.enter(points, gram=True)
        W = _inverse_root(own.K.cpu())
        with open_factor(n, W.shape[1], dtype=W.dtype, budget=self.budget) as Phi:
            gram = self._fill(Phi, kernel, X, prepared, W)
            scores = self._read(Phi, gram, squares, damping)
        require_finite(scores, "the leverage scores")
        return scores

    def _fill(self, Phi: Factor, kernel: Kernel, X: Batch, prepared: Any, W: Tensor) -> Tensor:
        """Write ``Φ = K_nD W``, ``(n, r)``, piece by piece, and return ``ΦᵀΦ``, ``(r, r)``, float64."""
        gram = torch.zeros(W.shape[1], W.shape[1], dtype=torch.float64)
        for piece, x in pieces_within(X, 4 * W.element_size() * len(W), self.budget, share=1 / 8):
            F = kernel.rows(x, prepared).K.cpu() @ W
            Phi.write(piece, 0, F)
            gram += F.T @ F
        return gram

    def _read(self, Phi: Factor, gram: Tensor, squares: Tensor, damping: float) -> Tensor:
        """Return the scores, ``(n,)``, from ``Φ``, its Gram matrix and ``k(x, x)``."""
        n, r = Phi.shape
        L, _ = safe_cholesky(gram + damping * torch.eye(r, dtype=torch.float64))
        size = self.budget.rows(2 * Phi.dtype.itemsize * r, what="the leverage score of a sample", share=1 / 4)
        scores = torch.empty_like(squares)
        for start in range(0, n, size):
            piece = slice(start, start + size)
            F = Phi.read(piece, r)
            whitened = torch.linalg.solve_triangular(L.T.to(F.dtype), F, upper=True, left=False)
            residual = (squares[piece] - F.square().sum(1)).clamp_min(0)
            scores[piece] = whitened.square().sum(1) + residual / (residual + damping)
        return scores


@dataclass(frozen=True)
class LeverageHutchinson(LandmarkSelector):
    r"""Leverage scores by random signs and conjugate gradients, the estimator of the paper.

        ℓ̂ = mean over probes π of  π ∘ K (K + λ n I)⁻¹ π,   clipped at 0

    Each iteration multiplies ``K``, never formed, with all probes: ``n²`` kernel values, or two passes for the linear
    kernel. The noise is large unless there are many more probes than ``n`` over the effective dimension, and clipping
    it spreads mass over samples of low leverage; `LeverageNystrom` is cheaper and better. Kept for comparison.

    Attributes:
        probes: Number of sign vectors.
        ridge: ``λ`` as a share of the mean ``k(x, x)``; ``None`` for ``1 / m``.
        iterations: Largest number of iterations.
        tolerance: Residual, relative to the probes, at which they end.
        memory_budget: For the pieces of a product.
    """

    name: ClassVar[str] = "leverage-hutchinson"
    probes: int = 32
    ridge: float | None = None
    iterations: int = 50
    tolerance: float = 1e-3

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices, ``(m,)``."""
        scores = self.scores(X, m, kernel=kernel, generator=generator)
        return _sample(scores.clamp_min(0), m, generator, "probes")

    def scores(self, X: Batch, m: int, *, kernel: Kernel | None, generator: torch.Generator) -> Tensor:
        """Return the estimate ``ℓ̂`` before clipping, ``(n,)``, float64.

        Args:
            X: A batch of ``n`` samples.
            m: Number of landmarks that the default of ``ridge`` refers to.
            kernel: The kernel.
            generator: Draws the signs.

        Returns:
            The scores.
        """
        kernel = require_kernel(kernel, self.name)
        n = require_selectable(X, m)
        damping = _damping(squared_norms(kernel, X, self.budget), self.ridge, m)
        signs = torch.randint(2, (n, self.probes), generator=generator)
        P = (2 * signs - 1).to(kernel(batches.take(X, slice(0, 1)), batches.take(X, slice(0, 1))).dtype)
        Y, R, V = torch.zeros_like(P), P.clone(), P.clone()
        rho = R.square().sum(0)
        for _ in range(self.iterations):
            KV = gram_product(kernel, X, V, self.budget).add_(V, alpha=damping)
            alpha = rho / (V * KV).sum(0)
            Y += alpha * V
            R -= alpha * KV
            rho, before = R.square().sum(0), rho
            if float(rho.max()) <= self.tolerance**2 * n:
                break
            V = R + (rho / before) * V
        scores = (P * (P - damping * Y)).double().mean(1)
        require_finite(scores, "the leverage scores")
        return scores


def gram_product(kernel: Kernel, X: Batch, V: Tensor, budget: Budget) -> Tensor:
    """Return ``K V``, ``(n, s)``, in the pieces of a memory budget.

    Args:
        kernel: The kernel.
        X: A batch of ``n`` samples.
        V: ``(n, s)``, on the CPU.
        budget: The memory budget.

    Returns:
        The product, like ``V``.
    """
    product = torch.zeros_like(V)
    if isinstance(kernel, Linear):
        W = sum(flatten(x).T.cpu() @ V[piece] for piece, x in pieces_within(X, 0, budget))
        for piece, x in pieces_within(X, 0, budget):
            product[piece] = flatten(x).cpu() @ W
        return product
    side = math.isqrt(budget.rows(V.element_size(), what="a kernel value", share=1 / 4))
    for columns, y in batches.chunks(X, side):
        prepared = kernel.prepare(y)
        for rows, x in batches.chunks(X, side):
            product[rows] += kernel.rows(x, prepared).K.cpu() @ V[columns]
    return product


def _inverse_root(K: Tensor) -> Tensor:
    """Return ``W``, ``(D, r)``, with ``W Wᵀ`` the inverse of ``K`` on the directions that rounding leaves usable."""
    eigenvalues, U = top_eigenpairs(K.double(), rcond=32 * torch.finfo(K.dtype).eps)
    return (U / eigenvalues.sqrt()).to(K.dtype)


def _damping(squares: Tensor, ridge: float | None, m: int) -> float:
    """Return ``λ n`` for a ridge given as a share of the mean ``k(x, x)``."""
    share = 1 / m if ridge is None else ridge
    if not 0 < share < float("inf") or not bool(squares.any()):
        raise InvalidInputError(
            f"ridge={share:g} of a mean k(x, x) of {float(squares.mean()):g} is no ridge: both must be positive."
        )
    return share * float(squares.sum())


def _sample(scores: Tensor, m: int, generator: torch.Generator, knob: str) -> Tensor:
    """Draw ``m`` distinct samples in proportion to their scores."""
    positive = int((scores > 0).sum())
    if positive < m:
        raise InvalidInputError(
            f"only {positive} of {len(scores)} leverage scores are positive, and m={m} landmarks were asked for. "
            f"Ask for fewer, or raise '{knob}' for a better estimate."
        )
    return draw_distinct(scores, m, generator)
