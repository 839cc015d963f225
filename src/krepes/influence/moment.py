r"""How a row moves ``s = <v, ∇L(Θ*; M)>`` through the moments, seen through the ``2h`` directions that matter.

A loss of the embeddings sees a kernel row ``k`` only as ``Aᵀk``, and its gradient along ``v = [V ; νᵀ]`` only as
``Vᵀk``. So ``2h`` virtual landmarks stand in for the ``q`` points, without approximation:

    T = blockdiag([A V], 1),      k̃ = Tᵀ k̄,      M̃_uv = Tᵀ M_uv T,      K̃ = [A V]ᵀ K [A V],

    s(M) = <v', ∇L(Θ'; M̃)>   with   Θ = T Θ',  v = T v',        G̃_uv = ds/dM̃_uv,

    d s / d w_i = Σ_uv k̃_iuᵀ G̃_uv k̃_iv  (+ k̃_iuᵀ G̃_X x_iu for the autoencoder),

and ``T G̃ Tᵀ``, of rank at most ``2h + 1``, is never formed: a row costs O(q h) an outcome.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.moments import Moments
from krepes.objectives import MomentObjective


@dataclass(frozen=True)
class MomentSensitivity:
    """``ds/dM`` of one outcome.

    Attributes:
        V: Adjoint without its shift, ``(q, h)``.
        G: ``G̃``, ``(p, p, 2h + 1, 2h + 1)``.
        G_X: ``G̃_X``, ``(2h + 1, d)``, for an objective that sees the inputs.
    """

    V: Tensor
    G: Tensor
    G_X: Tensor | None

    def of_rows(self, KA: Tensor, K: Tensor, X: Tensor | None) -> Tensor:
        """Return ``ds/dw_i`` of ``b`` rows.

        Args:
            KA: ``K A``, ``(p, b, h)``, which all outcomes share.
            K: Kernel rows, ``(p, b, q)``, float64.
            X: Flattened inputs, ``(p, b, d)``, where the objective sees them.

        Returns:
            ``(b,)``.
        """
        k = torch.nn.functional.pad(torch.cat([KA, K @ self.V], dim=-1), (0, 1), value=1.0)
        terms = torch.einsum("ubk,uvkl,vbl->b", k, self.G, k)
        if self.G_X is not None and X is not None:
            terms = terms + torch.einsum("ubk,kd,ubd->b", k, self.G_X, X.to(k)) / len(k)
        return terms


def moment_sensitivity(objective: MomentObjective, moments: Moments, theta: Tensor, v: Tensor) -> MomentSensitivity:
    """Differentiate ``s(M) = <v, ∇L(Θ; M)>`` in the moments.

    Args:
        objective: The loss.
        moments: Of the training rows.
        theta: ``Θ*``, ``(q + 1, h)``.
        v: Adjoint of an outcome, ``(q + 1, h)``.

    Returns:
        The sensitivity.
    """
    h = theta.shape[1]
    seen = _project(moments, torch.cat([theta[:-1], v[:-1]], dim=1))
    I, O = torch.eye(h).to(theta), torch.zeros(h, h).to(theta)
    theta_seen, v_seen = torch.cat([I, O, theta[-1:]]), torch.cat([O, I, v[-1:]])
    inputs = [x.requires_grad_() for x in (seen.M, seen.KX) if x is not None]
    with torch.enable_grad():
        s = (objective.gradient(seen, theta_seen) * v_seen).sum()
    G = torch.autograd.grad(s, inputs)
    return MomentSensitivity(v[:-1], G[0], G[1] if len(G) > 1 else None)


def _project(moments: Moments, AV: Tensor) -> Moments:
    """Return the moments as ``2h`` virtual landmarks see them, ``AV`` ``(q, 2h)`` their coefficients."""
    T = torch.block_diag(AV, AV.new_ones(1, 1))
    return dataclasses.replace(
        moments,
        M=T.T @ moments.M @ T,
        K=AV.T @ moments.K @ AV,
        KX=None if moments.KX is None else T.T @ moments.KX,
    )
