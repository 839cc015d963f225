r"""The damped linear solve ``(H + damping·I) x = b``: by what the objective knows of its ``H``, and by iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.engine.cg import LinearSolution, conjugate_gradient
from krepes.objectives.base import Linearisation


def solve_linear(
    linearisation: Linearisation,
    b: Tensor,
    damping: float,
    *,
    x0: Tensor | None = None,
    tol: float = 1e-8,
    max_iterations: int = 1000,
) -> LinearSolution:
    """Solve ``(H + damping·I) x = b``: directly where the objective knows how, and by conjugate gradients.

    Args:
        linearisation: Of an objective.
        b: Right-hand side, ``(q + 1, h)``.
        damping: Absolute.
        x0: Start of the iteration; a direct solve that reaches ``tol`` has no use for it.
        tol: On the recomputed residual, relative to ``|b|``.
        max_iterations: Of conjugate gradients.

    Returns:
        The solution, converged or not.
    """
    if linearisation.solve is None:
        P = None if linearisation.preconditioner is None else linearisation.preconditioner(damping)
        return conjugate_gradient(
            linearisation.H, b, damping, preconditioner=P, x0=x0, tol=tol, max_iterations=max_iterations
        )
    found = solve_directly(linearisation, b, damping, tol)
    if found.converged or linearisation.preconditioner is None:
        return found
    # A direct solve divides by the damping and loses digits where it is small; iterations win them back.
    starts = [x for x in (found.x if found.residual < 1 else None, x0) if x is not None]
    P = linearisation.preconditioner(damping)
    more = conjugate_gradient(
        linearisation.H,
        b,
        damping,
        preconditioner=P,
        x0=next(iter(starts), None),
        tol=tol,
        max_iterations=max_iterations,
    )
    return more if more.residual < found.residual else found


def solve_directly(
    linearisation: Linearisation, b: Tensor, damping: float, tol: float, rounds: int = 3
) -> LinearSolution:
    """Return what the objective's own solve finds, refined while that helps, in so many rounds at most."""
    assert linearisation.solve is not None
    x, r, scale = torch.zeros_like(b), b, max(float(b.norm()), torch.finfo(b.dtype).tiny)
    history: list[float] = []
    while len(history) < rounds and (not history or history[-1] > tol):
        x = x + linearisation.solve(r, damping, tol * scale / max(float(r.norm()), tol * scale))
        r = b - (linearisation.H @ x + damping * x)
        history.append(float(r.norm()) / scale)
        if history[-1] > (history[-2] if len(history) > 1 else 1.0) / 10:
            break  # what one round does not win, the next will not
    return LinearSolution(x, r, history[-1], len(history), history[-1] <= tol, tuple(history))
