r"""What an objective is: a value, a gradient, and a positive curvature, all at ``Θ = [A ; γᵀ]``.

Two families share one face. A *moment* objective closes over `Moments` and never sees a row again; a *row* objective
normalises per sample, so it streams kernel rows from a `RowSource`. Either way `linearise` returns what one damped
Gauss-Newton step needs:

    (H + damping·I) Δ = -g,        H = Jᵀ Q J  (positive semi-definite, without damping).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from torch import Tensor

from krepes._describe import Description, described
from krepes.budget import Budget
from krepes.engine.moments import Moments
from krepes.linalg import LinearOperator

Product = Callable[[Tensor], Tensor]
"""A linear map on tensors shaped like Theta, ``(q + 1, h)``."""


class RowSource(Protocol):
    """Augmented kernel rows in a fixed partition: the same batches, in the same order, on every pass."""

    @property
    def n(self) -> int:
        """Number of samples."""

    @property
    def K(self) -> Tensor:
        """Gram matrix of the landmark points, ``(q, q)``."""

    @property
    def budget(self) -> Budget:
        """What an objective may keep of the rows in memory between two passes."""

    def batches(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield ``K̄``, ``(p, b, q + 1)``, float64, with ``b <= size``: the last column is one.

        All batches, or those whose numbers are ``chosen``; no other is read.
        """


@dataclass(frozen=True)
class Linearisation:
    """An objective expanded at ``Θ``.

    Attributes:
        value: The loss.
        gradient: ``(q + 1, h)``.
        H: The Gauss-Newton operator, without damping, with its diagonal where that is known.
        preconditioner: ``damping -> (r -> P⁻¹ r)``, the one that was measured to help; ``None`` for plain CG.
        solve: ``(r, damping, tol) -> (H + damping·I)⁻¹ r`` by a direct or dual factorisation, to a relative residual of
            ``tol`` as far as it iterates at all; ``None`` where CG is the way.
        rows: Rows that ``H`` was taken of; ``None`` where none are needed.
        whole: The operator over all rows, where ``H`` is of a sample of them; a product with it costs a pass.
        estimate: From ``Θ`` to the loss of the rows that ``H`` was taken of, where they are a sample.
    """

    value: float
    gradient: Tensor
    H: LinearOperator
    preconditioner: Callable[[float], Product] | None = None
    solve: Callable[[Tensor, float, float], Tensor] | None = None
    rows: int | None = None
    whole: LinearOperator | None = None
    estimate: Callable[[Tensor], Tensor] | None = None


Data = TypeVar("Data", Moments, RowSource, contravariant=True)


class Objective(ABC, Generic[Data]):
    """A self-supervised loss of the embeddings ``Z_u = K̄_u Θ``; a frozen dataclass of its hyper-parameters.

    `value` and `gradient` are differentiable torch functions of ``theta`` (and, for moment objectives, of the tensors
    in `Moments`): counterfactual influence differentiates the gradient in the moments.
    """

    name: ClassVar[str]
    views: ClassVar[int] = 2

    @abstractmethod
    def value(self, data: Data, theta: Tensor) -> Tensor:
        """Return the loss, a scalar tensor, at ``theta`` ``(q + 1, h)``."""

    @abstractmethod
    def gradient(self, data: Data, theta: Tensor) -> Tensor:
        """Return the gradient in ``theta``, ``(q + 1, h)``."""

    @abstractmethod
    def linearise(self, data: Data, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and its preconditioner at ``theta``."""

    def at(self, data: Data, theta: Tensor) -> Objective[Data]:
        """Return the loss with what must stand still during a solve, such as targets, fixed at ``theta``."""
        return self

    def near(self, data: Data, theta: Tensor) -> bool:
        """Return whether ``theta`` is near enough to the start for a search of the damping to go there: all are."""
        return True

    def describe(self) -> Description:
        """Return name and hyper-parameters as plain JSON values, functions by their qualified names."""
        return described(self.name, {key: value for key, value in vars(self).items() if not key.startswith("_")})


class MomentObjective(Objective[Moments]):
    """An objective that needs only second moments: value, gradient and curvature cost nothing in n."""

    needs_trace: ClassVar[bool] = False
    needs_inputs: ClassVar[bool] = False


class RowObjective(Objective[RowSource]):
    """An objective that needs the rows: it streams them once per product, in a fixed partition of ``batch`` samples."""
