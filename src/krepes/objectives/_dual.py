r"""Barlow Twins' damped curvature, inverted through the ``h²`` residuals instead of the ``(q + 1) h`` unknowns.

    (2 JᵀJ + damping·I)⁻¹ r = ( r - Jᵀ (J Jᵀ + ½ damping·I)⁻¹ J r ) / damping

``J Jᵀ`` acts on ``h x h`` matrices through the Gram matrix of ``[X Y P R]`` in O(h³), whatever ``q``. Up to
`DENSE` dimensions it is decomposed once, which serves every damping. Beyond, one Krylov space of the first right-hand
side serves every damping (`krylov`), and conjugate gradients whatever else is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.linalg import LinearOperator, safe_cholesky
from krepes.objectives._correlation import Correlation
from krepes.objectives.base import Product
from krepes.objectives.krylov import Krylov

# The eigendecomposition costs O(h⁶), 64 times more at twice the h; conjugate gradients cost O(h³) per iteration.
DENSE = 32
# Dividing by a small damping magnifies what the inner solve left over: the outer residual is refined, by inner solves
# that are as coarse as still makes it fall to a tenth.
COARSE, FINE, ROUNDS = 1e-4, 1e-14, 16
# Where so many do not suffice, the caller goes on with the preconditioned curvature itself.
ITERATIONS = 500
POWER = 5


@dataclass(frozen=True)
class _Fixed:
    """What a product of ``J Jᵀ`` needs of the Gram matrix, with the weights and deviations multiplied in.

    Attributes:
        scaled: ``W / (a bᵀ)``, ``(h, h)``.
        WC: ``W o C``, ``(h, h)``.
        crosses: Products among ``X`` and ``Y``, ``(2h, 2h)``.
        columns: Those of ``X`` and of ``Y`` with ``P`` and ``R``, as they meet the column weights.
        diagonals: What the diagonals of ``PᵀV`` and ``RᵀV`` take of ``F``, of its transpose and of the two weights.
    """

    scaled: Tensor
    WC: Tensor
    crosses: Tensor
    columns: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
    diagonals: list[tuple[Tensor, Tensor, Tensor, Tensor]]


class DualSolve:
    """``(r, damping, tol) -> (H + damping·I)⁻¹ r`` for ``H = 2 JᵀJ``, ``J`` the derivative of ``W o C``.

    Of its Krylov vectors an eighth of ``budget`` is held in memory.
    """

    def __init__(self, H: LinearOperator, C: Correlation, W: Tensor, budget: Budget = DEFAULT_BUDGET) -> None:
        self.H, self.C, self.W, self.budget = H, C, W, budget
        stack = torch.cat([C.X, C.Y, C.P, C.R], dim=1)
        self._gram = stack.T @ stack  # (4h, 4h)
        self._first: tuple[Tensor, Krylov] | None = None

    def __call__(self, r: Tensor, damping: float, tol: float = 1e-12) -> Tensor:
        """Return the solution ``(q + 1, h)`` for ``r`` ``(q + 1, h)``, to a residual of ``tol`` relative to ``|r|``."""
        x, left, inner = torch.zeros_like(r), r, COARSE
        goal, size = tol * float(r.norm()), float(r.norm())
        for round in range(ROUNDS):
            found = None if round else self._shared(r, damping, goal)
            w, reached = found or self._inverse(self.W * self.C.jvp(left), damping / 2, inner)
            better = x + (left - self.C.vjp(self.W * w)) / damping
            remainder = r - (self.H @ better) - damping * better
            before, after = size, float(remainder.norm())
            if not after >= before:  # so that what is not finite is returned, and refused where damping is named
                x, left, size = better, remainder, after
            if not size > goal or inner < FINE or not reached:  # a finer inner solve would not be reached either
                break
            if after > before / 10:
                inner = inner / 100
        return x

    def _shared(self, r: Tensor, damping: float, goal: float) -> tuple[Tensor, bool] | None:
        """Return ``(J Jᵀ + ½ damping·I)⁻¹ J r`` from the space that all dampings share, for the first ``r`` asked.

        Beside it stands whether the space was large enough. What it leaves over, ``ρ``, leaves ``2 Jᵀρ / damping`` of
        the whole system, which is to be below ``goal``.
        """
        if len(self.W) <= DENSE:
            return None
        if self._first is None:
            self._first = r, Krylov(self.product, self.W * self.C.jvp(r), self.budget.bytes // 8)
        space = self._first[1]
        if not torch.equal(self._first[0], r):
            return None
        left = goal * damping / (2 * self._length * max(space.size, torch.finfo(r.dtype).tiny))
        found = space.solve(damping / 2, min(COARSE, max(left, FINE)))
        return found.x, found.reached

    @cached_property
    def _length(self) -> float:
        """An upper estimate of ``|J|``, by a few steps of the power method on ``J Jᵀ``."""
        U, size = torch.eye(len(self.W), dtype=self.W.dtype, device=self.W.device), 1.0
        for _ in range(POWER):
            U = self.product(U / U.norm())
            size = float(U.norm())
        return 2 * size**0.5

    def product(self, U: Tensor) -> Tensor:
        """Return ``J Jᵀ U``, ``(h, h)``, for ``U`` ``(h, h)``."""
        h, fixed = len(self.W), self._fixed
        F, EC = U * fixed.scaled, U * fixed.WC
        e, f = EC.sum(1) / self.C.a.square(), EC.sum(0) / self.C.b.square()
        # V = X Fᵀ + Y F - P diag(e) - R diag(f): XᵀV and YᵀV are needed whole, of PᵀV and RᵀV only the diagonals.
        V = fixed.crosses @ torch.cat([F.T, F])
        alpha, beta = (
            (own * F).sum(1) + (other * F.T).sum(1) - along * e - beside * f
            for own, other, along, beside in fixed.diagonals
        )
        out = fixed.scaled * (V[:h].T + V[h:]) - fixed.WC * beta - alpha[:, None] * fixed.WC
        (XP, XR), (YP, YR) = fixed.columns
        return out - e[:, None] * XP - f[:, None] * XR - YP * e - YR * f

    @cached_property
    def _fixed(self) -> _Fixed:
        h = len(self.W)
        G = self._gram.unflatten(0, (4, h)).unflatten(2, (4, h))
        scaled = self.W / torch.outer(self.C.a, self.C.b)
        squares = (self.C.a.square(), self.C.b.square())
        return _Fixed(
            scaled=scaled,
            WC=self.W * self.C.C,
            crosses=self._gram[: 2 * h, : 2 * h].contiguous(),
            columns=((scaled * G[0, :, 2].T, scaled * G[0, :, 3].T), (scaled * G[1, :, 2], scaled * G[1, :, 3])),
            diagonals=[
                (
                    G[k, :, 0] / square[:, None],
                    G[k, :, 1] / square[:, None],
                    G[k, :, 2].diagonal() / square,
                    G[k, :, 3].diagonal() / square,
                )
                for k, square in zip((2, 3), squares, strict=True)
            ],
        )

    def near(self, damping: float, *, once: bool = False) -> Product:
        """Return the inverse without refinement, to guide iterations: of this problem, or of one that is near it.

        Args:
            damping: Absolute.
            once: Factorise for this damping alone, which is ten times quicker than the spectrum that serves all.

        Returns:
            ``r -> (H + damping·I)⁻¹ r``, ``(q + 1, h)``; up to `DENSE` dimensions.
        """
        if once:
            ridge = torch.eye(len(self.W) ** 2, dtype=self.W.dtype, device=self.W.device) * (damping / 2)
            L, _ = safe_cholesky(self._squared + ridge)

        def inverse(r: Tensor) -> Tensor:
            y = self.W * self.C.jvp(r)
            w = (
                torch.cholesky_solve(y.reshape(-1, 1), L).reshape(y.shape)
                if once
                else self._inverse(y, damping / 2, FINE)[0]
            )
            return (r - self.C.vjp(self.W * w)) / damping

        return inverse

    @property
    def _squared(self) -> Tensor:
        """``J Jᵀ``, ``(h², h²)``."""
        h = len(self.W)
        eye = torch.eye(h * h, dtype=self.W.dtype, device=self.W.device)
        JJt = torch.vmap(self.product)(eye.reshape(-1, h, h)).reshape(h * h, h * h)
        return (JJt + JJt.T) / 2

    def _inverse(self, y: Tensor, ridge: float, tol: float) -> tuple[Tensor, bool]:
        """Return ``(J Jᵀ + ridge·I)⁻¹ y``, and whether ``tol`` was reached."""
        if len(self.W) > DENSE:
            return _conjugate_gradients(lambda U: self.product(U) + ridge * U, y, tol)
        s, E = self._spectrum
        return (E @ ((E.T @ y.reshape(-1)) / (s + ridge))).reshape(y.shape), True

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenpairs of ``J Jᵀ``, ``(h²,)`` and ``(h², h²)``."""
        s, E = torch.linalg.eigh(self._squared)
        return s.clamp_min(0), E


def _conjugate_gradients(product: Callable[[Tensor], Tensor], y: Tensor, tol: float) -> tuple[Tensor, bool]:
    """Plain conjugate gradients: the diagonal preconditioner was measured to need up to three times the iterations."""
    x, r, p = torch.zeros_like(y), y, y
    square = r.square().sum()
    stop = tol**2 * square
    for _ in range(ITERATIONS):
        if square <= stop:
            break
        Ap = product(p)
        step = square / (p * Ap).sum()
        x, r = x + step * p, r - step * Ap
        previous, square = square, r.square().sum()
        p = r + (square / previous) * p
    return x, bool(square <= stop)
