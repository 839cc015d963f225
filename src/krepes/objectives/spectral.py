r"""Spectral contrastive loss over all pairs: positives align, everything else is orthogonal in the mean square.

    L = -(2/n) Σ_i z_Aᵢ·z_Bᵢ + (1/n²) Σ_ij (z_Aᵢ·z_Bⱼ)² + rho tr(Aᵀ K A)
      = |Z_A Z_Bᵀ/n - I_n|² - n + rho tr(Aᵀ K A)

(HaoChen et al. 2021; Esser et al. 2024). The second line is a sum of squares over n² pairs that is never formed:
``L = -<Θ, (M_AB + M_BA) Θ> + <Θᵀ M_AA Θ, Θᵀ M_BB Θ> + rho ...``. Averaging the explicit triplets of Esser et al. over
uniformly drawn negatives gives exactly this loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from krepes._checks import require_range
from krepes.engine.moments import Moments
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import kronecker
from krepes.objectives.base import Linearisation, MomentObjective


@dataclass(frozen=True)
class SpectralContrastive(MomentObjective):
    """The spectral contrastive loss from second moments; the shift takes part in it.

    Attributes:
        rho: Weight of the RKHS norm ``tr(Aᵀ K A)``.
        pooled: Treat the 2n views as vertices of one graph, as in HaoChen's matrix factorisation: negatives are then
            drawn from both views on both sides.
    """

    name: ClassVar[str] = "spectral"
    rho: float = 0.0
    pooled: bool = False

    def __post_init__(self) -> None:
        require_range(self.rho, "rho", low=0.0)

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        parts = self._parts(data, theta)
        return -(theta * parts.Xs).sum() + (parts.G_A * parts.G_B).sum() + self.rho * (theta * parts.Q).sum()

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient at ``theta``, ``(q + 1, h)``."""
        parts = self._parts(data, theta)
        return -2 * parts.Xs + 2 * (parts.P @ parts.G_B + parts.R @ parts.G_A) + 2 * self.rho * parts.Q

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and the Kronecker preconditioner at ``theta``."""
        parts = self._parts(data, theta)
        M_AA, M_BB, P, R, G_A, G_B = parts.M_AA, parts.M_BB, parts.P, parts.R, parts.G_A, parts.G_B
        K0 = data.K0

        def product(V: Tensor) -> Tensor:
            outer = M_AA @ (V @ G_B) + M_BB @ (V @ G_A)
            return 2 * (outer + R @ (V.T @ P) + P @ (V.T @ R)) + 2 * self.rho * (K0 @ V)

        diagonal = 2 * (
            M_AA.diagonal()[:, None] * G_B.diagonal()
            + M_BB.diagonal()[:, None] * G_A.diagonal()
            + 2 * P * R
            + self.rho * K0.diagonal()[:, None]
        )
        return Linearisation(
            value=float(self.value(data, theta)),
            gradient=self.gradient(data, theta),
            H=LinearOperator(product, tuple(theta.shape), diagonal),
            preconditioner=kronecker(M_AA + M_BB, G_A + G_B),
        )

    def _parts(self, moments: Moments, theta: Tensor) -> _Parts:
        M_AA, M_BB, M_AB = moments.pair()
        if self.pooled:
            M_AA = M_BB = moments.pooled
        P, R = M_AA @ theta, M_BB @ theta
        return _Parts(
            M_AA=M_AA,
            M_BB=M_BB,
            P=P,
            R=R,
            G_A=theta.T @ P,
            G_B=theta.T @ R,
            Xs=M_AB @ theta + M_AB.T @ theta,
            Q=moments.K0 @ theta,
        )


@dataclass(frozen=True)
class _Parts:
    """Products of the moments with theta, named as in the module's equation."""

    M_AA: Tensor
    M_BB: Tensor
    P: Tensor
    R: Tensor
    G_A: Tensor
    G_B: Tensor
    Xs: Tensor
    Q: Tensor
