r"""Preconditioned conjugate gradients for ``(H + damping·I) x = b``, with the residual that is really left.

Three departures from the textbook loop. The residual that decides and is reported is recomputed from ``x``, and the
iteration restarts from it if the recurrence had drifted. Curvature is judged on ``H`` itself, before the damping could
hide that it is negative. A solution of a neighbouring damping may be the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from krepes.errors import NonConvexOuterError
from krepes.linalg import LinearOperator
from krepes.objectives.base import Product

NEGATIVE = 1e-8
"""A curvature below minus this fraction of ``|H|`` is negative; round-off in float64 stays far closer to zero."""
ROUND_OFF = 1e-12
"""What subtracting the damping from an eigenvalue of ``H + damping·I`` may leave, relative to the damping."""


@dataclass(frozen=True)
class LinearSolution:
    """The answer of a damped linear solve and how good it is.

    Attributes:
        x: The solution, of the shape of ``b``.
        remainder: ``b - (H + damping·I) x``, recomputed from ``x``.
        residual: ``|remainder| / |b|``.
        iterations: Products with ``H`` that the iteration took, but for those that a search had made before for another
            damping; refinements, for a direct solve.
        converged: Whether ``residual`` reached the tolerance.
        history: Relative residual after each iteration, by recurrence.
    """

    x: Tensor
    remainder: Tensor
    residual: float
    iterations: int
    converged: bool
    history: tuple[float, ...] = ()


def conjugate_gradient(
    H: LinearOperator,
    b: Tensor,
    damping: float,
    *,
    preconditioner: Product | None = None,
    x0: Tensor | None = None,
    tol: float = 1e-8,
    max_iterations: int = 1000,
) -> LinearSolution:
    """Solve ``(H + damping·I) x = b``.

    Args:
        H: Symmetric positive semi-definite operator.
        b: Right-hand side, of ``H.shape``.
        damping: Absolute, positive unless ``H`` is definite.
        preconditioner: ``r -> P⁻¹ r``, symmetric positive definite.
        x0: Start, or ``None`` for zero.
        tol: On the recomputed residual, relative to ``|b|``.
        max_iterations: Over all restarts together.

    Returns:
        The solution, converged or not. Negative curvature of ``H`` raises `NonConvexOuterError`.
    """
    x = torch.zeros_like(b) if x0 is None else x0
    scale = float(b.norm())
    if scale == 0:
        return LinearSolution(torch.zeros_like(b), torch.zeros_like(b), 0.0, 0, True)
    history: list[float] = []
    r = b - (H @ x + damping * x) if x0 is not None else b
    left = float(r.norm()) / scale
    while left > tol and len(history) < max_iterations:
        x, run = _run(H, r, x, damping, preconditioner, tol * scale, max_iterations - len(history))
        history += [norm / scale for norm in run]
        r = b - (H @ x + damping * x)
        before, left = left, float(r.norm()) / scale
        # A restart that no longer halves the true residual has reached round-off.
        if left > 0.5 * before:
            break
    return LinearSolution(x, r, left, len(history), left <= tol, tuple(history))


def _run(
    H: LinearOperator, r: Tensor, x: Tensor, damping: float, P: Product | None, target: float, budget: int
) -> tuple[Tensor, list[float]]:
    """Return ``x`` after one uninterrupted run, and the residual norms of its recurrence."""
    y = r if P is None else P(r)
    v, rho = y, float((r * y).sum())
    steps, ratios, norms = list[float](), list[float](), list[float]()
    largest = 0.0  # a lower bound of |H|, from the directions seen
    for _ in range(budget):
        Hv, square = H @ v, float(v.square().sum())
        largest = max(largest, float(Hv.norm()) / square**0.5)
        curvature = float((v * Hv).sum())
        require_positive(curvature / square, largest)
        steps.append(rho / (curvature + damping * square))
        x, r = x + steps[-1] * v, r - steps[-1] * (Hv + damping * v)
        norms.append(float(r.norm()))
        if norms[-1] <= target:
            break
        y = r if P is None else P(r)
        rho, previous = float((r * y).sum()), rho
        ratios.append(rho / previous)
        v = y + ratios[-1] * v
    if P is None:
        require_positive(_smallest_ritz(steps, ratios) - damping, largest + ROUND_OFF / NEGATIVE * damping)
    return x, norms


def _smallest_ritz(steps: list[float], ratios: list[float]) -> float:
    """Return the smallest eigenvalue of the operator within the space searched, from the Lanczos matrix of the run.

    A negative direction that no single search direction showed still shows here, whatever the damping.
    """
    alpha, beta = np.array(steps), np.array(ratios[: len(steps) - 1])
    diagonal = 1 / alpha
    diagonal[1:] += beta / alpha[:-1]
    smallest = eigh_tridiagonal(
        diagonal, np.sqrt(beta) / alpha[:-1], eigvals_only=True, select="i", select_range=(0, 0)
    )
    return float(smallest[0])


def require_positive(curvature: float, scale: float) -> None:
    """Raise `NonConvexOuterError` if ``curvature`` is negative beyond round-off against ``scale``."""
    if curvature < -NEGATIVE * scale:
        raise NonConvexOuterError(
            f"the solve met a curvature of {curvature:.2e}, negative against a scale of {scale:.2e}. A Gauss-Newton "
            f"matrix J^T Q J is positive only if the outer part of the loss is convex (Q is its Hessian). Split the "
            f"loss elsewhere: put more of it into `inner`, until `outer` is convex in inner(Z). NT-Xent, for one, is "
            f"convex in its logits, not in Z."
        )
