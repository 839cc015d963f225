r"""Kernel autoencoder with a linear decoder that is eliminated: the best decoder for every ``Θ``.

    L = min_B E |x - Bᵀ z|² + l2 |B|² + rho tr(Aᵀ K A)
      = E |x|² - <Θᵀ M_KX, B> + rho tr(Aᵀ K A),      B = (Θᵀ M Θ + l2 I)⁻¹ Θᵀ M_KX,   M_KX = E k̄ xᵀ.

Variable projection (Golub and Pereyra): at the best ``B`` the gradient in ``Θ`` needs no derivative of ``B``, and the
full Gauss-Newton matrix is a sum of two Kronecker products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.engine.moments import Moments
from krepes.errors import InvalidInputError
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import shared_cholesky
from krepes.objectives.base import Linearisation, MomentObjective


@dataclass(frozen=True)
class KernelAutoencoder(MomentObjective):
    """The kernel autoencoder from second moments; the shift takes part in it.

    One view is enough; moments of several views are pooled, each view of a sample reconstructing itself.

    Attributes:
        l2: Ridge of the decoder, positive.
        rho: Weight of the RKHS norm ``tr(Aᵀ K A)``.
    """

    name: ClassVar[str] = "kae"
    views: ClassVar[int] = 1
    needs_inputs: ClassVar[bool] = True
    l2: float = 1e-3
    rho: float = 0.0

    def __post_init__(self) -> None:
        require_range(self.l2, "l2", low=torch.finfo(torch.float64).tiny)
        require_range(self.rho, "rho", low=0.0)

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        parts = self._parts(data, theta)
        explained = (theta * (parts.KX @ parts.B.T)).sum()
        return self.rho * (theta * (data.K0 @ theta)).sum() - explained + (data.XX or 0.0)

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient at ``theta``, ``(q + 1, h)``."""
        parts = self._parts(data, theta)
        return 2 * self.rho * (data.K0 @ theta) - 2 * parts.E @ parts.B.T

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and the shared Cholesky preconditioner at ``theta``."""
        parts = self._parts(data, theta)
        Gi = torch.linalg.inv(parts.Gh)
        schur = parts.M - parts.P @ Gi @ parts.P.T
        BB, EE, K0 = parts.B @ parts.B.T, parts.E @ parts.E.T, data.K0

        def product(V: Tensor) -> Tensor:
            return 2 * (schur @ (V @ BB) + parts.E @ (parts.E.T @ (V @ Gi)) + self.rho * (K0 @ V))

        diagonal = 2 * (
            schur.diagonal()[:, None] * BB.diagonal()
            + EE.diagonal()[:, None] * Gi.diagonal()
            + self.rho * K0.diagonal()[:, None]
        )
        shared = 2 * (BB.diagonal().mean() * schur + Gi.diagonal().mean() * EE + self.rho * K0)
        return Linearisation(
            value=float(self.value(data, theta)),
            gradient=self.gradient(data, theta),
            H=LinearOperator(product, tuple(theta.shape), diagonal),
            preconditioner=shared_cholesky(shared),
        )

    def decoder(self, moments: Moments, theta: Tensor) -> Tensor:
        """Return ``B``, ``(h, d)``: ``z @ B`` is the reconstruction of the flattened input."""
        return self._parts(moments, theta).B

    def _parts(self, moments: Moments, theta: Tensor) -> _Parts:
        if moments.KX is None:
            raise InvalidInputError(
                "the kernel autoencoder needs the cross moments E[k̄ xᵀ] with the inputs, and these moments were "
                "collected without them. Collect with inputs=True."
            )
        M, KX = moments.pooled, moments.KX
        P = M @ theta
        Gh = theta.T @ P + self.l2 * torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)
        B = torch.linalg.solve(Gh, theta.T @ KX)
        return _Parts(M=M, KX=KX, P=P, Gh=Gh, B=B, E=KX - P @ B)


@dataclass(frozen=True)
class _Parts:
    """``P = M Θ``, ``Gh = Θᵀ P + l2 I``, the decoder ``B`` ``(h, d)`` and ``E = E[k̄ (x - Bᵀz)ᵀ]`` ``(q + 1, d)``."""

    M: Tensor
    KX: Tensor
    P: Tensor
    Gh: Tensor
    B: Tensor
    E: Tensor
