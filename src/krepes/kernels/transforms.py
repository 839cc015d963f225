r"""Kernels that wrap kernels: the feature-space mean taken off, and every feature scaled to length one.

    Centred   k_c(x, z) = <φ_x - φ̄, φ_z - φ̄>,   φ̄ the mean feature of a reference sample, taken once
    Cosine    k_1(x, z) = k(x, z) / √(k(x, x) k(z, z))

Raw tangent kernels have one direction that holds most of the trace and hides the rest; both together, centring first,
are the default. They nest in any order, and each call of `rows` makes one call of the wrapped kernel's `rows`, which
an expensive kernel answers with one pass through the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes._describe import Description, described
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel, MeanFeature, Rows


@dataclass(frozen=True)
class CentredPoints:
    """Prepared points of the wrapped kernel, with ``<φ_z, φ̄>``, ``(m,)``."""

    points: Any
    mean: Tensor


@dataclass(frozen=True)
class CentredMean:
    """The weighted sum ``Σ w_i (φ_i - φ̄) = S - w₊ φ̄``.

    Attributes:
        total: ``S = Σ w_i φ_i``, of the wrapped kernel.
        weight: ``w₊ = Σ w_i``.
        overlap: ``<S, φ̄>``.
    """

    total: MeanFeature
    weight: float
    overlap: float


class Centred(Kernel):
    r"""``k_c(x, z) = k(x, z) - <φ_x, φ̄> - <φ_z, φ̄> + |φ̄|²``.

    Asked for a mean feature of its own (only another `Centred` around it asks), `rows` makes a second call of the
    wrapped kernel, because one call answers for one mean feature.
    """

    def __init__(self, kernel: Kernel, reference: Batch, mean: MeanFeature | None = None) -> None:
        """Take the mean feature of the reference.

        Args:
            kernel: The kernel to centre.
            reference: Samples whose mean feature becomes the origin, ``(r, ...)``.
            mean: That mean feature, where it is known already.
        """
        batches.require_usable(reference, "the reference of Centred")
        self.kernel = kernel
        self.n_reference = batches.count(reference)
        self.mean = kernel.mean_feature(reference) if mean is None else mean

    def prepare(self, Y: Batch) -> CentredPoints:
        """Return a handle on ``Y`` ``(m, ...)`` with ``<φ_z, φ̄>`` taken once."""
        return self.enter(Y)[0]

    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[CentredPoints, Rows]:
        """Return a handle on ``Y`` ``(m, ...)`` and its centred rows, from one look of the wrapped kernel."""
        points, base = self.kernel.enter(Y, gram=gram, diagonal=diagonal, mean=self.mean)
        assert base.mean is not None
        prepared = CentredPoints(points, base.mean)
        return prepared, self._centred(base, prepared if gram else None, Y, mean)

    def rows(
        self, X: Batch, prepared: CentredPoints, *, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> Rows:
        """Return the centred rows of ``X`` ``(n, ...)`` against what `prepare` returned."""
        base = self.kernel.rows(X, prepared.points, diagonal=diagonal, mean=self.mean)
        return self._centred(base, prepared, X, mean)

    def _centred(self, base: Rows, prepared: CentredPoints | None, X: Batch, mean: MeanFeature | None) -> Rows:
        """Return the rows with the mean feature taken off, against ``prepared``, or against nothing."""
        assert base.mean is not None
        K = base.K
        if prepared is not None:
            K = K - base.mean[:, None]
            K -= (prepared.mean - self.mean.square).to(K.dtype)
        return replace(
            base,
            K=K,
            diagonal=None if base.diagonal is None else self._centred_squares(base.diagonal, base.mean),
            mean=None if mean is None else self._dot(X, base.mean, mean.content),
        )

    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``Σ w_i (φ_i - φ̄)``, by default with ``w_i = 1/n``.

        Args:
            X: Samples, ``(n, ...)``.
            weights: ``(n,)``, or ``None`` for the mean.

        Returns:
            The mean feature of the centred kernel.
        """
        total = self.kernel.mean_feature(X, weights)
        overlaps = _dot_mean(self.kernel, X, self.mean).double()
        w = torch.full_like(overlaps, 1 / len(overlaps)) if weights is None else weights.to(overlaps)
        weight, overlap = float(w.sum()), float(w @ overlaps)
        square = total.square - 2 * weight * overlap + weight**2 * self.mean.square
        return MeanFeature(content=CentredMean(total, weight, overlap), square=max(square, 0.0))

    def describe(self) -> Description:
        """Return the wrapped kernel and the reference, by its size and ``|φ̄|²``."""
        settings = {"kernel": self.kernel, "n_reference": self.n_reference, "mean_square": self.mean.square}
        return described("centred", settings)

    def _dot(self, X: Batch, along: Tensor, mean: CentredMean) -> Tensor:
        """Return ``<φ_x - φ̄, S - w₊ φ̄>``, given ``along = <φ_x, φ̄>``."""
        constant = mean.weight * self.mean.square - mean.overlap
        return _dot_mean(self.kernel, X, mean.total) - mean.weight * along + constant

    def _centred_squares(self, squares: Tensor, along: Tensor) -> Tensor:
        """Return ``|φ_x - φ̄|²``, zero where it cannot be told from zero in the wrapped kernel's precision."""
        centred = squares - 2 * along + self.mean.square
        scale = squares + self.mean.square
        excess = centred / scale.clamp_min(torch.finfo(scale.dtype).tiny)
        if bool((excess < -1e-3).any()):
            i = int(excess.argmin())
            raise InvalidInputError(
                f"|φ_x - φ̄|² of sample {i} is {float(centred[i]):.2e}, with |φ_x|² = {float(squares[i]):.2e} and "
                f"|φ̄|² = {self.mean.square:.2e}: far below zero, so the wrapped kernel is not positive "
                f"semi-definite, or its diagonal and its mean feature disagree."
            )
        return torch.where(excess > 32 * torch.finfo(scale.dtype).eps, centred, torch.zeros_like(centred))


@dataclass(frozen=True)
class CosinePoints:
    """Prepared points of the wrapped kernel, with ``|φ_z|``, ``(m,)``."""

    points: Any
    norms: Tensor


@dataclass(frozen=True)
class Cosine(Kernel):
    r"""``k_1(x, z) = k(x, z) / √(k(x, x) k(z, z))``, so that ``k_1(x, x) = 1``.

    Attributes:
        kernel: The kernel to normalise. A sample of zero feature has no direction and is refused.
    """

    kernel: Kernel

    def prepare(self, Y: Batch) -> CosinePoints:
        """Return a handle on ``Y`` ``(m, ...)`` with its norms taken once."""
        return self.enter(Y)[0]

    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[CosinePoints, Rows]:
        """Return a handle on ``Y`` ``(m, ...)`` and its normalised rows, from one look of the wrapped kernel."""
        inner = None if mean is None else mean.content
        points, base = self.kernel.enter(Y, gram=gram, diagonal=True, mean=inner)
        assert base.diagonal is not None
        prepared = CosinePoints(points, _norms(base.diagonal, "the prepared points"))
        return prepared, self._normalised(base, prepared if gram else None, prepared.norms, diagonal)

    def rows(
        self, X: Batch, prepared: CosinePoints, *, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> Rows:
        """Return the normalised rows of ``X`` ``(n, ...)`` against what `prepare` returned."""
        inner = None if mean is None else mean.content
        base = self.kernel.rows(X, prepared.points, diagonal=True, mean=inner)
        assert base.diagonal is not None
        return self._normalised(base, prepared, _norms(base.diagonal, "X"), diagonal)

    def _normalised(self, base: Rows, prepared: CosinePoints | None, norms: Tensor, diagonal: bool) -> Rows:
        """Return the rows divided by the norms, against ``prepared``, or against nothing."""
        K = base.K
        if prepared is not None:
            K = K / norms[:, None]
            K /= prepared.norms.to(K.dtype)
        return replace(
            base,
            K=K,
            diagonal=torch.ones_like(norms) if diagonal else None,
            mean=None if base.mean is None else base.mean / norms,
        )

    def diagonal(self, X: Batch) -> Tensor:
        """Return ones, ``(n,)``, after the check that no feature is zero."""
        return torch.ones_like(_norms(self.kernel.diagonal(X), "X"))

    def mean_feature(self, X: Batch, weights: Tensor | None = None) -> MeanFeature:
        """Return ``Σ w_i φ_i / |φ_i|``, by default with ``w_i = 1/n``.

        Args:
            X: Samples, ``(n, ...)``.
            weights: ``(n,)``, or ``None`` for the mean.

        Returns:
            The mean feature of the normalised kernel.
        """
        norms = _norms(self.kernel.diagonal(X), "the reference")
        w = torch.full_like(norms, 1 / len(norms)) if weights is None else weights.to(norms)
        inner = self.kernel.mean_feature(X, w / norms)
        return MeanFeature(content=inner, square=inner.square)

    def describe(self) -> Description:
        """Return the wrapped kernel."""
        return described("cosine", {"kernel": self.kernel})


def default_transform(kernel: Kernel, reference: Batch) -> Cosine:
    """Return ``Cosine(Centred(kernel, reference))``, what the package uses unless told otherwise."""
    return Cosine(Centred(kernel, reference))


def _dot_mean(kernel: Kernel, X: Batch, mean: MeanFeature) -> Tensor:
    """Return ``<φ_x, φ̄>``, ``(n,)``, by rows against a single point: any kernel answers that, however it keeps φ̄."""
    values = kernel.rows(X, kernel.prepare(batches.take(X, slice(0, 1))), mean=mean).mean
    assert values is not None
    return values


def _norms(squares: Tensor, what: str) -> Tensor:
    """Return ``|φ|`` from ``|φ|²``, ``(n,)``, or refuse a feature without direction."""
    zero = (~(squares > 0)).nonzero().flatten()
    if len(zero):
        raise InvalidInputError(
            f"{len(zero)} of {len(squares)} samples in {what} have a feature of norm zero, the first at "
            f"index {int(zero[0])}: it has no direction, so no cosine. Drop them; after centring, a zero feature is a "
            f"sample that equals the mean of the reference."
        )
    return squares.sqrt()
