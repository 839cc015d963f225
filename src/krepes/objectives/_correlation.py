r"""The cross-correlation of two views and its derivative in ``Θ``, from four products with the moments.

C = D_a⁻¹ (Θᵀ M_AB Θ) D_b⁻¹,     dC = D_a⁻¹ (Vᵀ X + Yᵀ V) D_b⁻¹ - diag(α) C - C diag(β),
α_i = V_i·P_i / a_i²,   β_j = V_j·R_j / b_j².
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.errors import InvalidInputError


@dataclass(frozen=True)
class Correlation:
    """The cross-correlation ``C`` at ``Θ`` and its derivative, from four products with the moments.

    Attributes:
        P: ``M_AA Θ``, ``(q + 1, h)``.
        R: ``M_BB Θ``, ``(q + 1, h)``.
        X: ``M_AB Θ``, ``(q + 1, h)``.
        Y: ``M_ABᵀ Θ``, ``(q + 1, h)``.
        a: Standard deviations in view A, ``(h,)``.
        b: Standard deviations in view B, ``(h,)``.
        C: ``(h, h)``.
    """

    P: Tensor
    R: Tensor
    X: Tensor
    Y: Tensor
    a: Tensor
    b: Tensor
    C: Tensor

    def require_spread(self) -> None:
        """Raise `InvalidInputError` if an embedding dimension is constant: its correlation is not defined."""
        flat = ~((self.a > 0) & (self.b > 0))
        if bool(flat.any()):
            raise InvalidInputError(
                f"{int(flat.sum())} of {len(flat)} embedding dimensions do not vary over the data (the first is "
                f"{int(flat.nonzero()[0])}), so their correlation is not defined. Lower h, or set eps > 0."
            )

    def jvp(self, V: Tensor) -> Tensor:
        """Return ``dC``, ``(h, h)``, for a change ``V`` ``(q + 1, h)`` of theta."""
        return self.combine(V.T @ self.X + self.Y.T @ V, (V * self.P).sum(0), (V * self.R).sum(0))

    def vjp(self, E: Tensor) -> Tensor:
        """Return the adjoint of `jvp` at the cotangent ``E`` ``(h, h)``, ``(q + 1, h)``."""
        F, e, f = self.split(E)
        return self.X @ F.T + self.Y @ F - self.P * e - self.R * f

    def combine(self, cross: Tensor, along_a: Tensor, along_b: Tensor) -> Tensor:
        """Return ``dC`` from ``VᵀX + YᵀV`` ``(h, h)``, ``diag(VᵀP)`` and ``diag(VᵀR)`` ``(h,)``."""
        alpha, beta = along_a / self.a.square(), along_b / self.b.square()
        return cross / torch.outer(self.a, self.b) - alpha[:, None] * self.C - self.C * beta

    def split(self, E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``F = D_a⁻¹ E D_b⁻¹`` and the column weights of ``P`` and ``R`` in ``vjp(E)``."""
        EC = E * self.C
        return E / torch.outer(self.a, self.b), EC.sum(1) / self.a.square(), EC.sum(0) / self.b.square()

    def diagonal(self, W2: Tensor) -> Tensor:
        """Return the exact diagonal of ``H = 2 JᵀJ`` for the squared weights ``W2`` ``(h, h)``, ``(q + 1, h)``."""
        a, b, C = self.a, self.b, self.C
        off = W2 - torch.diag(W2.diagonal())
        Xt, Yt, P, R = self.X / b, self.Y / a, self.P / a.square(), self.R / b.square()
        t = Xt.square() @ off.T / a.square() - 2 * P * (Xt @ (off * C).T) / a + P.square() * (off * C.square()).sum(1)
        u = Yt.square() @ off / b.square() - 2 * R * (Yt @ (off * C)) / b + R.square() * (off * C.square()).sum(0)
        v = (self.X + self.Y) / (a * b) - C.diagonal() * (P + R)
        return 2 * (t + u + W2.diagonal() * v.square())
