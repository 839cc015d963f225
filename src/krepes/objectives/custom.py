r"""Bring your own objective: a function of the embeddings, and autodiff does the rest.

    LeastSquares:  ℓ(Z) = |r(Z)|²            H = 2 JᵣᵀJᵣ
    InnerOuter:    ℓ(Z) = outer(inner(Z))    H = Jᵀ ∇²outer(u) J,   u = inner(Z)

Only the outer part contributes curvature, so it must be convex: then ``H`` is positive whatever the inner part does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from krepes import _autodiff
from krepes._checks import require_range
from krepes.objectives.parts import CURVATURE_ROWS
from krepes.objectives.streaming import BatchLoss, StreamedObjective


@dataclass(frozen=True)
class InnerOuter(StreamedObjective):
    """A loss split in two: ``outer(inner(Z))`` is the loss of a batch, and batches count by their size.

    Attributes:
        inner: From the embeddings ``Z`` ``(p, b, h)`` of a batch to any tensor ``u``.
        outer: From ``u`` to a scalar; convex in ``u``.
        name: What reports and run folders call it.
        batch: Samples in a batch, in a fixed partition. Matters if samples of a batch are compared.
        views: Views it wants of a sample.
        curvature_rows: Samples that the curvature is taken of, in whole batches; the gradient is of all.

    Note:
        A non-convex ``outer`` is met as negative curvature in the solve and raises `NonConvexOuterError`. Move more of
        the loss into ``inner``: NT-Xent is convex in its logits, not in ``Z``.
    """

    inner: Callable[[Tensor], Tensor]
    outer: Callable[[Tensor], Tensor]
    # A user's objective is named by its instance, a built-in one by its class.
    name: str = "inner_outer"  # type: ignore[misc]
    batch: int = 256
    views: int = 2  # type: ignore[misc]
    curvature_rows: int = CURVATURE_ROWS

    def __post_init__(self) -> None:
        require_range(self.batch, "batch", low=1)
        require_range(self.curvature_rows, "curvature_rows", low=1)

    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the loss of any batch."""
        return Composition(self.inner, self.outer)


@dataclass(frozen=True)
class LeastSquares(StreamedObjective):
    """A loss that is a sum of squares: ``|residuals(Z)|²`` is the loss of a batch, and batches count by their size.

    Attributes:
        residuals: From the embeddings ``Z`` ``(p, b, h)`` of a batch to any tensor. For a mean over samples divide
            by ``b ** 0.5`` inside.
        name: What reports and run folders call it.
        batch: Samples in a batch, in a fixed partition. Matters if samples of a batch are compared.
        views: Views it wants of a sample.
        curvature_rows: Samples that the curvature is taken of, in whole batches; the gradient is of all.
    """

    residuals: Callable[[Tensor], Tensor]
    name: str = "least_squares"  # type: ignore[misc]
    batch: int = 256
    views: int = 2  # type: ignore[misc]
    curvature_rows: int = CURVATURE_ROWS

    def __post_init__(self) -> None:
        require_range(self.batch, "batch", low=1)
        require_range(self.curvature_rows, "curvature_rows", low=1)

    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the loss of any batch."""
        return Composition(self.residuals, squared_norm)


@dataclass(frozen=True)
class Composition(BatchLoss):
    """``outer(inner(Z))`` by autodiff."""

    inner: Callable[[Tensor], Tensor]
    outer: Callable[[Tensor], Tensor]

    def value(self, Z: Tensor) -> Tensor:
        """Return the loss of ``Z`` ``(p, b, h)``."""
        return self.outer(self.inner(Z))

    def gradient(self, Z: Tensor) -> Tensor:
        """Return the gradient in ``Z``, ``(p, b, h)``."""
        u, pull_back = _autodiff.vjp(self.inner, Z)
        return pull_back(_autodiff.gradient(self.outer, u))

    def product(self, Z: Tensor, dZ: Tensor) -> Tensor:
        """Return ``dZ -> du -> ∇²outer du -> Jᵀ ∇²outer du``, ``(p, b, h)``."""
        u, du = _autodiff.jvp(self.inner, Z, dZ)
        _, pull_back = _autodiff.vjp(self.inner, Z)
        return pull_back(_autodiff.hessian_product(self.outer, u, du))


def squared_norm(r: Tensor) -> Tensor:
    """Return ``|r|²``, a scalar."""
    return r.square().sum()
