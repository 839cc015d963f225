r"""Spectral contrastive loss over explicit triplets (x, x⁺, x⁻), streamed (Esser et al. 2024, definition 2).

    s_i = z_i·z_i⁻,     L = mean_i( -2 z_i·z_i⁺ + s_i² ) + ρ tr(Aᵀ K A)

``s²`` is a squared residual. ``-2 z·z⁺ = |z - z⁺|² - |z|² - |z⁺|²`` is a difference of convex functions: the square
keeps its curvature, the concave rest enters to first order. The all-pairs form of `spectral` is the expectation of
this loss over uniform negatives and closes over moments: prefer it unless the negatives themselves are the point.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.linalg import LinearOperator
from krepes.objectives.base import Linearisation, RowSource
from krepes.objectives.parts import CURVATURE_ROWS
from krepes.objectives.streaming import BatchLoss, StreamedObjective, batch_generator


@dataclass(frozen=True)
class SpectralTriplets(StreamedObjective):
    """Triplets from three views (x, x⁺, x⁻), or from two with the negative drawn inside the batch.

    With two views the negative of a sample is the second view of the next one in a seeded random cycle through its
    batch, so never itself unless it is alone; the draw depends on ``seed`` and ``batch`` alone.

    Attributes:
        rho: Weight of the RKHS norm ``tr(Aᵀ K A)``.
        batch: Samples streamed at once; with explicit negatives the loss does not depend on it.
        seed: Of the drawn negatives.
        curvature_rows: Samples that the curvature is taken of, in whole batches; the gradient is of all.
    """

    rho: float = 0.0
    batch: int = 1024
    seed: int = 0
    curvature_rows: int = CURVATURE_ROWS
    name: ClassVar[str] = "spectral_triplets"

    def __post_init__(self) -> None:
        require_range(self.rho, "rho", low=0.0)
        require_range(self.batch, "batch", low=1)
        require_range(self.curvature_rows, "curvature_rows", low=1)

    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the loss of batch number ``index``, ``Kbar`` ``(2 or 3, b, q + 1)``."""
        p, b = Kbar.shape[:2]
        if p == 3:
            return Triplets(negative=2, order=torch.arange(b, device=Kbar.device))
        if p == 2:
            cycle = torch.randperm(b, generator=batch_generator(self.seed, index, Kbar.device), device=Kbar.device)
            return Triplets(negative=1, order=torch.empty_like(cycle).scatter(0, cycle, cycle.roll(-1)))
        raise InvalidInputError(f"spectral triplets need 3 views (x, x+, x-), or 2 and drawn negatives, got {p}.")

    def value(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the loss, a scalar tensor, at ``theta`` ``(q + 1, h)``."""
        return super().value(data, theta) + 0.5 * (theta * self._ridge(data, theta)).sum()

    def gradient(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the gradient in ``theta``, ``(q + 1, h)``."""
        return super().gradient(data, theta) + self._ridge(data, theta)

    def linearise(self, data: RowSource, theta: Tensor) -> Linearisation:
        """Return value, gradient and curvature at ``theta``."""
        theta = theta.detach()
        part, ridge = super().linearise(data, theta), self._ridge(data, theta)
        estimate = part.estimate
        assert part.H.diagonal is not None
        diagonal = torch.nn.functional.pad(2 * self.rho * data.K.diagonal(), (0, 1))[:, None]

        def ridged(H: LinearOperator, diagonal: Tensor | None) -> LinearOperator:
            return LinearOperator(lambda v: H @ v + self._ridge(data, v), H.shape, diagonal)

        return dataclasses.replace(
            part,
            value=part.value + 0.5 * float((theta * ridge).sum()),
            gradient=part.gradient + ridge,
            H=ridged(part.H, part.H.diagonal + diagonal),
            whole=None if part.whole is None else ridged(part.whole, None),
            estimate=None if estimate is None else lambda at: estimate(at) + 0.5 * (at * self._ridge(data, at)).sum(),
        )

    def _ridge(self, data: RowSource, v: Tensor) -> Tensor:  # 2 ρ K0 v, the shift left free
        return torch.nn.functional.pad(2 * self.rho * (data.K @ v[:-1]), (0, 0, 0, 1))


@dataclass(frozen=True)
class Triplets(BatchLoss):
    """The loss of one batch: sample ``i`` meets sample ``order[i]`` of view number ``negative``."""

    negative: int
    order: Tensor

    def value(self, Z: Tensor) -> Tensor:
        """Return ``mean(-2 z·z⁺ + (z·z⁻)²)`` for ``Z`` ``(p, b, h)``."""
        s = (Z[0] * self._negatives(Z)).sum(1)
        return (s.square() - 2 * (Z[0] * Z[1]).sum(1)).mean()

    def gradient(self, Z: Tensor) -> Tensor:
        """Return the gradient in ``Z``, ``(p, b, h)``."""
        N = self._negatives(Z)
        s = (Z[0] * N).sum(1, keepdim=True)
        return 2 / Z.shape[1] * self._collect(s * N - Z[1], -Z[0], s * Z[0], Z)

    def product(self, Z: Tensor, dZ: Tensor) -> Tensor:
        """Return the curvature of ``s²`` and of ``|z - z⁺|²`` along ``dZ``, ``(p, b, h)``."""
        N, dN = self._negatives(Z), self._negatives(dZ)
        ds = (dZ[0] * N + Z[0] * dN).sum(1, keepdim=True)
        gap = dZ[0] - dZ[1]
        return 2 / Z.shape[1] * self._collect(ds * N + gap, -gap, ds * Z[0], Z)

    def summary(self, Kbar: Tensor, Z: Tensor) -> dict[str, Tensor]:
        """Return the exact ``diagonal``, ``(q + 1, h)``, from ``Kbar`` ``(p, b, q + 1)`` and ``Z`` ``(p, b, h)``."""
        N, K_n = self._negatives(Z), self._negatives(Kbar)
        squares = Kbar[0].square().T @ N.square() + K_n.square().T @ Z[0].square()
        cross = 2 * (Kbar[0] * K_n).T @ (N * Z[0])
        gap = (Kbar[0] - Kbar[1]).square().sum(0)[:, None]
        return {"diagonal": 2 / Z.shape[1] * (squares + cross + gap)}

    def _negatives(self, Z: Tensor) -> Tensor:  # (p, b, h) -> (b, h)
        return Z[self.negative][self.order]

    def _collect(self, anchor: Tensor, positive: Tensor, negative: Tensor, Z: Tensor) -> Tensor:
        """Return the three cotangents ``(b, h)`` where their views are, the negative's at the sample it came from."""
        G = torch.zeros_like(Z)
        G[0], G[1] = anchor, positive
        G[self.negative] = G[self.negative].index_add(0, self.order, negative)
        return G
