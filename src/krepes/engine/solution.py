"""The records that a solve leaves behind: each damping tried, each step, and all of them as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class DampingTrial:
    """One damping of the search.

    Attributes:
        damping: Relative to the mean diagonal of ``H``.
        loss: After the full step; of the rows of the curvature, where those are a sample.
        gain: Actual change of the loss over the change that the quadratic model predicted.
        iterations: Of its linear solve, but for those that an earlier damping of the search had made.
        converged: Whether that reached the tolerance.
    """

    damping: float
    loss: float
    gain: float
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Step:
    """One Gauss-Newton step.

    Attributes:
        damping: Relative to the mean diagonal of ``H``.
        damping_absolute: The ``λ`` of the linear system.
        loss_before: At the point of expansion.
        loss_after: After the full step, taken or not.
        gain: Actual change of the loss over the change that the quadratic model predicted.
        accepted: Whether the step was taken.
        converged: Whether the recomputed residual reached the tolerance.
        residual: Recomputed, relative.
        iterations: Of its linear solve, but for those that an earlier damping of the search had made.
        history: Relative residual by iteration.
        grid: The dampings that were tried, in order.
        curvature_rows: Rows that the curvature was taken of; ``None`` for an objective of moments.
        curvature_error: How far the step is from that of the curvature of all rows, as a part of it, estimated with one
            more pass; ``None`` where it is of all rows.
    """

    damping: float
    damping_absolute: float
    loss_before: float
    loss_after: float
    gain: float
    accepted: bool
    converged: bool
    residual: float
    iterations: int
    history: tuple[float, ...] = ()
    grid: tuple[DampingTrial, ...] = ()
    curvature_rows: int | None = None
    curvature_error: float | None = None


@dataclass(frozen=True)
class Solution:
    """Where a solve went, and how.

    Attributes:
        theta0: The start, ``(q + 1, h)``.
        theta: The end, ``(q + 1, h)``; equal to ``theta0`` if no step was taken.
        steps: Every step tried; the last may have been rejected because the loss did not fall.
        tol: Tolerance on the relative residual of a linear solve.
    """

    theta0: Tensor = field(repr=False)
    theta: Tensor = field(repr=False)
    steps: tuple[Step, ...]
    tol: float

    @property
    def accepted(self) -> tuple[Step, ...]:
        """The steps that were taken."""
        return tuple(step for step in self.steps if step.accepted)

    @property
    def converged(self) -> bool:
        """Whether a step was taken and every step taken solved its linear system to ``tol``."""
        return bool(self.accepted) and all(step.converged for step in self.accepted)

    @property
    def iterations(self) -> int:
        """Iterations of all linear solves, the searches for damping included."""
        return sum(sum(trial.iterations for trial in step.grid) or step.iterations for step in self.steps)

    @property
    def residual(self) -> float:
        """The largest recomputed relative residual of the steps taken, or of the one rejected if none was."""
        return max(step.residual for step in self.accepted or self.steps)

    @property
    def damping(self) -> float:
        """Relative damping of the last step taken."""
        return self._last.damping

    @property
    def damping_absolute(self) -> float:
        """Absolute damping of the last step taken."""
        return self._last.damping_absolute

    @property
    def gain(self) -> float:
        """Gain ratio of the last step taken; below 0.25 the quadratic model misjudged it."""
        return self._last.gain

    @property
    def loss_before(self) -> float:
        """The loss at ``theta0``."""
        return self.steps[0].loss_before

    @property
    def loss_after(self) -> float:
        """The loss at ``theta``."""
        return self.accepted[-1].loss_after if self.accepted else self.loss_before

    @property
    def curvature_rows(self) -> int | None:
        """Rows that the curvature of the last step was taken of; ``None`` for an objective of moments."""
        return self._last.curvature_rows

    @property
    def curvature_error(self) -> float | None:
        """How far the last step is from that of the curvature of all rows, as a part of it; ``None`` if it is that."""
        return self._last.curvature_error

    @property
    def _last(self) -> Step:
        return (self.accepted or self.steps)[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the coefficients, as plain JSON values."""
        names = "converged iterations residual damping damping_absolute gain loss_before loss_after tol".split()
        found = {name: getattr(self, name) for name in names}
        return found | {"steps": [dataclasses.asdict(step) for step in self.steps]}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], theta0: Tensor, theta: Tensor) -> Solution:
        """Return the solution that `to_dict` described, with its coefficients, ``(q + 1, h)`` each."""

        def step(fields: dict[str, Any]) -> Step:
            grid = tuple(DampingTrial(**trial) for trial in fields["grid"])
            return Step(**fields | {"history": tuple(fields["history"]), "grid": grid})

        return cls(theta0, theta, tuple(step(fields) for fields in stored["steps"]), stored["tol"])
