r"""The surrogate that starts at the encoder: ``f(x) = e(x) + Aᵀ k_x`` with ``A = 0``, not at principal components.

With rows ``[k_x ; e(x) ; 1]`` and coefficients ``Θ = [A ; I ; 0]`` every loss is what it was, of moments or of rows;
only ``A`` is free. The pass takes `WithEmbedding` in place of the kernel, the step `Residual` in place of the
objective, and `solve_from_encoder` does the step. All that moves is ``Aᵀ k_x``: contributions sum to the shift. There
is no free shift: a layer's own bias is among the features of the tangent kernel already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from krepes._describe import Description
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.engine.moments import Moments
from krepes.engine.solution import Solution
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import shared_cholesky
from krepes.objectives.base import Linearisation, Objective, Product

NEAR = 0.45
"""How far a search may move the embeddings, as a part of their size: a lower loss further away is another encoder's."""
PIECE = 1024
"""Rows whose movement is looked at together."""


@dataclass(frozen=True)
class WithEmbedding(Kernel):
    """Rows ``[k_x ; e(x)]`` ``(n, q + d)``: a kernel's, with the embedding beside them.

    Attributes:
        kernel: With its transforms.
        encoder: ``(n, ...) -> (n, d)``.
    """

    kernel: Kernel
    encoder: FrozenEncoder

    def prepare(self, Y: Batch) -> Any:
        """Return what the kernel prepares of ``Y`` ``(q, ...)``."""
        return self.kernel.prepare(Y)

    def rows(self, X: Batch, prepared: Any, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return the rows of ``X`` ``(n, ...)`` with their embeddings."""
        return self._beside(self.kernel.rows(X, prepared, diagonal=diagonal, mean=mean), X)

    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[Any, Rows]:
        """Return what the kernel prepares of ``Y`` ``(q, ...)``, and its rows with their embeddings."""
        prepared, found = self.kernel.enter(Y, gram=gram, diagonal=diagonal, mean=mean)
        return prepared, self._beside(found, Y)

    def _beside(self, found: Rows, X: Batch) -> Rows:
        """Return the rows with the embeddings beside them: those that the kernel met on its way, where it did."""
        Z = self.encoder.encode(X) if found.embedding is None else found.embedding
        return replace(found, K=torch.cat([found.K, Z.to(found.K)], dim=1))

    def describe(self) -> Description:
        """Return the kernel's settings, and those of the encoder."""
        return {**self.kernel.describe(), "embedding": self.encoder.describe()}


def residual_gram(K_mm: Tensor, d: int) -> Tensor:
    """Return ``blockdiag(K_mm, 0)``, ``(q + d, q + d)``: the embedding's part of ``f`` costs no norm."""
    return torch.block_diag(K_mm, K_mm.new_zeros(d, d))


def require_residual(objective: Objective[Any]) -> None:
    """Refuse a loss that sees more than embeddings.

    Args:
        objective: The loss.

    Raises:
        InvalidInputError: If it reconstructs inputs or features.
    """
    if getattr(objective, "needs_inputs", False) or getattr(objective, "needs_trace", False):
        raise InvalidInputError(
            f"{objective.name!r} reconstructs inputs or features from the kernel alone, and cannot start at the "
            f"encoder. Use a loss of embeddings (barlow_twins, vicreg, spectral, simple, simclr, byol, "
            f"spectral_triplets, or one of your own), or init='pca'."
        )


@dataclass(frozen=True)
class Residual(Objective[Any]):
    """A loss as a function of what is added to the encoder, ``A`` ``(q, d)``; its data have ``q + d`` points.

    Attributes:
        objective: The loss, of moments or of rows.
        d: Embedding dimension.
    """

    objective: Objective[Any]
    d: int

    def __post_init__(self) -> None:
        """Refuse losses that see more than embeddings."""
        require_residual(self.objective)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The loss's own name."""
        return self.objective.name

    def whole(self, A: Tensor) -> Tensor:
        """Return ``Θ = [A ; I ; 0]``, ``(q + d + 1, d)``, for ``A`` ``(q, d)``."""
        if A.shape[1] != self.d:
            raise InvalidInputError(
                f"the model that starts at the encoder has its {self.d} dimensions, A has {A.shape[1]}. Set h={self.d}."
            )
        return torch.cat([A, torch.eye(self.d).to(A), A.new_zeros(1, self.d)])

    def at(self, data: Any, theta: Tensor) -> Residual:
        """Return the loss with its targets where ``A`` ``(q, d)`` puts them."""
        return replace(self, objective=self.objective.at(data, self.whole(theta)))

    def value(self, data: Any, theta: Tensor) -> Tensor:
        """Return the loss at ``A`` ``(q, d)``."""
        return self.objective.value(data, self.whole(theta))

    def gradient(self, data: Any, theta: Tensor) -> Tensor:
        """Return the gradient in ``A``, ``(q, d)``."""
        return self.objective.gradient(data, self.whole(theta))[: len(theta)]

    def near(self, data: Any, theta: Tensor) -> bool:
        """Return whether ``A`` ``(q, d)`` moves the embeddings by no more than `NEAR` of their size."""
        return bool(moved(data, theta) <= NEAR)

    def linearise(self, data: Any, theta: Tensor) -> Linearisation:
        """Return value, gradient, and the curvature between the free coefficients with its preconditioner."""
        q, found = len(theta), self.objective.linearise(data, self.whole(theta))

        def free(H: LinearOperator) -> LinearOperator:
            def product(V: Tensor) -> Tensor:
                return (H @ torch.nn.functional.pad(V, (0, 0, 0, self.d + 1)))[:q]

            return LinearOperator(product, tuple(theta.shape), None if H.diagonal is None else H.diagonal[:q])

        H, estimate = free(found.H), found.estimate
        return Linearisation(
            found.value,
            found.gradient[:q],
            H,
            _preconditioner(data, H),
            rows=found.rows,
            whole=None if found.whole is None else free(found.whole),
            estimate=None if estimate is None else lambda A: estimate(self.whole(A)),
        )


def moved(data: Any, A: Tensor) -> float:
    """Return the size of ``Aᵀk`` as a part of that of ``e``, both centred, root mean squares over the first view.

    Args:
        data: Moments or rows ``[k ; e ; 1]``.
        A: ``(q, d)``.

    Returns:
        The part; not a number or infinite if nothing is left to compare.
    """
    q, d = A.shape
    if isinstance(data, Moments):
        C = data.centred(0, 0)
        shift, size = (A * (C[:q, :q] @ A)).sum(), C.diagonal()[q : q + d].sum()
    else:
        spread = _spread(torch.cat([rows[0][:, :q] @ A, rows[0][:, q : q + d]], dim=1) for rows in data.batches(PIECE))
        shift, size = spread[:d].sum(), spread[d:].sum()
    return float((shift / size).sqrt())


def _spread(parts: Iterable[Tensor]) -> Tensor:
    """Return ``Σ (x - mean)²`` of every column ``(c,)`` of rows in parts ``(b, c)``, of which one is held at a time."""
    n, mean, total = 0, torch.zeros(()), torch.zeros(())
    for part in parts:
        own, count = part.mean(0), len(part)
        gap = own - mean
        total = total + (part - own).square().sum(0) + gap.square() * (n * count / (n + count))
        mean, n = mean + gap * (count / (n + count)), n + count
    return total


def _preconditioner(data: Any, H: LinearOperator) -> Callable[[float], Product] | None:
    """Return the inverse of ``σ C ⊗ I + damping·I`` with ``C`` the covariance of the kernel rows, of moments."""
    if not isinstance(data, Moments) or H.diagonal is None:
        return None
    q = len(H.diagonal)
    C = (data.centred(0, 0) + data.centred(1, 1))[:q, :q]
    return shared_cholesky(C * (H.diagonal.mean() / C.diagonal().mean()))


def solve_from_encoder(objective: Objective[Any], data: Any, q: int, d: int, **how: Any) -> Solution:
    """Take the step from the encoder.

    Args:
        objective: The loss.
        data: Moments or rows ``[k ; e ; 1]``.
        q: Landmark points.
        d: Embedding dimension.
        **how: As `krepes.engine.solvers.solve` takes it.

    Returns:
        The solution, its coefficients whole: ``[A ; I ; 0]``, ``(q + d + 1, d)``.
    """
    residual = Residual(objective, d)
    found = solve(residual, data, torch.zeros(q, d, dtype=torch.float64), **how)
    return replace(found, theta0=residual.whole(found.theta0), theta=residual.whole(found.theta))
