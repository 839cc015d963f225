r"""Second moments of the augmented kernel rows: all that six of the eight objectives ever see of the data.

With ``k̄ = [k ; 1]`` the augmented row of a view,

    M_uv = mean over samples of k̄_u k̄_vᵀ,      (u, v) any pair of views,

so that ``Θᵀ M_uv Θ`` is the second moment of the embeddings ``Z_u = K̄_u Θ`` and ``Z_v``, whatever ``Θ``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.errors import InvalidInputError

PANEL = 512
"""Rows of the sums that one product fills, from their diagonal on: of a symmetric matrix little more than half."""


@dataclass(frozen=True)
class Moments:
    """Moments of ``n`` samples seen in ``p`` views through ``q = m p`` landmark points; float64.

    Attributes:
        n: Number of samples behind the means.
        M: ``(p, p, q + 1, q + 1)``, ``M[u, v] = E[k̄_u k̄_vᵀ]``; ``M[v, u]`` is its transpose.
        K: Gram matrix of the landmark points, ``(q, q)``.
        trace: ``E[k(x, x)]`` over samples and views, for kernel PCA; ``None`` where it was not collected.
        KX: ``E[k̄ xᵀ]`` with the flattened input, over samples and views, ``(q + 1, d)``, for the kernel autoencoder;
            or ``None``.
        XX: ``E[|x|²]``, beside ``KX``; or ``None``.
        budget: What a solve may hold beside them.
    """

    n: int
    M: Tensor
    K: Tensor
    trace: float | None = None
    KX: Tensor | None = None
    XX: float | None = None
    budget: Budget = DEFAULT_BUDGET

    @property
    def p(self) -> int:
        """Number of views."""
        return int(self.M.shape[0])

    @property
    def q(self) -> int:
        """Number of landmark points, ``m p``."""
        return int(self.K.shape[0])

    @property
    def mean(self) -> Tensor:
        """Means of the augmented rows, ``(p, q + 1)``; the last entry of each is 1."""
        return torch.stack([self.M[u, u, :, -1] for u in range(self.p)])

    @property
    def K0(self) -> Tensor:
        """``blockdiag(K, 0)``, ``(q + 1, q + 1)``: the ridge of the RKHS norm, which leaves the shift free."""
        return torch.nn.functional.pad(self.K, (0, 1, 0, 1))

    @property
    def pooled(self) -> Tensor:
        """``M``, ``(q + 1, q + 1)``, over all samples in all views alike, for the objectives of a single view."""
        return torch.stack([self.M[u, u] for u in range(self.p)]).mean(0)

    def centred(self, u: int, v: int) -> Tensor:
        """Return the covariance ``M_uv - μ_u μ_vᵀ``, ``(q + 1, q + 1)``; its last row and column are zero."""
        return self.M[u, v] - torch.outer(self.M[u, u, :, -1], self.M[v, v, :, -1])

    def pair(self, *, centre: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``M_AA, M_BB, M_AB`` of exactly two views.

        Args:
            centre: Whether to subtract the means, which takes the shift out of every loss built on them.

        Returns:
            Three matrices ``(q + 1, q + 1)``.

        Raises:
            InvalidInputError: If there are not exactly two views.
        """
        if self.p != 2:
            raise InvalidInputError(
                f"these moments hold {self.p} views, this objective compares exactly 2. Collect them from a stream "
                f"of pairs, or use an objective of a single view (kernel PCA, kernel autoencoder)."
            )
        return self._centred_pair if centre else (self.M[0, 0], self.M[1, 1], self.M[0, 1])

    @cached_property
    def _centred_pair(self) -> tuple[Tensor, Tensor, Tensor]:
        """The covariances of two views, made once for all steps and dampings of a solve."""
        return self.centred(0, 0), self.centred(1, 1), self.centred(0, 1)

    def __add__(self, other: Moments) -> Moments:
        """Merge the moments of two disjoint sets of samples seen through the same landmarks."""
        return self._merged(other, torch.lerp)

    def __iadd__(self, other: Moments) -> Moments:
        """Merge in the memory of these moments, which are no more: of the others nothing is changed."""
        return self._merged(other, Tensor.lerp_)

    def _merged(self, other: Moments, lerp: Callable[..., Tensor]) -> Moments:
        if self.M.shape != other.M.shape or not torch.equal(self.K, other.K):
            raise InvalidInputError(
                f"moments can be added only over the same landmarks and views: shapes {tuple(self.M.shape)} and "
                f"{tuple(other.M.shape)}, landmark kernels {'equal' if torch.equal(self.K, other.K) else 'different'}."
            )
        share = other.n / (self.n + other.n)

        def merge(a: Tensor, b: Tensor) -> Tensor:
            # a + share (b - a) keeps what both agree on, the constant corner, exactly as it is.
            return lerp(a, b, share)

        def merge_scalars(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else a + share * (b - a)

        return Moments(
            n=self.n + other.n,
            M=merge(self.M, other.M),
            K=self.K,
            trace=merge_scalars(self.trace, other.trace),
            KX=None if self.KX is None or other.KX is None else merge(self.KX, other.KX),
            XX=merge_scalars(self.XX, other.XX),
        )

    def __sub__(self, gone: Moments) -> Moments:
        """Return the moments without some of their samples: exactly those of a pass over the rest.

        Args:
            gone: Moments of the samples to go, over the same landmarks and views.

        Returns:
            The moments of the rest.

        Raises:
            InvalidInputError: If fewer than two samples would stay.
        """
        n = self.n - gone.n
        if n < 2:
            raise InvalidInputError(f"{gone.n} of {self.n} rows would be removed: at least two must stay.")
        share = gone.n / n

        def less(a: Tensor | None, b: Tensor | None) -> Tensor | None:
            return None if a is None or b is None else a + share * (a - b)

        def less_scalar(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else a + share * (a - b)

        return Moments(
            n=n,
            M=self.M + share * (self.M - gone.M),
            K=self.K,
            trace=less_scalar(self.trace, gone.trace),
            KX=less(self.KX, gone.KX),
            XX=less_scalar(self.XX, gone.XX),
        )


class MomentSum:
    """Running sums of one pass, about a provisional mean: `add` the rows of a batch, `moments` when all are in.

    Sums are taken of ``k̄ - s`` with ``s`` the mean of the first batch, so that round-off is relative to the spread of
    the rows and not to their size; ``k̄ = (I + s e_lastᵀ)(k̄ - s)`` undoes the shift at the end. All views stand side by
    side, so that the sums are one symmetric matrix, of which the part above the diagonal is enough. Products are taken
    in float64: moments go with the squares of the kernel's eigenvalues, so that float32 would leave nothing of a
    direction whose eigenvalue is below 1e-4 of the largest.
    """

    def __init__(self, K: Tensor) -> None:
        self.K = K.to(torch.float64)
        self.n = 0
        self._shift: Tensor | None = None
        self._S: Tensor | None = None
        self._KX: Tensor | None = None
        self._XX: Tensor | None = None
        self._trace: Tensor | None = None

    def add(self, Kbar: Tensor, *, diagonal: Tensor | None = None, X: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            Kbar: Augmented rows, ``(p, b, q + 1)``, the last column one.
            diagonal: ``k(x, x)``, ``(p, b)``, or ``None``.
            X: Flattened inputs, ``(p, b, d)``, or ``None``.

        Raises:
            InvalidInputError: If the rows do not fit the landmark kernel or the earlier batches.
        """
        p, b, width = Kbar.shape
        if width != self.K.shape[0] + 1 or (self._S is not None and len(self._S) != p * width):
            raise InvalidInputError(
                f"rows (p, b, q + 1) = {tuple(Kbar.shape)} do not fit a landmark kernel {tuple(self.K.shape)}"
                f"{'' if self._S is None else f' and earlier batches of {len(self._S) // width} views'}."
            )
        if self._shift is None or self._S is None:
            first = Kbar.sum((0, 1), dtype=torch.float64) / (p * b)
            self._shift = torch.nn.functional.pad(first[:-1], (0, 1))
            self._S = first.new_zeros(p * width, p * width)
        rows = Kbar.transpose(0, 1).to(torch.float64, memory_format=torch.contiguous_format, copy=True)  # (b, p, q + 1)
        rows -= self._shift
        flat = rows.view(b, p * width)
        for start in range(0, p * width, PANEL):
            panel = slice(start, start + PANEL)
            self._S[panel, start:].addmm_(flat[:, panel].T, flat[:, start:])
        self.n += b
        if diagonal is not None:
            self._trace = _plus(self._trace, diagonal.to(torch.float64).sum() / p)
        if X is not None:
            X = X.to(torch.float64)
            self._KX = _plus(self._KX, torch.einsum("bpk,pbd->kd", rows, X) / p)
            self._XX = _plus(self._XX, X.square().sum() / p)

    def moments(self) -> Moments:
        """Return the moments of everything added.

        Returns:
            Means over the samples.

        Raises:
            InvalidInputError: If nothing was added.
        """
        if self._S is None or self._shift is None or self.n == 0:
            raise InvalidInputError("no sample was seen: the stream of views is empty. At least one batch is required.")
        KX = None if self._KX is None else self._KX / self.n
        return Moments(
            n=self.n,
            M=_unshift(self._S, self.n, self._shift),
            K=self.K,
            trace=None if self._trace is None else float(self._trace / self.n),
            KX=None if KX is None else KX + torch.outer(self._shift, KX[-1]),
            XX=None if self._XX is None else float(self._XX / self.n),
        )


def moments_of(Kbar: Tensor, K: Tensor, *, diagonal: Tensor | None = None, X: Tensor | None = None) -> Moments:
    """Return the moments of rows held in memory.

    Args:
        Kbar: Augmented rows, ``(p, n, q + 1)``, the last column one.
        K: Gram matrix of the landmark points, ``(q, q)``.
        diagonal: ``k(x, x)``, ``(p, n)``, for kernel PCA.
        X: Flattened inputs, ``(p, n, d)``, for the kernel autoencoder.

    Returns:
        The moments, float64.

    Example:
        >>> rows = torch.tensor([[[1.0, 1.0], [3.0, 1.0]]])
        >>> moments_of(rows, torch.eye(1)).M[0, 0]
        tensor([[5., 2.],
                [2., 1.]], dtype=torch.float64)
    """
    total = MomentSum(K)
    total.add(Kbar, diagonal=diagonal, X=X)
    return total.moments()


def _unshift(S: Tensor, n: int, shift: Tensor) -> Tensor:
    """Return ``M`` from sums ``S`` about ``shift``, ``(p (q + 1), p (q + 1))`` and filled above the diagonal alone."""
    width = len(shift)
    p = len(S) // width
    blocks = S.view(p, width, p, width)
    mean = [blocks[u, :, u, -1] / n for u in range(p)]
    M = S.new_empty(p, p, width, width)
    for u in range(p):
        for v in range(u, p):
            block = torch.div(blocks[u, :, v], n, out=M[u, v])
            # The border is one sum written in several blocks: equal bits make centred blocks vanish there exactly.
            block[:, -1], block[-1, :] = mean[u], mean[v]
            block.addr_(shift, mean[v]).addr_(mean[u], shift).addr_(shift, shift)
            if u == v:
                _mirror(block)
            else:
                M[v, u] = block.T
    return M


def _mirror(block: Tensor) -> None:
    """Copy what is above the diagonal below it."""
    for start in range(0, len(block), PANEL):
        corner = block[start : start + PANEL, start : start + PANEL]
        corner.copy_(corner.triu() + corner.triu(1).T)
        block[start + PANEL :, start : start + PANEL] = block[start : start + PANEL, start + PANEL :].T


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term
