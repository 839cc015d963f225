r"""An encoder linearised at itself, in the span of landmarks: ``f(x) = e(x) + Bᵀ φ_x`` with ``φ_x = Rᵀ k_x``.

``R Rᵀ`` is the pseudo-inverse of the landmarks' Gram matrix: plain gradient descent in ``B`` is gradient descent
in the kernel's own space. Rows ``x̄ = [φ_x ; e(x) ; 1]`` with coefficients ``[B ; I ; 0]`` give the embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from krepes import batches
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.engine.moments import Moments, MomentSum
from krepes.engine.rows import with_progress
from krepes.engine.together import Span, merged
from krepes.kernels.base import Kernel
from krepes.linalg import top_eigenpairs
from krepes.processes import current
from krepes.views import ViewStream

SPARE = 2
"""Points that span the leading directions, in multiples of these."""


@dataclass(frozen=True)
class Linearised:
    """An encoder linearised at itself: samples in, rows ``x̄ = [φ ; e ; 1]`` ``(b, r + d + 1)`` out, float64.

    Attributes:
        encoder: Frozen: neither its weights nor its mode change.
        kernel: Its tangent kernel, raw.
        prepared: The landmark points, as the kernel prepared them.
        R: ``(q, r)``, with ``R Rᵀ`` the pseudo-inverse of their Gram matrix.
        d: Embedding dimension.
        dtype: Of the kernel's own rows: more digits than these a row does not have.
    """

    encoder: FrozenEncoder
    kernel: Kernel
    prepared: Any = field(repr=False)
    R: Tensor = field(repr=False)
    d: int
    dtype: torch.dtype = torch.float64

    @property
    def width(self) -> int:
        """Numbers of a row, ``r + d + 1``."""
        return self.R.shape[1] + self.d + 1

    @classmethod
    def of(cls, encoder: nn.Module, kernel: Kernel, points: Batch, *, rank: int = 256) -> Linearised:
        """Linearise an encoder in the span of landmark points.

        Args:
            encoder: ``(b, ...) -> (b, d)``; it is called in eval mode and left as it was.
            kernel: Its tangent kernel, neither centred nor normalised.
            points: ``(q, ...)``.
            rank: Leading directions of the span to keep, at most. Of more than `SPARE` times as many points, those are
                taken that a pivoted Cholesky factor of their Gram matrix takes first: a row costs what points cost.

        Returns:
            The linearised encoder.
        """
        frozen = FrozenEncoder.of(encoder)
        prepared, own = kernel.enter(points, gram=True)
        dtype, K = own.K.dtype, own.K.to("cpu", torch.float64)
        if len(K) > SPARE * rank:
            chosen = pivots(K, SPARE * rank)
            prepared, K = kernel.prepare(batches.take(points, chosen)), K[chosen][:, chosen]
        eps = torch.finfo(torch.float32).eps
        eigenvalues, U = top_eigenpairs((K + K.T) / 2, rcond=32 * eps)
        d = frozen.encode(batches.take(points, slice(0, 1))).shape[1]
        return cls(frozen, kernel, prepared, (U / eigenvalues.sqrt())[:, :rank], d, dtype)

    def rows(self, X: Batch) -> Tensor:
        """Return the rows of samples ``X`` ``(b, ...)``, ``(b, r + d + 1)``."""
        found = self.kernel.rows(X, self.prepared)
        # A tangent kernel meets the embedding on its way: one forward pass serves both.
        e = self.encoder.encode(X) if found.embedding is None else found.embedding.to("cpu", torch.float64)
        phi = found.K.to("cpu", torch.float64) @ self.R
        return torch.cat([phi, e, e.new_ones(len(e), 1)], dim=1)

    def pair(self, X: Batch) -> Tensor:
        """Return the rows of two views ``X`` ``(2, b, ...)``, ``(2, b, r + d + 1)``."""
        one, other = (batches.map_tensors(lambda x: x[0], X), batches.map_tensors(lambda x: x[1], X))
        return torch.stack([self.rows(one), self.rows(other)])

    def views(self, stream: ViewStream, draws: int, progress: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield samples ``(b,)`` and the rows of two views, ``(2, b, r + d + 1)``, over ``draws`` passes.

        Of several processes each goes over its own part of the samples.
        """
        us = current()
        for draw in range(draws):
            part = Span.of(stream.with_seed(stream.seed + draw), us)
            for chosen, X in with_progress(part, "lazy", progress and us.first):
                yield chosen, self.pair(X)

    def moments(
        self,
        stream: ViewStream,
        draws: int = 1,
        *,
        rows_of: Iterable[tuple[Tensor, Tensor]] | None = None,
        progress: bool = True,
    ) -> Moments:
        """Return the moments of the rows of all samples, averaged over ``draws`` of their views.

        Args:
            stream: The samples.
            draws: How often each is seen.
            rows_of: Samples and rows as `views` yields them, where somebody else needs them too.
            progress: Show a bar.

        Returns:
            The moments, of all processes.
        """
        sums = MomentSum(torch.zeros(self.width - 1, self.width - 1))
        seen = False
        for _, rows in self.views(stream, draws, progress) if rows_of is None else rows_of:
            sums.add(rows)
            seen = True
        total = merged(current(), sums.moments() if seen else None)
        assert total is not None
        return replace(total, n=stream.n)


def coefficients(B: Tensor) -> Tensor:
    """Return ``Θ = [B ; I ; 0]``, ``(r + d + 1, d)``, for ``B`` ``(r, d)``."""
    d = B.shape[1]
    return torch.cat([B, torch.eye(d).to(B), B.new_zeros(1, d)])


def pivots(K: Tensor, count: int) -> Tensor:
    """Return the points ``(count,)`` that a greedily pivoted Cholesky factor of ``K`` ``(q, q)`` takes first, sorted.

    Each is the one of which the ones before it explain least.
    """
    left, L = K.diagonal().clone(), K.new_zeros(count, len(K))
    chosen = []
    for step in range(count):
        point = int(left.argmax())
        chosen.append(point)
        if float(left[point]) > 0:
            L[step] = (K[point] - L[:step].T @ L[:step, point]) / left[point].sqrt()
            left -= L[step].square()
        left[chosen] = -torch.inf
    return torch.tensor(chosen).sort().values
