r"""Kernels of plain vectors: linear, RBF, polynomial, Laplacian. The method works with them without any network.

Linear       k(x, z) = xᵀz
RBF          k(x, z) = exp(-|x - z|² / (2 width²))
Polynomial   k(x, z) = (scale xᵀz + offset)^degree
Laplacian    k(x, z) = exp(-|x - z|₁ / width)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.kernels.base import MeanFeature
from krepes.kernels.vectors import VectorKernel, flatten, median_distance, reference_weights, squared_distances


@dataclass(frozen=True)
class Linear(VectorKernel):
    """``k(x, z) = xᵀz``, whose feature is the sample itself.

    Example:
        >>> Linear()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[11.,  2.]])
    """

    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ``xᵀy``, ``(b, m)``."""
        return X @ Y.T

    def self_block(self, X: Tensor) -> Tensor:
        """Return ``|x|²``, ``(b,)``."""
        return X.square().sum(1)

    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``Σ w_i x_i`` as one vector ``(d,)``, summed in float64."""
        points = flatten(X, "the reference")
        total = reference_weights(points, weights).double() @ points.double()
        return MeanFeature(content=total.to(points.dtype), square=float(total @ total))

    def dot_block(self, X: Tensor, mean: MeanFeature) -> Tensor:
        """Return ``xᵀ φ̄``, ``(b,)``."""
        return X @ mean.content.to(X)


@dataclass(frozen=True)
class Polynomial(VectorKernel):
    """``k(x, z) = (scale xᵀz + offset)^degree``.

    Attributes:
        degree: At least 1.
        offset: At least 0, or the kernel would not be positive.
        scale: Above 0; ``1 / d`` keeps the values near 1 for standardised features.
    """

    degree: int = 3
    offset: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_range(self.degree, "degree", low=1)
        require_range(self.offset, "offset", low=0)
        _require_positive(self.scale, "scale")

    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ``(scale xᵀy + offset)^degree``, ``(b, m)``."""
        return (X @ Y.T).mul_(self.scale).add_(self.offset).pow_(self.degree)

    def self_block(self, X: Tensor) -> Tensor:
        """Return ``(scale |x|² + offset)^degree``, ``(b,)``."""
        return (self.scale * X.square().sum(1) + self.offset) ** self.degree


@dataclass(frozen=True)
class RBF(VectorKernel):
    """``k(x, z) = exp(-|x - z|² / (2 width²))``.

    Attributes:
        width: Distance at which the value has fallen to ``exp(-1/2)``; `RBF.median` takes it from data.
    """

    width: float

    def __post_init__(self) -> None:
        _require_positive(self.width, "width")

    @classmethod
    def median(cls, X: Batch, *, generator: torch.Generator, sample: int = 1000) -> RBF:
        """Return the kernel whose width is the median distance between samples of ``X``."""
        return cls(median_distance(X, p=2.0, generator=generator, sample=sample))

    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ``exp(-|x - y|² / (2 width²))``, ``(b, m)``."""
        return squared_distances(X, Y).mul_(-0.5 / self.width**2).exp_()

    def self_block(self, X: Tensor) -> Tensor:
        """Return ones, ``(b,)``."""
        return X.new_ones(len(X))


@dataclass(frozen=True)
class Laplacian(VectorKernel):
    """``k(x, z) = exp(-|x - z|₁ / width)``, rougher than the RBF and less moved by one outlying feature.

    Attributes:
        width: Distance at which the value has fallen to ``1/e``; `Laplacian.median` takes it from data.
    """

    width: float

    def __post_init__(self) -> None:
        _require_positive(self.width, "width")

    @classmethod
    def median(cls, X: Batch, *, generator: torch.Generator, sample: int = 1000) -> Laplacian:
        """Return the kernel whose width is the median L1 distance between samples of ``X``."""
        return cls(median_distance(X, p=1.0, generator=generator, sample=sample))

    def block(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return ``exp(-|x - y|₁ / width)``, ``(b, m)``."""
        return torch.cdist(X, Y, p=1.0).mul_(-1 / self.width).exp_()

    def self_block(self, X: Tensor) -> Tensor:
        """Return ones, ``(b,)``."""
        return X.new_ones(len(X))


def _require_positive(value: float, what: str) -> None:
    if not 0 < value < float("inf"):
        raise InvalidInputError(f"{what}={value:g} is out of range: it must be positive and finite.")
