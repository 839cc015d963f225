r"""All dampings of a search in one Krylov space, where no preconditioner is known.

The space of ``H + λ I`` and ``-g`` is the same for every ``λ``, so products that one damping needed serve the others.
What it finds is confirmed by a residual recomputed from ``x``, and finished by conjugate gradients where round-off or
room left it short.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal

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

    def solve(self, damping: float, *, tol: float, max_iterations: int) -> LinearSolution:
        """Return the step at an absolute damping; see `krepes.engine.linear.solve_linear`.

        Its iterations are the products that no earlier damping had made.
        """
        known = len(self.space.alpha)
        first = self.space.solve(damping, WITHIN * tol, most=max_iterations)
        self._require_positive()
        left = max_iterations - len(first.residuals)
        found = solve_linear(self.linearisation, self.b, damping, x0=first.x, tol=tol, max_iterations=left)
        grown = len(self.space.alpha) - known
        return replace(found, iterations=grown + found.iterations, history=(*first.residuals, *found.history))

    def _require_positive(self) -> None:
        """Refuse a direction of negative curvature, which is judged on ``H`` itself: no damping hides it."""
        if self.space.alpha:
            ritz = eigvalsh_tridiagonal(np.array(self.space.alpha), np.array(self.space.beta[:-1]))
            require_positive(float(ritz[0]), float(ritz[-1]))
