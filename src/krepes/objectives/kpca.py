r"""Kernel PCA: reconstruct the features from ``h`` directions of the landmarks' span.

    L = E |φ_x - Φ_m A Aᵀ k_x|² + rho tr(Aᵀ K A)
      = E k(x, x) - 2 tr(Aᵀ M A) + tr(Aᵀ M A · Aᵀ K A) + rho tr(Aᵀ K A),      M = E k kᵀ.

The KREPES paper prints the coefficient -1 on the second term; the reconstruction error needs -2, without which the
loss is constant under ``Aᵀ K A = I``. There is no shift: the last row of theta is inert.
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
class KernelPCA(MomentObjective):
    """The kernel PCA reconstruction error from second moments.

    One view is enough; moments of several views are pooled, each view of a sample counting as a sample. Without
    ``Moments.trace`` the value lacks the constant ``E k(x, x)``: differences between two values stay exact.

    Attributes:
        rho: Weight of the RKHS norm ``tr(Aᵀ K A)``.
    """

    name: ClassVar[str] = "kpca"
    views: ClassVar[int] = 1
    needs_trace: ClassVar[bool] = True
    rho: float = 0.0

    def __post_init__(self) -> None:
        require_range(self.rho, "rho", low=0.0)

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        parts = _Parts.at(data, theta)
        error = (parts.G * parts.O.T).sum() - 2 * parts.G.trace() + self.rho * parts.O.trace()
        return error + (data.trace or 0.0)

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient at ``theta``, ``(q + 1, h)``; its last row is zero."""
        parts = _Parts.at(data, theta)
        return 2 * (parts.P @ parts.O + parts.Q @ parts.G) - 4 * parts.P + 2 * self.rho * parts.Q

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and the shared Cholesky preconditioner at ``theta``."""
        parts = _Parts.at(data, theta)
        M, K, P, Q, G, O = parts.M, parts.K, parts.P, parts.Q, parts.G, parts.O

        def product(V: Tensor) -> Tensor:
            return 2 * (K @ (V @ G + self.rho * V) + M @ (V @ O) + Q @ (V.T @ P) + P @ (V.T @ Q))

        diagonal = 2 * (
            K.diagonal()[:, None] * (G.diagonal() + self.rho) + M.diagonal()[:, None] * O.diagonal() + 2 * P * Q
        )
        B = 2 * O.diagonal().mean() * M + 2 * (G.diagonal().mean() + self.rho) * K
        return Linearisation(
            value=float(self.value(data, theta)),
            gradient=self.gradient(data, theta),
            H=LinearOperator(product, tuple(theta.shape), diagonal),
            preconditioner=shared_cholesky(B),
        )

    def closed_form(self, moments: Moments, h: int, *, rcond: float = 1e-10) -> Tensor:
        """Return the minimiser under ``Aᵀ K A = I``, where the gradient vanishes too: ``M v = μ K v``, top ``h``.

        Args:
            moments: Moments of the data.
            h: Number of components, at most the numerical rank of ``K``.
            rcond: Eigenvalues of ``K`` below ``rcond * λ_max`` count as zero.

        Returns:
            Theta, ``(q + 1, h)``, the shift zero.
        """
        A = constrained_maximiser(moments.pooled[:-1, :-1], moments.K, h, rcond=rcond)
        return torch.nn.functional.pad(A, (0, 0, 0, 1))


@dataclass(frozen=True)
class _Parts:
    """``M`` and ``K`` padded with a zero shift, ``P = M Θ``, ``Q = K Θ``, ``G = Θᵀ P``, ``O = Θᵀ Q``."""

    M: Tensor
    K: Tensor
    P: Tensor
    Q: Tensor
    G: Tensor
    O: Tensor

    @classmethod
    def at(cls, moments: Moments, theta: Tensor) -> _Parts:
        M = torch.nn.functional.pad(moments.pooled[:-1, :-1], (0, 1, 0, 1))
        K = moments.K0
        P, Q = M @ theta, K @ theta
        return cls(M=M, K=K, P=P, Q=Q, G=theta.T @ P, O=theta.T @ Q)
