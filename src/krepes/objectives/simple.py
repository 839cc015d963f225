r"""Simple contrastive loss: closer to one's own other view than to anyone else's.

    L = (1/n) Σ_i z_i·(z_i⁻ - z_i⁺) + rho tr(Aᵀ K A) + pen |Aᵀ K A - I|²

(Esser et al. 2024, with the hard constraint ``Aᵀ K A = I`` softened). The first term is ``-tr(Θᵀ S Θ)``, indefinite,
so the curvature keeps the convex part of ``½|z - z⁺|² + ½|z + z⁻|² - (|z|² + ½|z⁺|² + ½|z⁻|²)``, with second moment
``N``, and takes the rest to first order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.engine.init import constrained_maximiser
from krepes.engine.moments import Moments
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import shared_cholesky
from krepes.objectives.base import Linearisation, MomentObjective


@dataclass(frozen=True)
class SimpleContrastive(MomentObjective):
    """The simple contrastive loss from second moments.

    Of two views (x, x⁺) the negative is drawn from the second views of all samples, in expectation: deterministic, and
    free of the shift. Of three views (x, x⁺, x⁻) the third is the negative.

    Attributes:
        rho: Weight of the RKHS norm ``tr(Aᵀ K A)``; the loss is bounded below only where it (or ``pen``) outweighs the
            covariance of the views.
        pen: Weight of the soft orthogonality ``|Aᵀ K A - I|²``; at zero one Cholesky factorisation solves the step.
    """

    name: ClassVar[str] = "simple"
    rho: float = 1e-2
    pen: float = 0.0

    def __post_init__(self) -> None:
        require_range(self.rho, "rho", low=0.0)
        require_range(self.pen, "pen", low=0.0)

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        Q = data.K0 @ theta
        O = theta.T @ Q
        return (
            self.rho * O.trace() - (theta * (_contrast(data) @ theta)).sum() + self.pen * (O - _eye(O)).square().sum()
        )

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient at ``theta``, ``(q + 1, h)``."""
        Q = data.K0 @ theta
        S = _contrast(data)
        O = theta.T @ Q
        return 2 * self.rho * Q - (S @ theta + S.T @ theta) + 4 * self.pen * Q @ (O - _eye(O))

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and its direct solve (``pen = 0``) or preconditioner at ``theta``."""
        N = _convex_part(data) + 2 * self.rho * data.K0
        Q = data.K0 @ theta

        def product(V: Tensor) -> Tensor:
            return N @ V + 4 * self.pen * Q @ (V.T @ Q + Q.T @ V)

        diagonal = N.diagonal()[:, None] + 4 * self.pen * (Q.square().sum(1, keepdim=True) + Q.square())
        inverse = shared_cholesky(N + 4 * self.pen * Q @ Q.T)
        return Linearisation(
            value=float(self.value(data, theta)),
            gradient=self.gradient(data, theta),
            H=LinearOperator(product, tuple(theta.shape), diagonal),
            preconditioner=inverse,
            solve=(lambda r, damping, tol: inverse(damping)(r)) if self.pen == 0 else None,
        )

    def closed_form(self, moments: Moments, h: int, *, rcond: float = 1e-10) -> Tensor:
        """Return the minimiser under the hard constraint ``Aᵀ K A = I``: ``½ (S + Sᵀ) v = μ K v``, top ``h``.

        Args:
            moments: Moments of two or three views.
            h: Number of columns, at most the numerical rank of ``K``.
            rcond: Eigenvalues of ``K`` below ``rcond * λ_max`` count as zero.

        Returns:
            Theta, ``(q + 1, h)``, the shift zero.
        """
        S = _contrast(moments)[:-1, :-1]
        A = constrained_maximiser((S + S.T) / 2, moments.K, h, rcond=rcond)
        return torch.nn.functional.pad(A, (0, 0, 0, 1))


def _contrast(moments: Moments) -> Tensor:
    """``S = E k̄ (k̄⁺ - k̄⁻)ᵀ``, ``(q + 1, q + 1)``; with the negative in expectation the covariance of the views."""
    return moments.M[0, 1] - moments.M[0, 2] if moments.p == 3 else moments.pair(centre=True)[2]


def _convex_part(moments: Moments) -> Tensor:
    """``N``, ``(q + 1, q + 1)``: second moment of ``k̄ - k̄⁺`` and of ``k̄ + k̄⁻``."""
    if moments.p == 3:
        M = moments.M
        return 2 * M[0, 0] + M[1, 1] + M[2, 2] - M[0, 1] - M[1, 0] + M[0, 2] + M[2, 0]
    # The loss does not see the means, so its convex part is taken about them; k̄ and k̄⁻ are then uncorrelated.
    C_AA, C_BB, C_AB = moments.pair(centre=True)
    return 2 * (C_AA + C_BB) - C_AB - C_AB.T


def _eye(O: Tensor) -> Tensor:
    return torch.eye(O.shape[0], dtype=O.dtype, device=O.device)
