r"""The shift of an embedding as a sum over landmarks, and three ways to put a number on a landmark's part in it.

    shift_t = f(x_t; A) - f(x_t; A0) = Σ_l c_tl + Δγ,      c_tl = Σ_u k(z_l^u, x_t) ΔA_(l,u)

    scores        IS_tl = Σ_u k(z_l^u, x_t) |ΔA_(l,u)|           how much, and whether the landmark resembles x_t
    directional   <c_tl, shift_t / |shift_t|>                    complete: with <Δγ, ·> it sums to |shift_t|
    toward(v)     <c_tl, v>                                      how much towards a concept v

With one view the score is the paper's ``k |ΔA_l|``, the length of ``c_tl`` with the sign of the kernel. With several it
sums that over views: linear in the kernel, so that a small change of the sample changes it little. The length
``|c_tl|`` with the sign of ``Σ_u k`` is the same at one view, but jumps from one sign to the other where views cancel.

It says what the embedding is made of. It is no statement about what removing a landmark from training would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.errors import InvalidInputError
from krepes.registry import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Ranking = Literal["score", "repulsive", "magnitude", "directional"]
"""What landmarks can be ranked by; see `RANKINGS`."""
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)
"""``score``: most attractive first; ``repulsive``: most negative first; ``magnitude``: by ``|IS|``; ``directional``."""


@dataclass(frozen=True, eq=False)
class Top:
    """The first ``k`` landmarks of each of ``t`` samples.

    Attributes:
        ids: The user's row ids of the landmarks, ``(t, k)``.
        scores: What they were ranked by, signed, ``(t, k)``.
        indices: Their places among the ``m`` landmarks, ``(t, k)``.
    """

    ids: np.ndarray
    scores: Tensor
    indices: Tensor


@dataclass(frozen=True, eq=False)
class Attribution:
    """How ``m`` landmarks of ``p`` views move the embeddings of ``t`` samples.

    Attributes:
        K_tm: Kernel of each sample with each view of each landmark, ``(t, p, m)``.
        dA: What the objective adds to the coefficients, ``(p, m, h)``.
        dgamma: Change of the shift, ``(h,)``.
        landmark_ids: The user's row ids of the landmarks, ``m`` of them.
        sample_ids: The user's ids of the samples, ``t`` of them.
    """

    K_tm: Tensor
    dA: Tensor
    dgamma: Tensor
    landmark_ids: Sequence[Any]
    sample_ids: Sequence[Any]

    def __post_init__(self) -> None:
        """Refuse parts that do not belong together."""
        (t, p, m), (p_dA, m_dA, h) = self.K_tm.shape, self.dA.shape
        if (p, m, h) != (p_dA, m_dA, len(self.dgamma)) or (t, m) != (len(self.sample_ids), len(self.landmark_ids)):
            raise InvalidInputError(
                f"kernel rows (t, p, m) = {(t, p, m)}, dA (p, m, h) = {(p_dA, m_dA, h)}, {len(self.dgamma)} shifts, "
                f"{len(self.sample_ids)} sample ids and {len(self.landmark_ids)} landmark ids do not fit together."
            )
        require_finite(self.K_tm, "the kernel rows of the test samples")

    def __len__(self) -> int:
        """Return ``t``."""
        return len(self.K_tm)

    @property
    def m(self) -> int:
        """Number of landmarks."""
        return int(self.K_tm.shape[2])

    @cached_property
    def scores(self) -> Tensor:
        """Signed influence scores IS, ``(t, m)``; with one view, ``k(z_l, x_t) |ΔA_l|``."""
        return _over_views(self.K_tm, torch.linalg.vector_norm(self.dA, dim=2))

    @cached_property
    def shift(self) -> Tensor:
        """``f(x_t; A) - f(x_t; A0)``, ``(t, h)``."""
        return self.K_tm.flatten(1) @ self.dA.flatten(0, 1) + self.dgamma

    @property
    def direction(self) -> Tensor:
        """The unit vector of the shift, ``(t, h)``; zero for a sample that does not move."""
        norm = torch.linalg.vector_norm(self.shift, dim=1, keepdim=True)
        return torch.where(norm > 0, self.shift / norm, torch.zeros_like(self.shift))

    @cached_property
    def directional(self) -> Tensor:
        """``<c_tl, shift_t / |shift_t|>``, ``(t, m)``: with ``<Δγ, ·>`` it sums to ``|shift_t|``; 0 without a shift."""
        return self.toward(self.direction)

    @cached_property
    def omega(self) -> Tensor:
        """Frobenius norm of a landmark's rows of ``ΔA``, over its views, ``(m,)``."""
        return torch.linalg.vector_norm(self.dA, dim=(0, 2))

    def contribution(self, i: int) -> Tensor:
        """Return ``c_l`` of sample ``i``, ``(m, h)``: its sum plus ``dgamma`` is the shift."""
        return torch.einsum("pm,pmh->mh", self.K_tm[i], self.dA)

    def partial_shift(self, indices: Tensor) -> Tensor:
        """Return the part of the shift that chosen landmarks make, ``(t, h)``, for ``indices`` ``(t, k)``."""
        chosen = self.K_tm.new_zeros(len(self), self.m).scatter_(1, indices, 1.0)
        return (self.K_tm * chosen[:, None]).flatten(1) @ self.dA.flatten(0, 1)

    def toward(self, v: Tensor) -> Tensor:
        """Return how far each landmark pulls along a vector.

        Args:
            v: One vector for all samples, ``(h,)``, or one for each, ``(t, h)``.

        Returns:
            ``<c_tl, v>``, ``(t, m)``: odd and linear in ``v``.

        Raises:
            InvalidInputError: If ``v`` is of another shape or not finite.
        """
        h = self.dA.shape[2]
        if tuple(v.shape) not in {(h,), (len(self), h)}:
            raise InvalidInputError(f"v has shape {tuple(v.shape)}: it must be ({h},), or ({len(self)}, {h}).")
        require_finite(v, "v")
        along = v.to(self.dA) @ self.dA.flatten(0, 1).T  # (q,) or (t, q)
        return _over_views(self.K_tm, along.unflatten(-1, self.dA.shape[:2]))

    def top(self, k: int = 10, *, by: Ranking = "score") -> Top:
        """Return the first ``k`` landmarks of each sample.

        Args:
            k: How many, at most ``m``.
            by: One of `RANKINGS`.

        Returns:
            Ids, scores and indices, first landmark first.
        """
        require_ranking(k, by, m=self.m)
        scores = self.directional if by == "directional" else self.scores
        keys = scores.abs() if by == "magnitude" else scores
        indices = keys.topk(k, dim=1, largest=by != "repulsive").indices
        return Top(ids=id_array(self.landmark_ids)[indices.numpy()], scores=scores.gather(1, indices), indices=indices)

    def to_frame(self, k: int = 10, *, by: Ranking = "score") -> pd.DataFrame:
        """Return the first ``k`` landmarks of each sample as a tidy table.

        Args:
            k: Landmarks per sample, at most ``m``.
            by: One of `RANKINGS`.

        Returns:
            A row for each sample and rank: ``sample``, ``rank`` (from 1), ``landmark``, ``score`` (IS), ``kernel``
            (mean over the landmark's views), ``along_shift`` (directional part) and ``effect``.
        """
        top = self.top(k, by=by)

        def chosen(values: Tensor) -> np.ndarray:
            return values.gather(1, top.indices).flatten().numpy()

        score = chosen(self.scores)
        return pd.DataFrame({
            "sample": np.repeat(id_array(self.sample_ids), k),
            "rank": np.tile(np.arange(1, k + 1), len(self)),
            "landmark": top.ids.reshape(-1),
            "score": score,
            "kernel": chosen(self.K_tm.mean(1)),
            "along_shift": chosen(self.directional),
            "effect": np.select([score > 0, score < 0], ["attracts", "repels"], "none"),
        })

    def both(self, k: int = 5) -> pd.DataFrame:
        """Return the ``k`` landmarks that attract each sample most and those that repel it most, none listed twice.

        Args:
            k: Landmarks of each sign, at most ``m``.

        Returns:
            As `to_frame`, for each sample the attracting ones first; a landmark that attracts is never listed as
            repelling.
        """
        attracting, repelling = self.to_frame(k, by="score"), self.to_frame(k, by="repulsive")
        found = pd.concat([attracting[attracting["score"] > 0], repelling[repelling["score"] < 0]])
        order = {id: place for place, id in enumerate(self.sample_ids)}
        return found.sort_values("sample", key=lambda s: s.map(order), kind="stable").reset_index(drop=True)

    def plot(self, k: int = 5) -> Figure:
        """Draw the landmarks that attract and repel each sample, ``k`` of each sign, for the first twelve samples."""
        return load("krepes.figures:landmark_bars")(self.both(min(k, self.m)))

    def _repr_html_(self) -> str:
        return self.both(min(5, self.m)).to_html(index=False, float_format="{:.4g}".format)


def require_ranking(k: int, by: str, *, m: int) -> None:
    """Raise `InvalidInputError` unless ``1 <= k <= m`` and ``by`` is one of `RANKINGS`."""
    if not 1 <= k <= m:
        raise InvalidInputError(f"k={k} landmarks were asked of m={m}: k must be between 1 and {m}.")
    if by not in RANKINGS:
        raise InvalidInputError(f"by={by!r} is unknown: choose one of {', '.join(RANKINGS)}.")


def id_array(ids: Sequence[Any]) -> np.ndarray:
    """Return ids as a vector: of numbers or strings where all are, else of objects, so that no id changes its type."""
    if isinstance(ids, range):
        return np.arange(ids.start, ids.stop, ids.step)
    found = np.fromiter(ids, dtype=object, count=len(ids))
    plain = {type(value) for value in found}
    return found.astype(plain.pop()) if plain in ({int}, {str}) else found


def _over_views(K_tm: Tensor, weights: Tensor) -> Tensor:
    """Return ``Σ_u k_tul w_ul``, ``(t, m)``, for weights ``(p, m)`` or ``(t, p, m)``, one view at a time."""
    total = K_tm[:, 0] * weights[..., 0, :]
    for u in range(1, K_tm.shape[1]):
        total.addcmul_(K_tm[:, u], weights[..., u, :].expand_as(total))
    return total
