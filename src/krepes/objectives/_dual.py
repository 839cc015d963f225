r"""Barlow Twins' damped curvature, inverted through the ``h²`` residuals instead of the ``(q + 1) h`` unknowns.

    (2 JᵀJ + damping·I)⁻¹ r = ( r - Jᵀ (J Jᵀ + ½ damping·I)⁻¹ J r ) / damping

``J Jᵀ`` acts on ``h x h`` matrices through the Gram matrix of ``[X Y P R]`` in O(h³), whatever ``q``. Up to
`DENSE` dimensions it is decomposed once, which serves every damping; beyond, conjugate gradients invert it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from krepes.linalg import LinearOperator
from krepes.objectives._correlation import Correlation

# The eigendecomposition costs O(h⁶), 64 times more at twice the h; conjugate gradients cost O(h³) an iteration.
DENSE = 32
# Dividing by a small damping magnifies what the inner solve left over, so the outer residual is refined.
INNER_TOLERANCE, OUTER_TOLERANCE, ROUNDS = 1e-9, 1e-12, 4
ITERATIONS = 5000


class DualSolve:
    """``(r, damping) -> (H + damping·I)⁻¹ r`` for ``H = 2 JᵀJ``, ``J`` the derivative of ``W o C``."""

    def __init__(self, H: LinearOperator, C: Correlation, W: Tensor) -> None:
        self.H, self.C, self.W = H, C, W
        stack = torch.cat([C.X, C.Y, C.P, C.R], dim=1)
        self._gram = stack.T @ stack  # (4h, 4h)

    def __call__(self, r: Tensor, damping: float) -> Tensor:
        """Return the solution ``(q + 1, h)`` for the right-hand side ``r`` ``(q + 1, h)``."""
        x, left = torch.zeros_like(r), r
        for _ in range(ROUNDS):
            w = self._inverse(self.W * self.C.jvp(left), damping / 2)
            x = x + (left - self.C.vjp(self.W * w)) / damping
            left = r - (self.H @ x) - damping * x
            if float(left.norm()) <= OUTER_TOLERANCE * float(r.norm()):
                break
        return x

    def product(self, U: Tensor) -> Tensor:
        """Return ``J Jᵀ U``, ``(h, h)``, for ``U`` ``(h, h)``."""
        h = len(self.W)
        G = self._gram.unflatten(0, (4, h)).unflatten(2, (4, h))
        F, e, f = self.C.split(self.W * U)
        # V = X Fᵀ + Y F - P diag(e) - R diag(f): XᵀV and YᵀV are needed whole, of PᵀV and RᵀV only the diagonals.
        XV, YV = (G[k, :, 0] @ F.T + G[k, :, 1] @ F - G[k, :, 2] * e - G[k, :, 3] * f for k in (0, 1))
        PV, RV = (
            (G[k, :, 0] * F).sum(1) + (G[k, :, 1] * F.T).sum(1) - G[k, :, 2].diagonal() * e - G[k, :, 3].diagonal() * f
            for k in (2, 3)
        )
        return self.W * self.C.combine(XV.T + YV, PV, RV)

    def _inverse(self, y: Tensor, ridge: float) -> Tensor:
        if len(self.W) > DENSE:
            return _conjugate_gradients(lambda U: self.product(U) + ridge * U, y)
        s, E = self._spectrum
        return (E @ ((E.T @ y.reshape(-1)) / (s + ridge))).reshape(y.shape)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenpairs of ``J Jᵀ``, ``(h²,)`` and ``(h², h²)``."""
        h = len(self.W)
        eye = torch.eye(h * h, dtype=self.W.dtype, device=self.W.device)
        JJt = torch.vmap(self.product)(eye.reshape(-1, h, h)).reshape(h * h, h * h)
        s, E = torch.linalg.eigh((JJt + JJt.T) / 2)
        return s.clamp_min(0), E


def _conjugate_gradients(product: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """Plain conjugate gradients: the diagonal preconditioner was measured to need up to three times the iterations."""
    x, r, p = torch.zeros_like(y), y, y
    square = r.square().sum()
    stop = INNER_TOLERANCE**2 * square
    for _ in range(ITERATIONS):
        if square <= stop:
            break
        Ap = product(p)
        step = square / (p * Ap).sum()
        x, r = x + step * p, r - step * Ap
        previous, square = square, r.square().sum()
        p = r + (square / previous) * p
    return x
