r"""Barlow Twins: the cross-correlation of the two views should be the identity.

    L = Σ_ij W²_ij (C - I)²_ij,      C = D_a⁻¹ (Θᵀ M_AB Θ) D_b⁻¹,      W²_ii = 1,  W²_ij = lam,

with ``a² = diag(Θᵀ M_AA Θ) + eps`` and ``b²`` likewise (Zbontar et al. 2021). The residual ``W o (C - I)`` has ``h²``
entries whatever ``q``, so ``H = 2 JᵀJ`` has rank at most ``h²`` and is inverted through ``J Jᵀ``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.engine.moments import Moments
from krepes.linalg import LinearOperator
from krepes.objectives._correlation import Correlation
from krepes.objectives._dual import DualSolve
from krepes.objectives._inverses import low_rank
from krepes.objectives.base import Linearisation, MomentObjective


@dataclass(frozen=True)
class BarlowTwins(MomentObjective):
    """Barlow Twins from second moments.

    Attributes:
        lam: Weight of the off-diagonal correlations.
        centre: Subtract the means, as the original does by batch normalisation; the shift then drops out.
            ``False`` is the uncentred correlation of the KREPES paper, where the shift matters.
        eps: Added to the variances. Zero by default: the scale of a kernel embedding is arbitrary, and batch
            normalisation's 1e-5 would drown the small components of the principal component start.
    """

    name: ClassVar[str] = "barlow_twins"
    lam: float = 0.0051
    centre: bool = True
    eps: float = 0.0

    def __post_init__(self) -> None:
        require_range(self.lam, "lam", low=0.0)
        require_range(self.eps, "eps", low=0.0)

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        M_AA, M_BB, M_AB = data.pair(centre=self.centre)
        a, b = (((theta * (M @ theta)).sum(0) + self.eps).sqrt() for M in (M_AA, M_BB))
        C = theta.T @ (M_AB @ theta) / torch.outer(a, b)
        return (_weights(C, self.lam) * (C - _eye(C)).square()).sum()

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return ``Jᵀ`` of ``2 W² o (C - I)``, ``(q + 1, h)``."""
        parts = self._correlation(data, theta)
        return parts.vjp(2 * _weights(parts.C, self.lam) * (parts.C - _eye(parts.C)))

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature, low-rank preconditioner and dual solve at ``theta``."""
        parts = self._correlation(data, theta)
        parts.require_spread()
        W2 = _weights(parts.C, self.lam)
        residual = parts.C - _eye(parts.C)
        H = LinearOperator(
            matvec=lambda V: parts.vjp(2 * W2 * parts.jvp(V)),
            shape=tuple(theta.shape),
            diagonal=parts.diagonal(W2),
        )
        B = (2 * self.lam) ** 0.5 * torch.cat([parts.X / parts.b, parts.Y / parts.a], dim=1)
        return Linearisation(
            value=float((W2 * residual.square()).sum()),
            gradient=parts.vjp(2 * W2 * residual),
            H=H,
            preconditioner=low_rank(B, 2 / (parts.a.square() + parts.b.square())),
            solve=DualSolve(H, parts, W2.sqrt(), data.budget),
        )

    def _correlation(self, moments: Moments, theta: Tensor) -> Correlation:
        M_AA, M_BB, M_AB = moments.pair(centre=self.centre)
        P, R, X, Y = M_AA @ theta, M_BB @ theta, M_AB @ theta, M_AB.T @ theta
        a = ((theta * P).sum(0) + self.eps).sqrt()
        b = ((theta * R).sum(0) + self.eps).sqrt()
        return Correlation(P=P, R=R, X=X, Y=Y, a=a, b=b, C=theta.T @ X / torch.outer(a, b))


def _weights(C: Tensor, lam: float) -> Tensor:
    return lam + (1 - lam) * _eye(C)


def _eye(C: Tensor) -> Tensor:
    return torch.eye(C.shape[0], dtype=C.dtype, device=C.device)
