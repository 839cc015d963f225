r"""Second moments of the augmented kernel rows: all that six of the eight objectives ever see of the data.

With ``k̄ = [k ; 1]`` the augmented row of a view,

    M_uv = mean over samples of k̄_u k̄_vᵀ,      (u, v) any pair of views,

so that ``Θᵀ M_uv Θ`` is the second moment of the embeddings ``Z_u = K̄_u Θ`` and ``Z_v``, whatever ``Θ``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.errors import InvalidInputError


@dataclass(frozen=True)
class Moments:
    """Moments of ``n`` samples seen in ``p`` views through ``q = m p`` landmark points; float64.

    Attributes:
        n: Number of samples behind the means.
        M: ``(p, p, q + 1, q + 1)``, ``M[u, v] = E[k̄_u k̄_vᵀ]``; ``M[v, u]`` is its transpose.
        K: Gram matrix of the landmark points, ``(q, q)``.
        trace: ``E[k(x, x)]`` over samples and views, for kernel PCA; ``None`` where it was not collected.
        KX: ``E[k̄ xᵀ]`` with the flattened input, ``(q + 1, d)``, for the kernel autoencoder; or ``None``.
        XX: ``E[|x|²]``, beside ``KX``; or ``None``.
    """

    n: int
    M: Tensor
    K: Tensor
    trace: float | None = None
    KX: Tensor | None = None
    XX: float | None = None

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

    def centred(self, u: int, v: int) -> Tensor:
        """Return the covariance ``M_uv - μ_u μ_vᵀ``, ``(q + 1, q + 1)``; its last row and column are zero."""
        return self.M[u, v] - torch.outer(self.M[u, u, :, -1], self.M[v, v, :, -1])

    def __add__(self, other: Moments) -> Moments:
        """Merge the moments of two disjoint sets of samples seen through the same landmarks."""
        if self.M.shape != other.M.shape or not torch.equal(self.K, other.K):
            raise InvalidInputError(
                f"moments can be added only over the same landmarks and views: shapes {tuple(self.M.shape)} and "
                f"{tuple(other.M.shape)}, landmark kernels {'equal' if self.K.shape == other.K.shape else 'different'}."
            )
        a, b = self.n / (self.n + other.n), other.n / (self.n + other.n)
        return Moments(
            n=self.n + other.n,
            M=a * self.M + b * other.M,
            K=self.K,
            trace=None if self.trace is None or other.trace is None else a * self.trace + b * other.trace,
            KX=None if self.KX is None or other.KX is None else a * self.KX + b * other.KX,
            XX=None if self.XX is None or other.XX is None else a * self.XX + b * other.XX,
        )
