r"""Counterfactual answers from compressed rows: which rows would change an outcome, and what a removal moves.

Both are those of `krepes.influence.influence_of` and `Krepes.without`, in the directions that kernel rows use. Random
sets are unions of random blocks of one shuffle, so each by itself is a uniformly random set, and of most of its rows
the products have been summed before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from krepes.engine.linear import solve_linear
from krepes.engine.moments import Moments
from krepes.explore.compressed import Compressed, of_products
from krepes.explore.room import Array
from krepes.influence.moment import MomentProducts
from krepes.influence.outcomes import AugmentedRows, Function
from krepes.model.removal import places_of

BLOCKS = 64
"""Parts of the shuffle whose products are summed once."""
LOOSE = 1e-4
"""Relative residual of a step without a random set."""
PIECE = 8192
"""Rows that are worked on together."""


@dataclass(frozen=True, eq=False)
class Causes:
    """What would have been different.

    Attributes:
        rows: Compressed rows of the training samples.
        seed: Of the shuffle.
    """

    rows: Compressed
    seed: int = 0
    _order: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Shuffle once."""
        object.__setattr__(self, "_order", np.random.default_rng(self.seed).permutation(self.rows.n))

    def influence(self, first: Tensor, second: Tensor, origin: Tensor) -> Array:
        """Return the influence of every training sample on the cosine of two samples.

        Args:
            first: Compressed augmented row of one, ``(1, r + 1)``.
            second: Of the other.
            origin: Mean row of a reference, ``(r + 1,)``: the cosine is about the mean embedding.

        Returns:
            ``(n,)``, float32: without sample ``i`` the cosine falls by ``influence / n``, to first order.
        """
        rows = self.rows
        pair = (AugmentedRows(first - origin), AugmentedRows(second - origin))
        outcome = Function("cosine", pair, lambda Z1, Z2: cosine_similarity(Z1, Z2).mean())
        g = outcome.gradient(rows.theta)
        v = solve_linear(rows.expansion, g[: rows.free], rows.damping_absolute, tol=1e-6).x
        part = self._products.sensitivity(torch.nn.functional.pad(v, (0, 0, 0, len(g) - len(v))))
        V, Q, L = (x.to(torch.float32) for x in (part.V, part.Q, part.L))
        values = torch.empty(rows.n)
        for start in range(0, rows.n, PIECE):
            piece = slice(start, start + PIECE)
            y = torch.cat([torch.from_numpy(view[piece]) @ V for view in rows.rows], dim=1)
            a = self._embedded[piece]
            values[piece] = -((a @ Q + y @ L) * a).sum(1)
        return (values - values.mean()).numpy()

    def without(self, rows: Array, sets: int, seed: int = 0) -> list[Tensor]:
        """Return the coefficients of all rows, without some, and without random sets of the same size.

        Args:
            rows: Places ``(s,)`` among the training samples.
            sets: Random sets.
            seed: Of their draw.

        Returns:
            ``sets + 2`` matrices ``(r + 1, h)``.
        """
        gone = places_of(rows, self.rows.n).numpy()
        whole, rng = self.rows.moments, np.random.default_rng(seed)
        if len(gone) <= self.rows.n // 2:
            first = self._left(self._products_of(gone), len(gone))
        else:
            rest = np.setdiff1d(np.arange(self.rows.n), gone)
            first = of_products(whole, self._products_of(rest), len(rest))
        others = [self._left(total, len(gone)) for total in self._random(len(gone), sets, rng)]
        return [self.rows.theta, self.rows.step(first), *(self.rows.step(less, tol=LOOSE) for less in others)]

    def _left(self, gone: Tensor, count: int) -> Moments:
        return self.rows.moments - of_products(self.rows.moments, gone, count)

    def _products_of(self, chosen: Array) -> Tensor:
        """Return ``Σ x̄ x̄ᵀ`` of the views of samples side by side, ``(p (r + 1), p (r + 1))``, float64."""
        p, _, r = self.rows.rows.shape
        total = torch.zeros(p * (r + 1), p * (r + 1), dtype=torch.float64)
        for start in range(0, len(chosen), PIECE):
            part = torch.from_numpy(self.rows.rows[:, chosen[start : start + PIECE]])
            x = torch.nn.functional.pad(part, (0, 1), value=1.0).permute(1, 0, 2).flatten(1)
            total += x.T @ x
        return total

    def _random(self, size: int, sets: int, rng: np.random.Generator) -> list[Tensor]:
        """Return the products of random sets: each whole blocks of the shuffle, and a part of one more."""
        blocks, products = self._blocks
        chosen, parts = torch.zeros(sets, len(blocks)), []
        for i in range(sets):
            left, part = size, np.zeros(0, np.int64)
            for block in rng.permutation(len(blocks)):
                if left < len(blocks[block]):
                    part = np.sort(rng.permutation(blocks[block])[:left])
                    break
                chosen[i, block] = 1
                left -= len(blocks[block])
            parts.append(self._products_of(part))
        sums = (chosen @ products.flatten(1)).unflatten(1, products.shape[1:])
        return [whole.double() + part for whole, part in zip(sums, parts, strict=True)]

    @cached_property
    def _blocks(self) -> tuple[list[Array], Tensor]:
        """The parts of the shuffle, and the products of each, ``(B, p (r + 1), p (r + 1))``, float32."""
        parts = np.array_split(self._order, min(BLOCKS, max(1, self.rows.n // 8)))
        blocks = [np.sort(part) for part in parts]
        return blocks, torch.stack([self._products_of(block).float() for block in blocks])

    @cached_property
    def _products(self) -> MomentProducts:
        objective = self.rows.objective
        return MomentProducts(objective, self.rows.moments, self.rows.theta)  # type: ignore[arg-type]

    @cached_property
    def _embedded(self) -> Tensor:
        """``[Aᵀk ; 1]`` of the views side by side, ``(n, p (h + 1))``, float32."""
        theta = self.rows.theta[:-1].to(torch.float32)
        views = [torch.from_numpy(np.asarray(view)) @ theta for view in self.rows.rows]
        return torch.cat([torch.nn.functional.pad(view, (0, 1), value=1.0) for view in views], dim=1)

    def prepare(self) -> None:
        """Sum the blocks, embed the rows and decompose the curvature now, not at the first question."""
        _ = self._blocks, self._products, self._embedded
        row = torch.nn.functional.pad(torch.from_numpy(self.rows.rows[0, :2]).double(), (0, 1), value=1.0)
        self.influence(row[:1], row[1:], row.new_zeros(row.shape[1]))
        self.without(np.arange(max(1, self.rows.n // 10)), 1)
