r"""How a sample moves ``s = <v, ∇L(Θ*; M)>`` through the moments, seen through the ``2h`` directions that matter.

A loss of the embeddings sees a kernel row ``k`` only as ``Aᵀk``, and its gradient along ``v = [V ; νᵀ]`` only as
``Vᵀk``. So ``2h`` virtual landmarks stand in for the ``q`` points, without approximation:

    T = blockdiag([A V], 1),      k̃ = Tᵀ k̄,      M̃_uv = Tᵀ M_uv T,      K̃ = [A V]ᵀ K [A V],

    s(M) = <v', ∇L(Θ'; M̃)>   with   Θ = T Θ',  v = T v',        G̃_uv = ds/dM̃_uv,

    d s / d w_i = Σ_uv k̃_iuᵀ G̃_uv k̃_iv  (+ k̃_iuᵀ G̃_X x_iu for the autoencoder),

and ``T G̃ Tᵀ``, of rank at most ``2h + 1``, is never formed: a sample costs O(p q h + p² h²) per outcome.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes.engine.moments import Moments
from krepes.engine.rows import Piece
from krepes.objectives import MomentObjective


@dataclass(frozen=True)
class SeenRows:
    """What outcomes share of ``b`` rows: ``K`` ``(p, b, q)``, ``a = [Aᵀk ; 1]`` ``(p, b, h + 1)``, inputs or none."""

    K: Tensor
    a: Tensor
    X: Tensor | None

    @classmethod
    def of(cls, piece: Piece, theta: Tensor) -> SeenRows:
        """Return the rows of a piece, with the coefficients ``theta`` ``(q + 1, h)``."""
        K = piece.Kbar[..., :-1]
        return cls(K, torch.nn.functional.pad(K @ theta[:-1], (0, 1), value=1.0), piece.X)


@dataclass(frozen=True)
class MomentSensitivity:
    """``ds/dM`` of one outcome: ``ds/dw_i = aᵀQa + yᵀLa``, with ``a`` and ``y = Vᵀk`` of all views side by side.

    Attributes:
        V: Adjoint without its shift, ``(q, h)``.
        Q: ``(p (h + 1), p (h + 1))``.
        L: ``(p h, p (h + 1))``; there is no term in ``y`` alone, because ``s`` is linear in ``v``.
        G_X: ``G̃_X``, ``(2h + 1, d)``, for an objective that sees the inputs.
    """

    V: Tensor
    Q: Tensor
    L: Tensor
    G_X: Tensor | None

    @classmethod
    def from_gradient(cls, V: Tensor, G: Tensor, G_X: Tensor | None) -> MomentSensitivity:
        """Return the sensitivity for ``G̃`` ``(p, p, 2h + 1, 2h + 1)``."""
        h = V.shape[1]
        along_v, own = slice(h, 2 * h), [*range(h), 2 * h]
        L = (G + G.permute(1, 0, 3, 2))[:, :, along_v, own]
        return cls(V, _side_by_side(G[:, :, own][..., own]), _side_by_side(L), G_X)

    def of_rows(self, rows: SeenRows) -> Tensor:
        """Return ``ds/dw_i``, ``(b,)``."""
        Y = rows.K @ self.V
        a, y = (part.transpose(0, 1).flatten(1) for part in (rows.a, Y))
        terms = ((a @ self.Q + y @ self.L) * a).sum(1)
        if self.G_X is not None and rows.X is not None:
            k = torch.cat([rows.a[..., :-1], Y, rows.a[..., -1:]], dim=-1)
            terms = terms + (rows.X.to(k) @ self.G_X.T * k).sum(-1).mean(0)
        return terms


class MomentProducts:
    """The products of the moments with ``A`` that all outcomes share, and the sensitivity of each outcome from them.

    Args:
        objective: The loss.
        moments: Of the training samples.
        theta: ``Θ*``, ``(q + 1, h)``.
    """

    def __init__(self, objective: MomentObjective, moments: Moments, theta: Tensor) -> None:
        self.objective, self.moments, self.theta = objective, moments, theta
        self._A1 = torch.block_diag(theta[:-1], theta.new_ones(1, 1))
        self._MA1 = moments.M @ self._A1  # (p, p, q + 1, h + 1)
        self._KA = moments.K @ theta[:-1]  # (q, h)

    def sensitivity(self, v: Tensor) -> MomentSensitivity:
        """Return ``ds/dM`` for the adjoint ``v`` ``(q + 1, h)`` of an outcome."""
        h = self.theta.shape[1]
        I, O = torch.eye(h).to(v), torch.zeros(h, h).to(v)
        theta_seen, v_seen = torch.cat([I, O, self.theta[-1:]]), torch.cat([O, I, v[-1:]])
        seen = self._projected(v[:-1])
        inputs = [x.requires_grad_() for x in (seen.M, seen.KX) if x is not None]
        with torch.enable_grad():
            s = (self.objective.gradient(seen, theta_seen) * v_seen).sum()
        G, *G_X = torch.autograd.grad(s, inputs)
        return MomentSensitivity.from_gradient(v[:-1], G, G_X[0] if G_X else None)

    def _projected(self, V: Tensor) -> Moments:
        """Return the moments as the virtual landmarks see them; ``s`` is linear in ``V``, so ``VᵀMV`` may be zero."""
        p, h, V1 = self.moments.p, V.shape[1], torch.nn.functional.pad(V, (0, 0, 0, 1))
        M = V.new_zeros(p, p, 2 * h + 1, 2 * h + 1)
        own = [*range(h), 2 * h]
        M[:, :, h : 2 * h, own] = V1.T @ self._MA1
        M = M + M.permute(1, 0, 3, 2)
        M[:, :, torch.tensor(own)[:, None], own] = self._A1.T @ self._MA1
        K = V.new_zeros(2 * h, 2 * h)
        K[:h, :h], K[h:, :h] = self.theta[:-1].T @ self._KA, V.T @ self._KA
        K[:h, h:] = K[h:, :h].T
        T = torch.cat([self._A1[:, :-1], V1, self._A1[:, -1:]], dim=1)
        KX = T.T @ self.moments.KX if self.objective.needs_inputs and self.moments.KX is not None else None
        return dataclasses.replace(self.moments, M=M, K=K, KX=KX)


def _side_by_side(blocks: Tensor) -> Tensor:
    """Return blocks ``(p, p, r, c)`` as one matrix ``(p r, p c)``."""
    p, _, r, c = blocks.shape
    return blocks.transpose(1, 2).reshape(p * r, p * c)
