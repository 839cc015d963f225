r"""SimCLR: the normalised-temperature cross entropy over the pairs of a batch (Chen et al. 2020).

    u = z/|z|,   ℓ = U Uᵀ/τ without its diagonal,   p = row softmax of ℓ,   L = -mean over 2b rows of log p[i, pair(i)]

The Gauss-Newton split is at the logits: cross entropy is convex in ``ℓ`` with curvature ``Q_i = diag(p_i) - p_i p_iᵀ``.
At the embeddings themselves it is not convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.objectives.base import Product
from krepes.objectives.parts import CURVATURE_ROWS
from krepes.objectives.streaming import (
    BatchLoss,
    StreamedObjective,
    batch_generator,
    pull_back,
    require_reduction,
    unit_rows,
)


@dataclass(frozen=True)
class SimCLR(StreamedObjective):
    """NT-Xent over a fixed partition into batches of ``batch`` pairs; the partition is part of the loss.

    Attributes:
        tau: Temperature; 0.2 is the usual value on small images.
        batch: Pairs in a batch, so that each row has ``2 batch - 2`` negatives.
        probes: Draws of the Monte-Carlo Fisher estimate of the curvature's diagonal.
        seed: Of those draws.
        reduction: ``"mean"`` over the 2n rows, or their ``"sum"`` (KREPES paper), to which an absolute damping is less.
        curvature_rows: Samples that the curvature is taken of, in whole batches; the gradient is of all.
    """

    tau: float = 0.2
    batch: int = 256
    probes: int = 8
    seed: int = 0
    reduction: Literal["mean", "sum"] = "mean"
    curvature_rows: int = CURVATURE_ROWS
    name: ClassVar[str] = "simclr"

    def __post_init__(self) -> None:
        require_range(self.tau, "tau", low=1e-6)
        require_range(self.batch, "batch", low=2)
        require_range(self.probes, "probes", low=1)
        require_range(self.curvature_rows, "curvature_rows", low=1)
        require_reduction(self.reduction)

    def scale(self, n: int) -> float:
        """Return by how much the loss is larger than its mean over rows: two of each sample."""
        return 2.0 * n if self.reduction == "sum" else 1.0

    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the cross entropy of batch number ``index``, ``Kbar`` ``(2, b, q + 1)``."""
        if Kbar.shape[0] != 2:
            raise InvalidInputError(f"SimCLR compares 2 views of a sample, got {Kbar.shape[0]}.")
        return NTXent(self.tau, self.probes, self.seed, index)


@dataclass(frozen=True)
class NTXent(BatchLoss):
    """The cross entropy of batch number ``index``; the probes of `summary` are drawn from ``seed`` and ``index``."""

    tau: float
    probes: int
    seed: int
    index: int

    def value(self, Z: Tensor) -> Tensor:
        """Return ``-mean log p[i, pair(i)]`` for ``Z`` ``(2, b, h)``."""
        U, _ = unit_rows(Z.flatten(0, 1))
        return torch.nn.functional.cross_entropy(self._logits(U), _pairs(U))

    def gradient(self, Z: Tensor) -> Tensor:
        """Return the gradient in ``Z``, ``(2, b, h)``: the cotangent on the logits is ``(p - y)/2b``."""
        U, norm = unit_rows(Z.flatten(0, 1))
        residual = self._logits(U).softmax(1) - torch.nn.functional.one_hot(_pairs(U), U.shape[0])
        return self._pull(residual / U.shape[0], U, norm).view_as(Z)

    def product(self, Z: Tensor, dZ: Tensor) -> Tensor:
        """Return ``Jᵀ Q J dZ``, ``(2, b, h)``, with ``J`` the derivative of the logits."""
        return self.curvature(Z)(dZ)

    def curvature(self, Z: Tensor) -> Product:
        """Return ``dZ -> Jᵀ Q J dZ`` at ``Z``: products share the probabilities, which are most of the work."""
        U, norm = unit_rows(Z.flatten(0, 1))
        p, slope = self._logits(U).softmax(1), 1 / (self.tau * norm)

        def product(dZ: Tensor) -> Tensor:
            half = (_tangent(dZ.flatten(0, 1), U) * slope) @ U.T
            # The diagonal of the logits is masked; p is zero there, so dl needs no mask of its own.
            dl = half + half.T
            S = (dl - (p * dl).sum(1, keepdim=True)).mul_(p)
            return (_tangent((S + S.T) @ U, U) * (slope / U.shape[0])).view_as(dZ)

        return product

    def held(self, Z: Tensor) -> int:
        """Return the bytes that `curvature` keeps: directions, lengths, and the probability of each pair of rows."""
        rows = Z.shape[0] * Z.shape[1]
        return Z.nbytes + rows * (rows + 1) * Z.element_size()

    def summary(self, Kbar: Tensor, Z: Tensor) -> dict[str, Tensor]:
        """Return the Monte-Carlo Fisher diagonal, the mean of ``g²`` with ``y_i ~ p_i`` and ``g = Jᵀ(onehot(y) - p)``.

        No Kronecker factors: those of the same draws cost plain conjugate gradients half as many iterations again.

        Args:
            Kbar: Augmented rows, ``(2, b, q + 1)``.
            Z: Their embeddings, ``(2, b, h)``.

        Returns:
            ``diagonal``, unbiased and non-negative.
        """
        U, norm = unit_rows(Z.flatten(0, 1))
        p, rows = self._logits(U).softmax(1), U.shape[0]
        generator = batch_generator(self.seed, self.index, Z.device)
        diagonal = Z.new_zeros(Kbar.shape[2], Z.shape[2])
        for y in torch.multinomial(p, self.probes, replacement=True, generator=generator).T:
            g = self._pull((torch.nn.functional.one_hot(y, rows) - p) / rows**0.5, U, norm)
            diagonal += pull_back(Kbar, g.view_as(Z)).square() / self.probes
        return {"diagonal": diagonal}

    def _logits(self, U: Tensor) -> Tensor:  # (2b, h) -> (2b, 2b)
        return (U @ U.T / self.tau).masked_fill(torch.eye(U.shape[0], dtype=torch.bool, device=U.device), -torch.inf)

    def _pull(self, S: Tensor, U: Tensor, norm: Tensor) -> Tensor:  # cotangent of the logits (2b, 2b) -> of z (2b, h)
        return _tangent((S + S.T) @ U / self.tau, U) / norm


def _tangent(g: Tensor, U: Tensor) -> Tensor:
    """Return ``(I - u uᵀ) g`` row by row, ``(2b, h)``."""
    return g - U * (U * g).sum(1, keepdim=True)


def _pairs(U: Tensor) -> Tensor:
    """Return the index of each row's positive, ``(2b,)``: view A first, then view B."""
    return torch.arange(U.shape[0], device=U.device).roll(U.shape[0] // 2)
