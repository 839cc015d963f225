r"""All dampings of a search in one Krylov space, where no preconditioner is known.

The space of ``H + λ I`` and ``-g`` is the same for every ``λ``, so products that one damping needed serve the others.
What it finds is confirmed by a residual recomputed from ``x``, and finished by conjugate gradients where round-off or
room left it short, from the step of a neighbouring damping if that is nearer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

from krepes.budget import Budget
from krepes.engine.cg import LinearSolution, require_positive
from krepes.engine.linear import solve_linear
from krepes.objectives.base import Linearisation
from krepes.objectives.krylov import Krylov

WITHIN = 0.99
"""Of the tolerance, which the recurrence has to reach so that the recomputed residual does."""


class Shifts:
    """The solves ``(H + λ I) Δ = -g`` of one expansion.

    Args:
        linearisation: Of an objective that knows neither a direct solve nor a preconditioner.
        budget: An eighth of it holds Krylov vectors; others lie in temporary files.
    """

    def __init__(self, linearisation: Linearisation, budget: Budget) -> None:
        self.linearisation, self.b = linearisation, -linearisation.gradient
        self.space = Krylov(linearisation.H.__matmul__, self.b, budget.bytes // 8)

    def solve(self, damping: float, near: Tensor | None, *, tol: float, max_iterations: int) -> LinearSolution:
        """Return the step at an absolute damping, by itself or from the one ``near`` it; see `solve_linear`.

        Its iterations are the products that no earlier damping had made.
        """
        known = len(self.space.alpha)
        first = self.space.solve(damping, WITHIN * tol, most=max_iterations)
        self._require_positive()
        left = max_iterations - len(first.residuals)
        start = first.x if first.reached or near is None else min((first.x, near), key=partial(self._left, damping))
        found = solve_linear(self.linearisation, self.b, damping, x0=start, tol=tol, max_iterations=left)
        grown = len(self.space.alpha) - known
        return replace(found, iterations=grown + found.iterations, history=(*first.residuals, *found.history))

    def _require_positive(self) -> None:
        """Refuse a direction of negative curvature, which is judged on ``H`` itself: no damping hides it."""
        if self.space.alpha:
            ritz = eigvalsh_tridiagonal(np.array(self.space.alpha), np.array(self.space.beta[:-1]))
            require_positive(float(ritz[0]), max(float(ritz[-1]), *self.space.beta))

    def _left(self, damping: float, x: Tensor) -> float:
        """Return what a step leaves of its system."""
        return float((self.b - (self.linearisation.H @ x + damping * x)).norm())
