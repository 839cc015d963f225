r"""BYOL: predict the direction of the other view's embedding (Grill et al. 2020), against a target that stands still.

    p = z W_q,  u = p/|p|,  t = z₀/|z₀| (stop-gradient, at the expansion point Θ₀),
    L = mean over samples of |u_A - t_B|² + |u_B - t_A|²  =  4 - 2 cos(p_A, z_B) - 2 cos(p_B, z_A)

Targets and predictor are fixed where the loss is expanded, so a loss after a step is comparable with the loss before
it only if both use the same ones: `BYOL.at` returns the loss with its targets bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes._describe import Description
from krepes.errors import InvalidInputError
from krepes.objectives.base import Linearisation, RowObjective, RowSource
from krepes.objectives.parts import CURVATURE_ROWS
from krepes.objectives.streaming import BatchLoss, StreamedObjective, pull_back, require_reduction, unit_rows


@dataclass(frozen=True)
class BYOL(RowObjective):
    """The loss with its targets at whatever ``theta`` it is asked about; `at` fixes them.

    Attributes:
        predictor: ``"identity"``, or ``"ridge"`` for the linear map that best predicts the other view's target.
        ridge: Of that regression, relative to the mean variance of the embeddings.
        batch: Samples streamed at once; the loss is a mean over samples and does not depend on it.
        reduction: ``"mean"`` over samples, or their ``"sum"`` (KREPES paper), to which an absolute damping is less.
        curvature_rows: Samples that the curvature is taken of, in whole batches; the gradient is of all.
    """

    predictor: Literal["identity", "ridge"] = "identity"
    ridge: float = 1e-3
    batch: int = 1024
    reduction: Literal["mean", "sum"] = "mean"
    curvature_rows: int = CURVATURE_ROWS
    name: ClassVar[str] = "byol"

    def __post_init__(self) -> None:
        if self.predictor not in {"identity", "ridge"}:
            raise InvalidInputError(f"predictor must be 'identity' or 'ridge', got {self.predictor!r}.")
        require_range(self.ridge, "ridge", low=0.0)
        require_range(self.batch, "batch", low=1)
        require_range(self.curvature_rows, "curvature_rows", low=1)
        require_reduction(self.reduction)

    def at(self, data: RowSource, theta: Tensor) -> BoundBYOL:
        """Return the loss with targets and predictor fixed at ``theta`` ``(q + 1, h)``."""
        theta = theta.detach()
        if self.predictor == "identity":
            W = torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)
        else:
            W = self._ridge_predictor(data, theta)
        return BoundBYOL(self, theta, W)

    def value(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the loss with targets at ``theta`` itself, held constant for autograd."""
        return self.at(data, theta).value(data, theta)

    def gradient(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return the gradient in ``theta`` with the targets held constant, ``(q + 1, h)``."""
        return self.at(data, theta).gradient(data, theta)

    def linearise(self, data: RowSource, theta: Tensor) -> Linearisation:
        """Return the expansion with the targets at ``theta``."""
        return self.at(data, theta).linearise(data, theta)

    def _ridge_predictor(self, data: RowSource, theta: Tensor) -> Tensor:
        """Return ``W_q = (G + ρ I)⁻¹ E[zᵀ t]``, ``(h, h)``, over both orders of the views, as the loss sums both."""
        h = theta.shape[1]
        G, R = theta.new_zeros(h, h), theta.new_zeros(h, h)
        for Kbar in data.batches(self.batch):
            Z = Kbar @ theta
            T, _ = unit_rows(Z)
            G += pull_back(Z, Z) / (2 * data.n)
            R += pull_back(Z, T.flip(0)) / (2 * data.n)
        rho = self.ridge * float(G.diagonal().mean())
        return torch.linalg.solve(G + rho * torch.eye(h, dtype=G.dtype, device=G.device), R)


@dataclass(frozen=True)
class BoundBYOL(StreamedObjective):
    """BYOL with targets ``z/|z|`` at ``theta0`` ``(q + 1, h)`` and predictor ``W`` ``(h, h)``, both constants."""

    objective: BYOL
    theta0: Tensor = field(repr=False)
    W: Tensor = field(repr=False)
    name: ClassVar[str] = "byol"

    @property
    def batch(self) -> int:  # type: ignore[override]
        """Samples streamed at once."""
        return self.objective.batch

    @property
    def curvature_rows(self) -> int:  # type: ignore[override]
        """Samples that the curvature is taken of."""
        return self.objective.curvature_rows

    def scale(self, n: int) -> float:
        """Return by how much the loss of ``n`` samples is larger than its mean over them."""
        return float(n) if self.objective.reduction == "sum" else 1.0

    def describe(self) -> Description:
        """Return name and hyper-parameters of the objective that was bound."""
        return self.objective.describe()

    def batch_loss(self, index: int, Kbar: Tensor) -> BatchLoss:
        """Return the distance to the targets of this batch, ``Kbar`` ``(2, b, q + 1)``."""
        if Kbar.shape[0] != 2:
            raise InvalidInputError(f"BYOL compares 2 views of a sample, got {Kbar.shape[0]}.")
        T, _ = unit_rows(Kbar @ self.theta0)
        return PredictedDirection(T.flip(0), self.W)


@dataclass(frozen=True)
class PredictedDirection(BatchLoss):
    """``Σ_views mean |u - t|²`` with the other view's targets ``T`` ``(2, b, h)``."""

    T: Tensor
    W: Tensor

    def value(self, Z: Tensor) -> Tensor:
        """Return the loss of ``Z`` ``(2, b, h)``."""
        U, _ = unit_rows(Z @ self.W)
        return (U - self.T).square().sum() / Z.shape[1]

    def gradient(self, Z: Tensor) -> Tensor:
        """Return ``(2/b) Π(u - t) W_qᵀ``, ``(2, b, h)``, with ``Π g = (g - u (u·g))/|p|``."""
        U, norm = unit_rows(Z @ self.W)
        return 2 / Z.shape[1] * _project(U - self.T, U, norm) @ self.W.T

    def product(self, Z: Tensor, dZ: Tensor) -> Tensor:
        """Return ``(2/b) Π Π (dZ W_q) W_qᵀ``, ``(2, b, h)``."""
        U, norm = unit_rows(Z @ self.W)
        return 2 / Z.shape[1] * _project(_project(dZ @ self.W, U, norm), U, norm) @ self.W.T

    def least(self, Z: Tensor) -> int:
        """Return the bytes of the embeddings and of their targets."""
        return Z.nbytes + self.T.nbytes

    def summary(self, Kbar: Tensor, Z: Tensor) -> dict[str, Tensor]:
        """Return the exact diagonal and the factors of the majoriser ``H ⪯ M_w ⊗ W_q W_qᵀ``.

        Args:
            Kbar: Augmented rows, ``(2, b, q + 1)``.
            Z: Their embeddings, ``(2, b, h)``.

        Returns:
            ``diagonal``; ``M = (2/b) Σ_views K̄ᵀ diag(1/|p|²) K̄``; ``S = W_q W_qᵀ``.
        """
        U, norm = unit_rows(Z @ self.W)
        scale = 2 / Z.shape[1] / norm.square()
        unseen = self.W.square().sum(1) - (U @ self.W.T).square()
        return {
            "diagonal": pull_back(Kbar.square(), scale * unseen),
            "M": pull_back(Kbar, scale * Kbar),
            "S": self.W @ self.W.T,
        }


def _project(g: Tensor, U: Tensor, norm: Tensor) -> Tensor:
    return (g - U * (U * g).sum(-1, keepdim=True)) / norm
