r"""One solve per outcome: ``v = (H + λ I)⁻¹ ∇o`` at ``Θ*``, every outcome with the same linearisation of the loss."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.engine.linear import solve_linear
from krepes.engine.residual import Residual
from krepes.errors import ConvergenceWarning
from krepes.influence.outcomes import Outcome
from krepes.objectives import Objective


@dataclass(frozen=True)
class Adjoints:
    """``V`` ``(O, q + 1, h)``, one adjoint per outcome, with the relative residual of each solve and their ``λ``."""

    V: Tensor
    residuals: tuple[float, ...]
    damping: float


def solve_adjoints(
    objective: Objective[Any],
    data: Any,
    theta: Tensor,
    outcomes: Sequence[Outcome],
    *,
    damping: float,
    tol: float = 1e-8,
    max_iterations: int = 1000,
    free: int | None = None,
) -> Adjoints:
    """Solve ``(H + damping·I) v = ∇o`` for every outcome.

    Args:
        objective: The loss, with its targets bound.
        data: Moments or rows.
        theta: ``Θ*``, ``(q + 1, h)``.
        outcomes: The outcomes.
        damping: Absolute.
        tol: Relative residual asked of each solve; one that misses it warns.
        max_iterations: Of each solve.
        free: Leading coefficients that a step may move, where the model starts at the encoder; by default all.

    Returns:
        The adjoints.
    """
    require_range(damping, "damping", low=0.0)
    stepped = objective if free is None else Residual(objective, theta.shape[1])
    linearisation = stepped.linearise(data, theta[:free])
    found = [
        solve_linear(linearisation, outcome.gradient(theta)[:free], damping, tol=tol, max_iterations=max_iterations)
        for outcome in outcomes
    ]
    missed = [outcome.name for outcome, solution in zip(outcomes, found, strict=True) if not solution.converged]
    if missed:
        worst = max(solution.residual for solution in found)
        warnings.warn(
            f"the adjoint solves of {len(missed)} of {len(found)} outcomes stopped at a relative residual of up to "
            f"{worst:.1e}, above {tol:.0e} (the first is {missed[0]!r}). Raise the damping.",
            ConvergenceWarning,
            stacklevel=3,
        )
    still = len(theta) - len(linearisation.gradient)
    V = torch.nn.functional.pad(torch.stack([s.x for s in found]), (0, 0, 0, still))
    return Adjoints(V, tuple(s.residual for s in found), damping)
