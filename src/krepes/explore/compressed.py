r"""Kernel rows in the few directions that they use, so that removals and influences need no encoder and no pass.

    k ≈ U c,      U ⊇ span(A0, A, leading eigenvectors of E k kᵀ),      c = Uᵀ k,      (q, r), UᵀU = 1

The embedding ``Aᵀ k = (UᵀA)ᵀ c`` is exact. A step of the objective moves coefficients along kernel rows only, so steps
in ``U`` are those of all landmarks as far as rows lie in ``U``: `left_out` says which part of them does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from krepes.engine.cg import conjugate_gradient
from krepes.engine.damping import mean_diagonal
from krepes.engine.init import ENCODER
from krepes.engine.moments import Moments
from krepes.engine.residual import Residual, solve_from_encoder
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError
from krepes.explore.room import Array
from krepes.model import Krepes
from krepes.objectives._dual import DENSE, DualSolve
from krepes.objectives.base import Linearisation, MomentObjective, Objective

TOLERANCE = 1e-6
"""Relative residual of a step without some rows."""
FEW = 12
"""Iterations of such a step that are guided by the inverse of all rows; then it gets one of its own."""


def why_not(model: Krepes) -> str | None:
    """Return why rows of a model cannot be compressed, or ``None`` if they can."""
    objective = model.objective_
    if model.moments_ is None or not isinstance(objective, MomentObjective):
        return f"the objective {objective.name!r} is a function of kernel rows, batch by batch, not of second moments"
    if objective.needs_inputs or objective.needs_trace:
        return f"the objective {objective.name!r} reconstructs inputs or features"
    return None


@dataclass(frozen=True, eq=False)
class Compressed:
    """Training rows of a model in ``r`` directions.

    Attributes:
        model: The model.
        T: From rows of the model to compressed ones, ``(q, r)``; where the model starts at the encoder, with its ``d``.
        moments: Of the compressed rows.
        theta0: Start, ``(r + 1, h)``.
        theta: Coefficients after the step, ``(r + 1, h)``.
        damping: Relative, in units of the compressed problem.
        damping_absolute: The model's own.
        left_out: Part of the variance of kernel rows that lies in no direction.
        rows: Compressed rows of the training samples, ``(p, n, r)``, float32.
        error: By how much a removal of random rows moves samples otherwise than in the model itself, as a part.
    """

    model: Krepes = field(repr=False)
    T: Tensor = field(repr=False)
    moments: Moments = field(repr=False)
    theta0: Tensor = field(repr=False)
    theta: Tensor = field(repr=False)
    damping: float
    damping_absolute: float
    left_out: float
    rows: Array = field(repr=False)
    error: float = 0.0

    @classmethod
    def within(cls, model: Krepes, extra: int) -> Compressed:
        """Return the problem in some directions, without rows.

        Args:
            model: A fitted model of moments.
            extra: Directions beside those of the coefficients.

        Returns:
            The problem.

        Raises:
            InvalidInputError: If the objective is no function of second moments alone.
        """
        reason, moments = why_not(model), model.moments_
        if reason is not None or moments is None:
            raise InvalidInputError(f"rows of this model cannot be compressed: {reason}.")
        T, left_out = _directions(model, moments, extra)
        T1 = torch.block_diag(T, T.new_ones(1, 1))
        seen = Moments(moments.n, T1.T @ moments.M @ T1, T.T @ moments.K @ T)
        theta0, theta = (T1.T @ part for part in (model.solution_.theta0, model.solution_.theta))
        absolute = model.solution_.damping_absolute
        unit = mean_diagonal(_linearised(model, model.objective_.at(seen, theta0), seen, theta0))
        none = np.zeros((moments.p, 0, T.shape[1]), np.float32)
        return cls(model, T, seen, theta0, theta, absolute / unit, absolute, left_out, none)

    @property
    def n(self) -> int:
        """Training samples."""
        return int(self.rows.shape[1])

    @property
    def free(self) -> int | None:
        """Leading coefficients that a step moves, where the model starts at the encoder; else ``None``, for all."""
        return len(self.theta) - 1 - self.theta.shape[1] if self.model.init == ENCODER else None

    @property
    def objective(self) -> Objective[Any]:
        """The loss, with what stands still at its start."""
        return self.model.objective_.at(self.moments, self.theta0)

    def seen(self, K: Tensor) -> Tensor:
        """Return rows of the model ``(t, q)`` as compressed augmented ones, ``(t, r + 1)``."""
        return pad(K @ self.T, (0, 1), value=1.0)

    @cached_property
    def expansion(self) -> Linearisation:
        """The loss expanded where the step arrives, which every influence is solved with."""
        return _linearised(self.model, self.objective, self.moments, self.theta)

    def step(self, moments: Moments, *, tol: float = TOLERANCE) -> Tensor:
        """Return the coefficients, ``(r + 1, h)``, that the step gives on other moments.

        Args:
            moments: Of the same directions, such as those without some rows.
            tol: Relative residual.

        Returns:
            The coefficients. One step is solved by iterations that start at the step of all rows, and that its inverse
            guides; more steps, or a step that was refused, are taken as the model takes them.
        """
        model, start = self.model, self._free(self.theta0)
        if model.steps != 1 or not model.solution_.accepted:
            return self._steps(moments, tol)
        found = _linearised(model, model.objective_.at(moments, self.theta0), moments, self.theta0)
        damping = self.damping * mean_diagonal(found)
        near = self._free(self.theta) - start
        solves = self._first.solve, found.solve
        how: dict[str, Any] = {"x0": near, "tol": tol}
        if not (isinstance(solves[0], DualSolve) and isinstance(solves[1], DualSolve)) or self.theta.shape[1] > DENSE:
            guide = None if found.preconditioner is None else found.preconditioner(damping)
            step = conjugate_gradient(found.H, -found.gradient, damping, preconditioner=guide, **how)
            return torch.cat([start + step.x, self.theta0[len(start) :]])
        how |= {"max_iterations": FEW, "preconditioner": solves[0].near(damping)}
        step = conjugate_gradient(found.H, -found.gradient, damping, **how)
        if not step.converged:  # far from all rows: guided by an inverse of its own
            how = {"x0": step.x, "tol": tol, "preconditioner": solves[1].near(damping, once=True)}
            step = conjugate_gradient(found.H, -found.gradient, damping, **how)
        return torch.cat([start + step.x, self.theta0[len(start) :]])

    def _steps(self, moments: Moments, tol: float) -> Tensor:
        model = self.model
        how: dict[str, Any] = {"tol": tol, "steps": model.steps}
        how |= {"damping": self.damping if model.solution_.accepted else "auto"}
        if self.free is not None:
            return solve_from_encoder(model.objective_, moments, self.free, self.theta.shape[1], **how).theta
        return solve(model.objective_, moments, self.theta0, **how).theta

    @cached_property
    def _first(self) -> Linearisation:
        return _linearised(self.model, self.objective, self.moments, self.theta0)

    def _free(self, theta: Tensor) -> Tensor:
        return theta if self.free is None else theta[: self.free]


def _directions(model: Krepes, moments: Moments, extra: int) -> tuple[Tensor, float]:
    """Return an orthonormal basis ``(q, r)``, with the embedding kept whole beside it, and what it leaves out."""
    q = len(model.K_mm_)
    cov = sum((moments.centred(u, u)[:q, :q] for u in range(moments.p)), start=torch.zeros(q, q, dtype=torch.float64))
    pooled = sum((moments.M[u, u][:q, :q] for u in range(moments.p)), start=torch.zeros(q, q, dtype=torch.float64))
    vectors = torch.linalg.eigh(pooled).eigenvectors.flip(1)[:, : min(extra, q)]
    wanted = torch.cat([model.A0_, model.A_, vectors], dim=1)
    U, S, _ = torch.linalg.svd(wanted / wanted.norm(dim=0).clamp_min(1e-300), full_matrices=False)
    U = U[:, S > 1e-10 * S[0]]
    total = float(cov.trace())
    left_out = 0.0 if total <= 0 else max(0.0, 1 - float((U.T @ cov @ U).trace()) / total)
    beside = len(model.pass_gram_) - q
    return torch.block_diag(U, torch.eye(beside, dtype=U.dtype)) if beside else U, left_out


def _linearised(model: Krepes, objective: Objective[Any], moments: Moments, theta: Tensor) -> Linearisation:
    """Return the expansion of the loss at some coefficients, in those that are free."""
    if model.init != ENCODER:
        return objective.linearise(moments, theta)
    d = theta.shape[1]
    return Residual(objective, d).linearise(moments, theta[: len(theta) - 1 - d])


def of_products(moments: Moments, sums: Tensor, n: int) -> Moments:
    """Return the moments of ``n`` samples whose products sum to ``sums`` ``(p (r + 1), p (r + 1))``, else as given."""
    p, width = moments.p, moments.q + 1
    M = (sums / n).reshape(p, width, p, width).permute(0, 2, 1, 3).contiguous()
    return replace(moments, n=n, M=M)
