r"""What a kernel is: rows ``k(x, z_1..z_m)`` against prepared points, and the inner product with a mean feature.

    k(x, z) = <φ_x, φ_z>,     Rows.K = [k(x_i, z_j)],     Rows.diagonal = |φ_x|²,     Rows.mean = <φ_x, φ̄>

One call to `Kernel.rows` returns all three, because an expensive kernel gets them from one pass through the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from krepes import batches
from krepes._describe import Description
from krepes.batches import Batch


@dataclass(frozen=True)
class Rows:
    """Kernel rows of ``n`` samples against ``m`` prepared points.

    Attributes:
        K: Kernel values, ``(n, m)``.
        diagonal: ``k(x, x)``, ``(n,)``, or ``None`` if it was not asked for.
        mean: ``<φ_x, φ̄>``, ``(n,)``, or ``None`` if no mean feature was given.
        embedding: What the network made of the samples on the way, ``(n, d)``, or ``None`` where there is no network.
    """

    K: Tensor
    diagonal: Tensor | None = None
    mean: Tensor | None = None
    embedding: Tensor | None = None


@dataclass(frozen=True)
class MeanFeature:
    """A weighted sum of features ``φ̄ = Σ w_i φ_{x_i}``, held in whatever form its kernel finds cheap.

    Attributes:
        content: The kernel's own representation.
        square: ``|φ̄|²``.
    """

    content: Any
    square: float


class Kernel(ABC):
    """A positive semi-definite kernel that can be evaluated against prepared points in bounded memory."""

    @abstractmethod
    def prepare(self, Y: Batch) -> Any:
        """Return a handle on ``Y`` ``(m, ...)`` that makes repeated calls of `rows` cheap."""

    @abstractmethod
    def rows(self, X: Batch, prepared: Any, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return the kernel rows of ``X`` ``(n, ...)`` against what `prepare` returned."""

    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[Any, Rows]:
        """Prepare ``Y`` and say at once what is known of it; an expensive kernel looks at each sample once for all.

        Args:
            Y: Samples, ``(m, ...)``.
            gram: Whether their rows against themselves are wanted.
            diagonal: Whether ``k(z, z)`` is wanted.
            mean: A mean feature of this kernel to take the inner product with, or ``None``.

        Returns:
            What `prepare` returns, and the rows of ``Y``: ``K`` is ``(m, m)``, or ``(m, 0)`` where it is not wanted.
        """
        prepared = self.prepare(Y)
        if gram:
            return prepared, self.rows(Y, prepared, diagonal=diagonal, mean=mean)
        found = self.rows(Y, self.prepare(batches.take(Y, slice(0, 1))), diagonal=diagonal, mean=mean)
        return prepared, replace(found, K=found.K[:, :0])

    @abstractmethod
    def describe(self) -> Description:
        """Return ``{"name": ..., **settings}``, all that fixes the kernel, as plain JSON values for a manifest."""

    def __call__(self, X: Batch, Y: Batch) -> Tensor:
        """Return ``K``, ``(n, m)``, between the samples ``X`` and ``Y``."""
        return self.rows(X, self.prepare(Y)).K

    def diagonal(self, X: Batch) -> Tensor:
        """Return ``k(x, x)``, ``(n,)``, without the off-diagonal entries."""
        values = self.rows(X, self.prepare(batches.take(X, slice(0, 1))), diagonal=True).diagonal
        assert values is not None
        return values

    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``φ̄ = Σ w_i φ_{x_i}``, by default with ``w_i = 1/n``.

        The general form keeps the reference points prepared, with their weights ``w``: `rows` then has
        ``<φ_x, φ̄> = K w`` against them. Kernels with an explicit feature space override it with one vector.

        Args:
            X: Reference samples, ``(n, ...)``.
            weights: ``(n,)``, or ``None`` for the mean.

        Returns:
            The mean feature, for the ``mean`` argument of `rows`.
        """
        n = batches.count(X)
        prepared = self.prepare(X)
        K = self.rows(X, prepared).K
        w = K.new_full((n,), 1.0 / n) if weights is None else weights.to(K)
        return MeanFeature(content=(prepared, w), square=float(w.double() @ (K.double() @ w.double())))
