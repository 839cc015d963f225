r"""VICReg: views agree, every dimension keeps its spread, dimensions do not repeat each other.

    L = w_inv tr(Θᵀ D Θ) + Σ_u { (w_var/h) Σ_j (t - s_uj)_+  +  (w_cov/h) Σ_{i≠j} (S_u)²_ij },

    D = E (k̄_A - k̄_B)(k̄_A - k̄_B)ᵀ,   S_u = Θᵀ T_u Θ,   T_u = n/(n-1) cov(k̄_u),   s_uj = √(S_u,jj + eps)

(Bardes et al. 2022). The invariance and covariance terms are sums of squares; the hinge is not, and has a gradient but
no curvature of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.engine.moments import Moments
from krepes.errors import InvalidInputError
from krepes.linalg import LinearOperator
from krepes.objectives._inverses import shared_cholesky
from krepes.objectives.base import Linearisation, MomentObjective

# A hinge within 1e-3 of its target would have a reweighted curvature without bound.
SLACK_FLOOR = 1e-3


@dataclass(frozen=True)
class VICReg(MomentObjective):
    """VICReg from second moments; the shift drops out of every term.

    Attributes:
        inv_weight: Weight of the invariance term.
        var_weight: Weight of the variance hinge.
        cov_weight: Weight of the covariance term.
        std_target: Standard deviation below which the hinge is active.
        eps: Added to the variances under the root.
        hinge_curvature: ``"irls"`` gives an active hinge of slack ``x0 = t - s`` the curvature of its quadratic upper
            bound ``x²/(2 x0) + x0/2``, which touches it with the same slope; ``"none"`` is the KREPES paper, whose
            step needs a far larger damping because nothing limits the growth of a dimension.
        inv_reduction: ``"n"`` divides ``|Z_A - Z_B|²`` by n (KREPES paper), ``"nh"`` also by h (the authors' code).
        var_halved: Average the hinge over the two views instead of adding it (the authors' code).
    """

    name: ClassVar[str] = "vicreg"
    inv_weight: float = 25.0
    var_weight: float = 25.0
    cov_weight: float = 1.0
    std_target: float = 1.0
    eps: float = 1e-4
    hinge_curvature: Literal["irls", "none"] = "irls"
    inv_reduction: Literal["n", "nh"] = "n"
    var_halved: bool = False

    def __post_init__(self) -> None:
        for name in ("inv_weight", "var_weight", "cov_weight", "std_target", "eps"):
            require_range(getattr(self, name), name, low=0.0)
        if self.hinge_curvature not in {"irls", "none"} or self.inv_reduction not in {"n", "nh"}:
            raise InvalidInputError(
                f"hinge_curvature={self.hinge_curvature!r} must be 'irls' or 'none', and "
                f"inv_reduction={self.inv_reduction!r} 'n' or 'nh'."
            )

    def value(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the loss at ``theta`` ``(q + 1, h)``."""
        w = self._weights(theta)
        D, views = self._parts(data, theta)
        hinge = sum((self.std_target - view.s).clamp_min(0).sum() for view in views)
        covariance = sum(view.off.square().sum() for view in views)
        return w.inv * (theta * (D @ theta)).sum() + w.var * hinge + w.cov * covariance

    def gradient(self, data: Moments, theta: Tensor) -> Tensor:
        """Return the gradient at ``theta``, ``(q + 1, h)``."""
        D, views = self._parts(data, theta)
        return self._gradient(D, views, theta)

    def linearise(self, data: Moments, theta: Tensor) -> Linearisation:
        """Return value, gradient, curvature and the shared Cholesky preconditioner at ``theta``."""
        w = self._weights(theta)
        D, views = self._parts(data, theta)
        rank_one = [self._hinge_curvature(view, w) for view in views]

        def product(V: Tensor) -> Tensor:
            Hv = 2 * w.inv * (D @ V)
            for view, c in zip(views, rank_one, strict=True):
                N = view.N
                Hv = Hv + 4 * w.cov * N @ _off_diagonal(V.T @ N + N.T @ V) + N * (c * (N * V).sum(0))
            return Hv

        diagonal = (2 * w.inv * D.diagonal())[:, None] + sum(
            4 * w.cov * (view.N.square().sum(1, keepdim=True) - view.N.square()) + c * view.N.square()
            for view, c in zip(views, rank_one, strict=True)
        )
        B = 2 * w.inv * D + sum(
            (view.N * (4 * w.cov + c / theta.shape[1])) @ view.N.T for view, c in zip(views, rank_one, strict=True)
        )
        return Linearisation(
            value=float(self.value(data, theta)),
            gradient=self._gradient(D, views, theta),
            H=LinearOperator(product, tuple(theta.shape), diagonal),
            preconditioner=shared_cholesky(B),
        )

    def _parts(self, moments: Moments, theta: Tensor) -> tuple[Tensor, list[_View]]:
        M_AA, M_BB, M_AB = moments.pair()
        # Grouped so that the border, which cancels in exact arithmetic, cancels in floating point too.
        D = (M_AA - M_AB) + (M_BB - M_AB.T)
        unbiased = moments.n / max(moments.n - 1, 1)
        return D, [_View.at(unbiased * moments.centred(u, u), theta, self.eps) for u in range(2)]

    def _gradient(self, D: Tensor, views: list[_View], theta: Tensor) -> Tensor:
        w = self._weights(theta)
        g = 2 * w.inv * (D @ theta)
        for view in views:
            pull = torch.where(view.s < self.std_target, 1 / view.s, 0)
            g = g + 4 * w.cov * view.N @ view.off - w.var * view.N * pull
        return g

    def _hinge_curvature(self, view: _View, w: _Weights) -> Tensor:
        """Weights ``(h,)`` of the rank-one terms ``N_j N_jᵀ``, zero where the hinge is idle."""
        if self.hinge_curvature == "none":
            return torch.zeros_like(view.s)
        slack = self.std_target - view.s
        return torch.where(slack > 0, w.var / (slack.clamp_min(SLACK_FLOOR) * view.s.square()), 0)

    def _weights(self, theta: Tensor) -> _Weights:
        h = theta.shape[1]
        return _Weights(
            inv=self.inv_weight / (h if self.inv_reduction == "nh" else 1),
            var=self.var_weight / h / (2 if self.var_halved else 1),
            cov=self.cov_weight / h,
        )


@dataclass(frozen=True)
class _Weights:
    """What each term is multiplied by once the reductions are applied."""

    inv: float
    var: float
    cov: float


@dataclass(frozen=True)
class _View:
    """One view's ``N = T Θ`` ``(q + 1, h)``, off-diagonal covariances ``(h, h)`` and deviations ``s`` ``(h,)``."""

    N: Tensor
    off: Tensor
    s: Tensor

    @classmethod
    def at(cls, T: Tensor, theta: Tensor, eps: float) -> _View:
        N = T @ theta
        S = theta.T @ N
        return cls(N=N, off=_off_diagonal(S), s=(S.diagonal() + eps).sqrt())


def _off_diagonal(S: Tensor) -> Tensor:
    return S - torch.diag(S.diagonal())
