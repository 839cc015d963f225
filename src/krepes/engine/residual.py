r"""The surrogate that starts at the encoder: ``f(x) = e(x) + Aᵀ k_x + γ`` with ``A = 0``, not at principal components.

With rows ``[k_x ; e(x) ; 1]`` and coefficients ``[A ; I ; γᵀ]`` every loss of moments is what it was; only ``A`` and
``γ`` are free. A fit takes three pieces: `WithEmbedding` in place of the kernel, for the pass; `Residual` in place of
the objective, for the step; and `residual_start`. All that moves is ``Aᵀk_x + γ``: contributions sum to the shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.engine.moments import Moments
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.linalg import LinearOperator
from krepes.objectives.base import Linearisation, MomentObjective


@dataclass(frozen=True)
class WithEmbedding(Kernel):
    """Rows ``[k_x ; e(x)]`` ``(n, q + d)``: a kernel's, with the embedding beside them.

    Attributes:
        kernel: With its transforms.
        encoder: Frozen, ``(n, ...) -> (n, d)``.
    """

    kernel: Kernel
    encoder: nn.Module

    def prepare(self, Y: Batch) -> Any:
        """Return what the kernel prepares of ``Y`` ``(q, ...)``."""
        return self.kernel.prepare(Y)

    def rows(self, X: Batch, prepared: Any, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return the rows of ``X`` ``(n, ...)`` with their embeddings."""
        found = self.kernel.rows(X, prepared, diagonal=diagonal, mean=mean)
        was_training = self.encoder.training
        with torch.no_grad():
            e = self.encoder.eval()(X)
        self.encoder.train(was_training)
        return Rows(torch.cat([found.K, e.to(found.K)], dim=1), found.diagonal, found.mean)

    def describe(self) -> dict[str, Any]:
        """Return the kernel's settings."""
        return {**self.kernel.describe(), "embedding": True}


def residual_gram(K_mm: Tensor, d: int) -> Tensor:
    """Return ``blockdiag(K_mm, 0)``, ``(q + d, q + d)``: the embedding's part of ``f`` costs no norm."""
    return torch.block_diag(K_mm, K_mm.new_zeros(d, d))


def residual_start(q: int, d: int) -> Tensor:
    """Return ``[A ; γᵀ] = 0``, ``(q + 1, d)``, float64."""
    return torch.zeros(q + 1, d, dtype=torch.float64)


@dataclass(frozen=True)
class Residual(MomentObjective):
    """A loss of moments as a function of what is added to the encoder.

    Attributes:
        objective: The loss.
        d: Embedding dimension; moments have ``q + d`` points, ``theta`` is ``(q + 1, d)``.
    """

    objective: MomentObjective
    d: int

    def __post_init__(self) -> None:
        """Refuse losses that see more than two views' embeddings."""
        if self.objective.needs_inputs or self.objective.needs_trace:
            raise InvalidInputError(
                f"{self.objective.name!r} reconstructs inputs or features from the kernel alone, and has no residual "
                f"form. Use a loss of two views."
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The loss's own name."""
        return self.objective.name

    def whole(self, theta: Tensor) -> Tensor:
        """Return ``[A ; I ; γᵀ]``, ``(q + d + 1, d)``, for ``theta = [A ; γᵀ]``."""
        if theta.shape[1] != self.d:
            raise InvalidInputError(
                f"the residual surrogate has the encoder's own {self.d} dimensions, theta has {theta.shape[1]}. Set "
                f"h={self.d}."
            )
        return torch.cat([theta[:-1], torch.eye(self.d).to(theta), theta[-1:]])

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, d)``."""
        return self.objective.value(data, self.whole(theta))

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient in ``theta``, ``(q + 1, d)``."""
        return self._free(self.objective.gradient(data, self.whole(theta)))

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient and the curvature between the free coefficients; its solver is plain CG."""
        found = self.objective.linearise(data, self.whole(theta))

        def product(V: Tensor) -> Tensor:
            padded = torch.cat([V[:-1], V.new_zeros(self.d, self.d), V[-1:]])
            return self._free(found.H @ padded)

        diagonal = None if found.H.diagonal is None else self._free(found.H.diagonal)
        H = LinearOperator(product, tuple(theta.shape), diagonal)
        return Linearisation(found.value, self._free(found.gradient), H)

    def _free(self, G: Tensor) -> Tensor:
        """Return the rows of ``A`` and ``γ`` out of ``(q + d + 1, d)``."""
        return torch.cat([G[: -self.d - 1], G[-1:]])
