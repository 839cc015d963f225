r"""One expansion, many dampings: the linear solve at each, the loss after its step, and the search for the lowest.

    (H + λ I) Δ = -g,      λ = damping · mean(diag H),      gain = (L(Θ + Δ) - L(Θ)) / (gᵀΔ + ½ ΔᵀHΔ)

The usable damping differs by more than five orders of magnitude between losses, so it is searched on a geometric grid
by the loss itself, which moments make cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from krepes.engine.cg import LinearSolution
from krepes.engine.linear import solve_directly, solve_linear
from krepes.engine.phases import tell
from krepes.engine.shifts import Shifts
from krepes.engine.solution import DampingTrial
from krepes.errors import InvalidInputError, NonConvexOuterError
from krepes.objectives.base import Data, Linearisation, Objective

GRID = tuple(10.0**power for power in range(4, -7, -1))
"""Relative dampings of the search, largest first: its solves are the easiest, and help the next."""
LARGER = tuple(10.0**power for power in range(5, 13))
"""Tried after the grid where none of it lowers the loss: off a minimum a small enough step does."""
LOOSE = 1e-6
"""Relative residual of the search's direct solves: far below what tells two dampings apart."""
ESTIMATE = 1e-3
"""Relative residual of solves for what a step by a sample's curvature misses."""
CLOSE, CLEAR = 1e-2, 0.25
"""A direct solve of the search that stopped early is left so if its relative residual is below the first and its loss
above the lowest by this part of what that one wins: finishing it moves the loss far less."""
PATIENCE = 2
"""Solves cost more as the damping falls: the search ends after so many values without a lower loss."""


@dataclass(frozen=True)
class Attempt:
    """The step of one damping: its solve, ``λ``, the loss after it, the gain ratio, and whether it stays near."""

    damping: float
    damping_absolute: float
    solution: LinearSolution
    loss: float
    gain: float
    near: bool = True

    @property
    def trial(self) -> DampingTrial:
        """The record of this attempt without its tensors."""
        return DampingTrial(self.damping, self.loss, self.gain, self.solution.iterations, self.solution.converged)


@dataclass(frozen=True)
class Expansion(Generic[Data]):
    """An objective linearised at ``theta`` ``(q + 1, h)``; ``unit`` is the mean diagonal of its ``H``.

    ``sampled`` says whether losses are of the rows that ``H`` was taken of, as far as those are a sample.
    """

    objective: Objective[Data]
    data: Data
    theta: Tensor
    linearisation: Linearisation
    unit: float
    max_iterations: int
    sampled: bool = False

    def attempt(self, damping: float, *, tol: float, near: Attempt | None = None, once: bool = False) -> Attempt:
        """Return the step at a relative ``damping``, its solve started from the one ``near`` it.

        With ``once`` a direct solve is left as its first round has it, converged or not.
        """
        lin, absolute = self.linearisation, damping * self.unit
        if once and lin.solve is not None:
            solution = solve_directly(lin, -lin.gradient, absolute, tol, rounds=1)
        else:
            x0 = None if near is None else near.solution.x
            solution = solve_linear(lin, -lin.gradient, absolute, x0=x0, tol=tol, max_iterations=self.max_iterations)
        return self._judged(damping, solution)

    def _judged(self, damping: float, solution: LinearSolution) -> Attempt:
        """Return a solved step with the loss after it."""
        lin, absolute, theta = self.linearisation, damping * self.unit, self.theta + solution.x
        loss = self._loss(theta)
        tell(f"damping {damping:.2g}: loss {loss:.6g}, before {lin.value:.6g}")
        predicted = float((lin.gradient * solution.x).sum()) + 0.5 * _curvature(solution, lin.gradient, absolute)
        gain = (loss - lin.value) / predicted if predicted else math.nan
        return Attempt(damping, absolute, solution, loss, gain, self.objective.near(self.data, theta))

    def _loss(self, theta: Tensor) -> float:
        """Return the loss at ``theta`` ``(q + 1, h)``, of all rows or of a sample; what is not finite is infinite."""
        estimate = self.linearisation.estimate if self.sampled else None
        loss = float((self.objective.value(self.data, theta) if estimate is None else estimate(theta)).detach())
        return loss if math.isfinite(loss) else math.inf

    def refined(self, attempt: Attempt) -> tuple[Attempt, float | None]:
        """Return the step by a sample's curvature, brought nearer to that by the curvature of all rows, and its error.

        With ``H`` of all rows and ``Ĥ`` of the sample, what a step leaves of ``(H + λ I) Δ = -g`` costs one pass, and
        ``(Ĥ + λ I)⁻¹`` of it is the missing step, up to the square of the error: added once, then measured again.

        Args:
            attempt: The step.

        Returns:
            The step, and ``|missing| / |Δ|``; as it was, and ``None``, where the curvature is of all rows.
        """
        x, found = attempt.solution.x, self._missing(attempt.solution.x, attempt.damping_absolute)
        if found is None:
            return attempt, None
        missing, error = found
        if error < 0.5:
            x = x + missing
            loss = float(self.objective.value(self.data, self.theta + x).detach())
            attempt = replace(attempt, solution=replace(attempt.solution, x=x), loss=loss)
            found = self._missing(x, attempt.damping_absolute)
        return attempt, error if found is None else found[1]

    def _missing(self, x: Tensor, damping: float) -> tuple[Tensor, float] | None:
        """Return what a step lacks, ``(q + 1, h)``, and its size as a part of the step; ``None`` if it has all."""
        lin, size = self.linearisation, float(x.norm())
        if lin.whole is None or size == 0:
            return None
        tell("what the curvature of all rows adds")
        left = -lin.gradient - (lin.whole @ x + damping * x)
        missing = solve_linear(lin, left, damping, tol=ESTIMATE, max_iterations=self.max_iterations).x
        return missing, float(missing.norm()) / size

    def search(self, *, tol: float) -> tuple[Attempt, tuple[DampingTrial, ...]]:
        """Return the attempt of lowest loss on the grid and its refinement, of those that stay near, and all tried.

        The search goes down the grid until the loss has stopped falling, or up from it where none lowers the loss (an
        objective that is a sum over samples far from its minimum), then refines around the lowest: to a quarter
        of a decade where solves are direct, to half of one where they iterate over the data. Direct solves are compared
        at a looser residual, and the one that is taken is solved to ``tol``; an iteration that stops early at a small
        damping has a lower loss than its solution, so iterations are compared at ``tol``, and without a preconditioner
        all dampings share theirs (`krepes.engine.shifts`). A direct
        solve that stopped early is finished unless its loss is far from the lowest (`CLOSE`, `CLEAR`). Where one that
        was finished does not reach its residual, smaller dampings would not either: the search ends there, and such a
        step is taken only if no other is left.

        Where the curvature is of a sample of the rows, losses are compared on the sample, and the step of the lowest is
        judged by all rows: if it does not lower their loss, the search is made again with all of them.
        """
        lin = self.linearisation
        if lin.estimate is not None and not self.sampled:
            few = replace(self, linearisation=replace(lin, value=float(lin.estimate(self.theta))), sampled=True)
            best, trials = few.search(tol=tol)
            best = self._judged(best.damping, best.solution)
            if best.loss < lin.value:
                return best, trials
        direct = lin.solve is not None
        # A preconditioner differs between dampings; without one, a single Krylov space holds the answers of all.
        shared = None if direct or lin.preconditioner is not None else Shifts(lin, self.data.budget)
        tried: list[Attempt] = []
        loose = max(tol, LOOSE) if direct else tol
        for damping in GRID:
            tried = _lean([*tried, self._within(tried, damping, loose, tried[-1] if tried else None, shared)])
            if direct and not tried[-1].solution.converged and not self._hopeless(tried[-1], tried):
                break
            if len(tried) - 1 - tried.index(_lowest(tried)) >= PATIENCE:
                break
        tried = tried if self._lowers(_lowest(tried)) else self._larger(tried, loose, shared)
        for decades in (0.5, 0.25) if direct else (0.5,):
            best = _lowest(tried)
            for d in (decades, -decades):
                tried = _lean([*tried, self._within(tried, best.damping * 10**d, loose, best, shared)])
        best = _lowest(tried)
        best = self.attempt(best.damping, tol=tol) if loose > tol else best
        return best, tuple(attempt.trial for attempt in tried)

    def _lowers(self, attempt: Attempt) -> bool:
        return attempt.near and attempt.loss < self.linearisation.value

    def _larger(self, tried: list[Attempt], tol: float, shared: Shifts | None) -> list[Attempt]:
        """Return the attempts with those of larger dampings, until one has lowered the loss and the next one less."""
        for damping in LARGER:
            tried = _lean([*tried, self._within(tried, damping, tol, None, shared)])
            if self._lowers(_lowest(tried)) and _lowest(tried) is not tried[-1]:
                break
        return tried

    def _within(
        self, tried: list[Attempt], damping: float, tol: float, near: Attempt | None, shared: Shifts | None
    ) -> Attempt:
        """Return the step at a damping for a search: a direct solve that stopped early is finished if it may lead."""
        if shared is not None:
            start, most = None if near is None else near.solution.x, self.max_iterations
            return self._judged(damping, shared.solve(damping * self.unit, start, tol=tol, max_iterations=most))
        if tried and self.linearisation.solve is not None:
            first = self.attempt(damping, tol=tol, near=near, once=True)
            if first.solution.converged or self._hopeless(first, tried):
                return first
        return self.attempt(damping, tol=tol, near=near)

    def _hopeless(self, attempt: Attempt, tried: list[Attempt]) -> bool:
        """Return whether a step, solved closely, is far above the lowest loss."""
        best = _lowest(tried).loss
        far = attempt.loss >= best + CLEAR * max(self.linearisation.value - best, 0.0)
        return far and attempt.loss > best and attempt.solution.residual <= CLOSE


def expand(objective: Objective[Data], data: Data, theta: Tensor, *, max_iterations: int) -> Expansion[Data]:
    """Linearise ``objective`` at ``theta``.

    Args:
        objective: The loss, with its targets bound.
        data: Moments or rows.
        theta: Point of expansion, ``(q + 1, h)``.
        max_iterations: Of one linear solve.

    Returns:
        The expansion.

    Raises:
        InvalidInputError: If the loss is not finite there, or has no curvature to measure damping by.
    """
    linearisation = objective.linearise(data, theta)
    if not math.isfinite(linearisation.value):
        raise InvalidInputError(
            f"the loss {objective.name!r} is {linearisation.value} at the point of expansion. It must be finite: check "
            f"the kernel rows for NaN or overflow."
        )
    unit = mean_diagonal(linearisation)
    if unit == 0:
        raise InvalidInputError(
            f"the curvature of {objective.name!r} is zero at the point of expansion, where the loss is "
            f"{linearisation.value:.3g}: no small change of the embedding changes it, and damping has no unit. Start "
            f"from coefficients that are not all zero, or pass more samples (two in one dimension always correlate)."
        )
    return Expansion(objective, data, theta, linearisation, unit, max_iterations)


def mean_diagonal(linearisation: Linearisation, *, probes: int = 4, seed: int = 0) -> float:
    """Return ``mean(diag H)``: exact where the diagonal is known, else the mean of ``ξᵀHξ / size`` over random signs.

    Args:
        linearisation: Of an objective.
        probes: Random sign vectors ``ξ``.
        seed: Of the signs.

    Returns:
        The unit of relative damping.

    Raises:
        NonConvexOuterError: If it is negative, which no positive semi-definite operator's is.
    """
    H, g = linearisation.H, linearisation.gradient
    if H.diagonal is not None:
        return float(H.diagonal.mean())
    generator = torch.Generator().manual_seed(seed)
    signs = 2 * torch.randint(0, 2, (probes, *H.shape), generator=generator).to(g) - 1
    mean = sum(float((xi * (H @ xi)).mean()) for xi in signs) / probes
    if mean < 0:
        raise NonConvexOuterError(
            f"the mean curvature of the loss is {mean:.2e}, negative. The outer part of a loss must be convex: put "
            f"more of it into `inner`, until `outer` is convex in inner(Z)."
        )
    return mean


def _curvature(solution: LinearSolution, gradient: Tensor, damping: float) -> float:
    """Return ``ΔᵀHΔ`` without a product: the remainder already holds ``HΔ = -g - remainder - λΔ``."""
    Hx = -gradient - solution.remainder - damping * solution.x
    return float((solution.x * Hx).sum())


def _lowest(tried: list[Attempt]) -> Attempt:
    """Return the attempt of lowest loss, of those that stay near if any does, and were solved if any was."""
    return min(tried, key=lambda attempt: (not attempt.near, not attempt.solution.converged, attempt.loss))


def _lean(tried: list[Attempt]) -> list[Attempt]:
    """Return the attempts with the tensors of the lowest and of the last alone: at m = 1000 each has 8 MB of them."""
    needed, none = {id(_lowest(tried)), id(tried[-1])}, torch.empty(0)
    return [
        one if id(one) in needed else replace(one, solution=replace(one.solution, x=none, remainder=none))
        for one in tried
    ]
