r"""Quadratic forms of rows as sums of few squares, in the directions in which the rows do vary.

A row is scored by ``x̄ᵀ G x̄ - <G, M>`` for each outcome, with ``M = E x̄ x̄ᵀ``. With ``c = x̄ - μ`` of covariance ``C Cᵀ``,

    score = cᵀ S c - <S, C Cᵀ> + 2 (S μ)ᵀ c,      S = (G + Gᵀ) / 2,      S' = Cᵀ S C,

and for ``c = C w`` with ``E w wᵀ = I`` the score varies by ``|2 Cᵀ S μ|² + 2 |S'|²`` (exactly so for normal ``w``). All
outcomes share one basis of ``w``, and each keeps few squares in it: what is left out is at most `LEFT_OUT` of that.
Written out, ``O`` outcomes of ``D`` numbers would take ``O D²`` multiply-adds for every row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from krepes.engine.moments import Moments

LEFT_OUT = 1e-3
"""Root mean square of what a score may lose, as a part of the outcome's own spread over rows."""
EXACT_WORK = 2**21
"""Multiply-adds for a row up to which forms are written out, in float64."""
NO_SPREAD = 1e-12
"""Directions with less than this part of the largest variance are those of rounding."""
TINY = 1e-300


@dataclass(frozen=True)
class Squares:
    """Some outcomes' forms: ``score_o = Σ_k s_ok ((c B F_o)_k² - 1) + c L_o``.

    Attributes:
        mean: ``μ``, ``(D,)``.
        basis: ``B``, ``(D, k)``, in which rows have unit variance.
        factors: ``F_o``, ``(k, κ_o)`` each, orthonormal.
        signs: ``s_o``, ``(κ_o,)`` each.
        linear: ``L``, ``(D, O)``.
        left_out: The most that any outcome loses, as a part of its spread.
    """

    mean: Tensor = field(repr=False)
    basis: Tensor = field(repr=False)
    factors: tuple[Tensor, ...] = field(repr=False)
    signs: tuple[Tensor, ...] = field(repr=False)
    linear: Tensor = field(repr=False)
    left_out: float

    @property
    def work(self) -> int:
        """Multiply-adds for a row."""
        return self.basis.numel() + self.linear.numel() + sum(F.numel() for F in self.factors)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the scores ``(b, O)``, float64, of rows ``(p, b, Q)``."""
        c = rows.transpose(0, 1).flatten(1).to(self.mean) - self.mean
        Y = c @ self.basis
        squares = [(Y @ F).square() @ s - s.sum() for F, s in zip(self.factors, self.signs, strict=True)]
        return (torch.stack(squares, dim=1) + c @ self.linear).double()


def few_squares(G: Tensor, moments: Moments, *, dtype: torch.dtype, tol: float = LEFT_OUT) -> Squares:
    """Return the forms of some outcomes as sums of few squares.

    Args:
        G: ``∂o/∂M``, ``(O, p, p, Q, Q)``.
        moments: ``M``, at which it was taken.
        dtype: In which rows are scored.
        tol: What a score may lose, as a part of its outcome's spread.

    Returns:
        The forms.
    """
    M = side_by_side(moments.M)
    mu = M[:, moments.M.shape[2] - 1]  # the constant of the first view
    e, U = torch.linalg.eigh(M - torch.outer(mu, mu))
    seen = e > NO_SPREAD * e[-1]
    e, U = e[seen], U[:, seen]
    C = U * e.sqrt()
    linear, forms, spread = [], [], []
    for g in G:
        S = side_by_side(g)
        S = (S + S.T) / 2
        linear.append(2 * (S @ mu))
        forms.append(C.T @ S @ C)
        spread.append((C.T @ linear[-1]).square().sum() + 2 * forms[-1].square().sum())
    shared = torch.zeros_like(forms[0])
    for S, size in zip(forms, spread, strict=True):
        shared.addmm_(S, S / size.clamp_min(TINY))
    V = torch.linalg.eigh(shared)[1].flip(1)
    forms = [V.T @ S @ V for S in forms]
    allowed = [tol**2 / 2 * size for size in spread]
    k = max(_leading(S, most) for S, most in zip(forms, allowed, strict=True))
    kept = [_squares(S[:k, :k], most) for S, most in zip(forms, allowed, strict=True)]
    lost = [
        2 * (S.square().sum() - s.square().sum()).clamp_min(0) / size.clamp_min(TINY)
        for S, (_, s), size in zip(forms, kept, spread, strict=True)
    ]
    return Squares(
        mu.to(dtype),
        ((U * e.rsqrt()) @ V[:, :k]).to(dtype),
        tuple(F.to(dtype) for F, _ in kept),
        tuple(s.to(dtype) for _, s in kept),
        torch.stack(linear, dim=1).to(dtype),
        float(torch.stack(lost).max().sqrt()),
    )


def side_by_side(blocks: Tensor) -> Tensor:
    """Return blocks ``(p, p, Q, Q)`` as one matrix ``(p Q, p Q)``."""
    return blocks.transpose(1, 2).flatten(2).flatten(0, 1)


def _leading(S: Tensor, most: Tensor) -> int:
    """Return how many leading directions leave at most ``most / 2`` of the squares of ``S`` ``(D, D)`` outside."""
    squares = S.square()
    inside = (2 * squares.tril(-1).sum(1) + squares.diagonal()).cumsum(0)
    return 1 + int((2 * (inside[-1] - inside) > most).sum())


def _squares(S: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvectors ``(k, κ)`` and eigenvalues ``(κ,)`` of ``S`` without the smallest, ``most / 2`` of it."""
    values, vectors = torch.linalg.eigh(S)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    rest = values.square().flip(0).cumsum(0).flip(0)
    count = int((2 * rest > most).sum())
    return vectors[:, :count], values[:count]
