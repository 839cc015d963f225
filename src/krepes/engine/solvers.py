r"""Damped Gauss-Newton steps from ``Θ₀``: one is the paper's, more approach the optimum over the same data."""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from krepes._checks import require_finite, require_range
from krepes.engine.damping import Attempt, Expansion, expand
from krepes.engine.linear import solve_linear
from krepes.engine.solution import DampingTrial, Solution, Step
from krepes.errors import ConvergenceWarning, InvalidInputError
from krepes.objectives.base import Data, Objective

TRUSTED = 0.1
"""Error of a step by a sample's curvature above which it is said, as a part of the step."""
__all__ = ["Solution", "Step", "DampingTrial", "solve", "solve_linear"]


def solve(
    objective: Objective[Data],
    data: Data,
    theta0: Tensor,
    *,
    damping: float | Literal["auto"] = "auto",
    relative: bool = True,
    steps: int = 1,
    tol: float = 1e-8,
    max_iterations: int = 1000,
) -> Solution:
    """Take damped Gauss-Newton steps on ``objective`` from ``theta0``.

    Args:
        objective: The loss. What must stand still during the solve (BYOL's targets) is fixed at ``theta0``.
        data: What the objective closes over: moments or rows.
        theta0: Start, ``(q + 1, h)``.
        damping: ``"auto"`` for the value of lowest loss after the step, or a number to take as it is.
        relative: Whether a given ``damping`` is in units of the mean diagonal of ``H``.
        steps: At most so many; each expands at the new ``theta``, and they end when the loss no longer falls.
        tol: On the recomputed residual of a linear solve, relative.
        max_iterations: Of one linear solve.

    Returns:
        The solution. With ``"auto"`` a step that does not lower the loss is not taken. A given damping is taken
        literally in the first step, and warns if the loss rose. Either way a `ConvergenceWarning` says what happened.

    Raises:
        InvalidInputError: If ``damping`` is a word other than ``"auto"``, or too small for a singular curvature.
    """
    if isinstance(damping, str) and damping != "auto":
        raise InvalidInputError(f"damping must be 'auto' or a number, got {damping!r}.")
    require_range(0.0 if damping == "auto" else float(damping), "damping", low=0.0)
    require_range(steps, "steps", low=1)
    require_finite(theta0, "theta0")
    theta0 = theta0.detach().to(torch.float64)
    objective, theta, taken = objective.at(data, theta0), theta0, list[Step]()
    for index in range(steps):
        expansion = expand(objective, data, theta, max_iterations=max_iterations)
        best, grid = _choose(expansion, damping, relative, tol)
        _require_step(best, objective.name)
        best, error = expansion.refined(best)
        literal = index == 0 and damping != "auto"
        taken.append(_record(expansion, best, grid, error, literal or best.loss < expansion.linearisation.value))
        if not taken[-1].accepted:
            break
        theta = theta + best.solution.x
        del expansion  # what it keeps of the rows is let go before the next one keeps its own
    solution = Solution(theta0, theta, tuple(taken), tol)
    _warn(solution)
    return solution


def _choose(
    expansion: Expansion[Data], damping: float | Literal["auto"], relative: bool, tol: float
) -> tuple[Attempt, tuple[DampingTrial, ...]]:
    if damping == "auto":
        return expansion.search(tol=tol)
    return expansion.attempt(damping if relative else damping / expansion.unit, tol=tol), ()


def _require_step(best: Attempt, name: str) -> None:
    if not bool(torch.isfinite(best.solution.x).all()):
        raise InvalidInputError(
            f"the step of {name!r} at a relative damping of {best.damping:.1e} is not finite: the curvature is "
            f"singular and its solve divides by the damping. Pass a larger damping, or 'auto'."
        )


def _record(
    expansion: Expansion[Data], best: Attempt, grid: tuple[DampingTrial, ...], error: float | None, accepted: bool
) -> Step:
    return Step(
        damping=best.damping,
        damping_absolute=best.damping_absolute,
        loss_before=expansion.linearisation.value,
        loss_after=best.loss,
        gain=best.gain,
        accepted=accepted,
        converged=best.solution.converged,
        residual=best.solution.residual,
        iterations=best.solution.iterations,
        history=best.solution.history,
        grid=grid,
        curvature_rows=expansion.linearisation.rows,
        curvature_error=error,
    )


def _warn(solution: Solution) -> None:
    first = solution.steps[0]
    if not first.accepted:
        _say(
            f"no damping of {len(first.grid)} between {min(t.damping for t in first.grid):.0e} and "
            f"{max(t.damping for t in first.grid):.0e} lowered the loss {first.loss_before:.6g} (best "
            f"{first.loss_after:.6g}): no step was taken. The start may already be a minimum."
        )
    elif first.loss_after > first.loss_before:
        _say(
            f"the step at the given damping {first.damping:.1e} raised the loss from {first.loss_before:.6g} to "
            f"{first.loss_after:.6g}. Raise the damping, or let damping='auto' choose it."
        )
    for number, step in enumerate(solution.accepted, start=1):
        if (step.curvature_error or 0.0) > TRUSTED:
            _say(
                f"the curvature of {step.curvature_rows} rows is too few for the damping {step.damping:.1e} of step "
                f"{number}: the step is off by about {100 * (step.curvature_error or 0.0):.3g} %. Raise curvature_rows "
                f"or the damping."
            )
        if not step.converged:
            _say(
                f"the linear solve of step {number} stopped at a relative residual of {step.residual:.1e} after "
                f"{len(step.history)} iterations, above tol={solution.tol:.1e}. Raise max_iterations, damping or tol."
            )


def _say(message: str) -> None:
    warnings.warn(message, ConvergenceWarning, stacklevel=4)
