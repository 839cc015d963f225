r"""Kernels of plain vectors, given by their values on one block: samples flattened, rows in chunks of a budget.

Samples of any shape are flattened to ``(n, d)``. Rows are taken in chunks, so that neither an ``n x m x d`` array nor
a second copy of a memory-mapped ``X`` is ever formed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import batches
from krepes._describe import Description, described, fields_of
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.linalg import without_autocast


def flatten(X: Batch, what: str = "X") -> Tensor:
    """Return the samples as floating-point vectors, ``(n, d)``; the arrays of a nested batch side by side.

    Args:
        X: A batch of ``n`` samples.
        what: Its name in an error message.

    Returns:
        ``(n, d)``, finite; integers become the default floating-point type.

    Example:
        >>> flatten({"a": torch.zeros(3, 2, 2), "b": torch.ones(3)}).shape
        torch.Size([3, 5])
    """
    n = batches.count(X)
    tensors = batches.take(X, slice(0, n))
    batches.require_usable(tensors, what)
    leaves = [leaf.reshape(n, -1) for leaf in pytree.tree_leaves(tensors) if isinstance(leaf, Tensor)]
    columns = [leaf if leaf.is_floating_point() else leaf.to(torch.get_default_dtype()) for leaf in leaves]
    return torch.cat(columns, dim=1) if len(columns) > 1 else columns[0]


def squared_distances(X: Tensor, Y: Tensor) -> Tensor:
    """Return ``|x - y|²``, ``(b, m)``, for ``X`` ``(b, d)`` and ``Y`` ``(m, d)``, zero where rounding hides it."""
    # The expansion |x|² + |y|² - 2xᵀy cancels for data far from the origin; distances do not feel the shift.
    shift = Y.mean(0)
    X, Y = X - shift, Y - shift
    return distances_from_products(X @ Y.T, X.square().sum(1), Y.square().sum(1))


def distances_from_products(K: Tensor, x_squares: Tensor, y_squares: Tensor) -> Tensor:
    """Return ``|x|² + |y|² - 2 K``, zero where it is not above the rounding of its terms.

    So a sample is at distance zero from its duplicate, as in exact arithmetic, and nothing is negative.

    Args:
        K: Inner products, ``(b, m)``.
        x_squares: ``|x|²``, ``(b,)``.
        y_squares: ``|y|²``, ``(m,)``.

    Returns:
        Squared distances, ``(b, m)``.
    """
    total = x_squares.to(K.dtype)[:, None] + y_squares.to(K.dtype)
    D = total - 2 * K
    return D.mul_(D > total.mul_(32 * torch.finfo(K.dtype).eps))


def median_distance(X: Batch, *, p: float, generator: torch.Generator, sample: int) -> float:
    """Return the median ``p``-norm distance over the pairs of ``sample`` randomly drawn samples.

    Args:
        X: A batch of ``n`` samples.
        p: 1 or 2, the norm.
        generator: Draws the samples.
        sample: How many, at most ``n``.

    Returns:
        The median, positive.

    Raises:
        InvalidInputError: If the median is zero, because at least half of the pairs are equal.
    """
    chosen = torch.randperm(batches.count(X), generator=generator)[:sample]
    distances = torch.nn.functional.pdist(flatten(batches.take(X, chosen.sort().values)), p=p)
    width = float(distances.median()) if distances.numel() else 0.0
    if width <= 0:
        raise InvalidInputError(
            f"the median distance over {distances.numel()} pairs of {len(chosen)} samples is zero, so it gives no "
            f"width. At least half of the pairs must differ: drop duplicates, or give the width yourself."
        )
    return width


@dataclass(frozen=True)
class VectorKernel(Kernel):
    """A kernel of flattened samples, given by its values on one block and its diagonal in closed form.

    Attributes:
        memory_budget: A quarter of it is what the temporaries of a call may take, besides the rows that it returns.
    """

    memory_budget: MemoryBudget = field(default=DEFAULT_BUDGET, kw_only=True, compare=False)

    @abstractmethod
    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ``k(x, y)``, ``(b, m)``, for ``X`` ``(b, d)`` and ``Y`` ``(m, d)``, as a fresh tensor."""

    @abstractmethod
    def self_block(self, X: Tensor) -> Tensor:
        """Return ``k(x, x)``, ``(b,)``, for ``X`` ``(b, d)``."""

    def prepare(self, Y: Batch) -> Tensor:
        """Return ``Y`` flattened, ``(m, d)``."""
        return flatten(Y, "the prepared points")

    @without_autocast()
    def rows(self, X: Batch, prepared: Tensor, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return the kernel rows of ``X`` ``(n, ...)`` against what `prepare` returned."""
        n, m = batches.count(X), len(prepared)
        first, _ = _matching(flatten(batches.take(X, slice(0, 1))), prepared)
        K = first.new_empty(n, m)
        D = K.new_empty(n) if diagonal else None
        M = None if mean is None else K.new_empty(n)
        for piece, x in self._pieces(X, self._row_size(prepared, mean)):
            K[piece] = self.block(*_matching(x, prepared))
            if D is not None:
                D[piece] = self.self_block(x)
            if M is not None and mean is not None:
                M[piece] = self.dot_block(x, mean)
        return Rows(K=K, diagonal=D, mean=M)

    def diagonal(self, X: Batch) -> Tensor:
        """Return ``k(x, x)``, ``(n,)``, in closed form."""
        d = flatten(batches.take(X, slice(0, 1))).shape[1]
        return torch.cat([self.self_block(x) for _, x in self._pieces(X, 2 * d)])

    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``φ̄ = Σ w_i φ_{x_i}``, by default with ``w_i = 1/n``, as the points and their weights.

        Args:
            X: Reference samples, ``(n, ...)``, held in memory.
            weights: ``(n,)``, or ``None`` for the mean.

        Returns:
            The mean feature, for the ``mean`` argument of `rows`.
        """
        points = flatten(X, "the reference")
        w = reference_weights(points, weights)
        mean = MeanFeature(content=(points, w), square=0.0)
        return MeanFeature(content=mean.content, square=float(w.double() @ self.dot_mean(points, mean).double()))

    @without_autocast()
    def dot_mean(self, X: Batch, mean: MeanFeature) -> Tensor:
        """Return ``<φ_x, φ̄>``, ``(n,)``."""
        first = flatten(batches.take(X, slice(0, 1)))
        return torch.cat([self.dot_block(x, mean) for _, x in self._pieces(X, self._row_size(first, mean))])

    def dot_block(self, X: Tensor, mean: MeanFeature) -> Tensor:
        """Return ``<φ_x, φ̄>``, ``(b,)``, for ``X`` ``(b, d)``."""
        points, w = mean.content
        K = self.block(*_matching(X, points))
        return K @ w.to(K.dtype)

    def describe(self) -> Description:
        """Return the name of the kernel and its parameters."""
        return described(type(self).__name__.lower(), fields_of(self))

    def _row_size(self, prepared: Tensor, mean: MeanFeature | None) -> int:
        """Entries that one row of a block needs: the sample twice, its kernel values twice."""
        reference = 0 if mean is None or isinstance(mean.content, Tensor) else len(mean.content[0])
        return 2 * (prepared.shape[1] + len(prepared) + reference)

    def _pieces(self, X: Batch, row_size: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the flattened samples in pieces whose blocks fit the budget."""
        size = Budget.of(self.memory_budget).rows(8 * row_size, what="the kernel values of a sample", share=1 / 4)
        for piece, x in batches.chunks(X, size):
            yield piece, flatten(x, f"X, counted from sample {piece.start},")


def reference_weights(points: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weights of a mean feature over ``n`` points, ``(n,)``, ``1/n`` each by default.

    Args:
        points: ``(n, d)``.
        weights: ``(n,)``, or ``None``.

    Returns:
        ``(n,)``, of the points' type and device.

    Raises:
        InvalidInputError: If the shape is not ``(n,)``.
    """
    n = len(points)
    w = points.new_full((n,), 1.0 / n) if weights is None else weights
    if w.shape != (n,):
        raise InvalidInputError(f"{n} reference samples need weights of shape ({n},), got {tuple(w.shape)}.")
    return w.to(dtype=points.dtype, device=points.device)


def _matching(X: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """Bring two blocks of vectors to one type and the device of the second, or refuse vectors of different length."""
    if X.shape[1] != Y.shape[1]:
        raise InvalidInputError(
            f"samples of {X.shape[1]} features cannot be compared with prepared points of {Y.shape[1]}. "
            f"Encode both with the same columns."
        )
    dtype = torch.promote_types(X.dtype, Y.dtype)
    return X.to(Y.device, dtype), Y.to(dtype)
