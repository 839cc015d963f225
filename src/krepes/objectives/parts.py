r"""Sums over the batches of a row objective: by one process over all of them, or by several over a part each.

    value, gradient     every batch
    curvature           every batch, or a seeded sample of whole batches, which counts for all of them

The batches of a loss such as SimCLR's compare their own samples, so a sample of rows is a sample of whole batches: its
mean curvature is an unbiased estimate of that of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.objectives.base import Product, RowSource
from krepes.processes import Processes

Sums = dict[str, Tensor]
CURVATURE_ROWS = 65_536
"""Rows that curvature is taken of by default: above so many, products cost the same whatever n."""


class Batched(Protocol):
    """What is asked of an objective here; `krepes.objectives.streaming.StreamedObjective` describes it."""

    batch: int
    curvature_rows: int

    def scale(self, n: int) -> float:
        """Return by how much the loss is larger than its mean."""

    def batch_loss(self, index: int, Kbar: Tensor) -> Any:
        """Return the loss of a batch."""


def pull_back(Kbar: Tensor, G: Tensor) -> Tensor:
    """Return ``Σ_u K̄_uᵀ G_u``, ``(q + 1, h)``, from rows ``(p, b, q + 1)`` and a cotangent ``(p, b, h)``."""
    return Kbar.flatten(0, 1).T @ G.flatten(0, 1)


def sampled_batches(n: int, batch: int, rows: int, seed: int = 0) -> list[int]:
    """Return the numbers of the batches that curvature is taken of, in order.

    Args:
        n: Samples.
        batch: Samples in a batch.
        rows: How many are enough; rounded up to whole batches.
        seed: Of the draw.

    Returns:
        All numbers if ``rows`` covers them.
    """
    count, wanted = -(-n // batch), -(-rows // batch)
    if wanted >= count:
        return list(range(count))
    draw = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=draw)[:wanted].sort().values.tolist()


def rows_of(numbers: list[int], n: int, batch: int) -> int:
    """Return how many of ``n`` samples lie in some batches."""
    return sum(min(n, (number + 1) * batch) - number * batch for number in numbers)


@dataclass
class Part:
    """The batches of one process: what they add to each sum.

    Attributes:
        rows: All rows.
        us: Which part of their batches; alone, all.
        kept: Products with the curvature of the batches that it is taken of, with what they share between them or at
            least with the embeddings, where half of the budget holds that.
    """

    rows: RowSource
    us: Processes = field(default_factory=Processes)
    kept: dict[int, Product] = field(default_factory=dict)
    theta: Tensor | None = None

    def do(self, work: str, objective: Batched, *given: Any) -> Sums:
        """Return the sums of a piece of work: one of the methods below by its name."""
        found: Sums = getattr(self, work)(objective, *given)
        return found

    def value(self, objective: Batched, theta: Tensor, whole: bool) -> Sums:
        """Return the loss at ``theta`` ``(q + 1, h)``, of all batches or of those that curvature is taken of."""
        chosen = None if whole else sample_of(objective, self.rows.n)
        total: Tensor | None = None  # a list of terms would lie between the blocks of rows, and pin what they free
        for _, w, loss, Kbar in self._weighted(objective, theta, chosen):
            term = w * loss.value(Kbar @ theta)
            total = term if total is None else total + term
        return {} if total is None else {"value": total}

    def gradient(self, objective: Batched, theta: Tensor) -> Sums:
        """Return the gradient in ``theta``, ``(q + 1, h)``."""
        total = torch.zeros_like(theta)
        for _, w, loss, Kbar in self._weighted(objective, theta):
            total = total + w * pull_back(Kbar, loss.gradient(Kbar @ theta))
        return {"gradient": total}

    def expand(self, objective: Batched, theta: Tensor) -> Sums:
        """Return value, gradient and what is known of the curvature, from one pass; one batch is held at a time."""
        chosen, n = sample_of(objective, self.rows.n), self.rows.n
        more = n / rows_of(chosen, n, objective.batch)
        mine = set(chosen) & set(self._numbers(objective))
        room = Budget.of(self.rows.budget)
        self.theta, self.kept = theta, {}
        sums: Sums = {}
        for number, w, loss, Kbar in self._weighted(objective, theta):
            Z = Kbar @ theta
            _add(sums, w, {"value": loss.value(Z), "gradient": pull_back(Kbar, loss.gradient(Z))})
            if number in mine:
                _add(sums, w * more, loss.summary(Kbar, Z))
                times = rows_of(sorted(mine), n, objective.batch) / Z.shape[1]
                if room.fits(times * loss.held(Z), share=1 / 2):
                    self.kept[number] = loss.curvature(Z)
                elif room.fits(times * loss.least(Z), share=1 / 2):
                    self.kept[number] = partial(loss.product, Z)
        return sums

    def product(self, objective: Batched, v: Tensor, whole: bool) -> Sums:
        """Return ``H v`` where `expand` was, ``(q + 1, h)``: of the sample, or of all batches."""
        assert self.theta is not None
        n, mine = self.rows.n, self._numbers(objective)
        chosen = mine if whole else sample_of(objective, n)
        share = objective.scale(n) / (n if whole else rows_of(chosen, n, objective.batch))
        here = sorted(set(chosen) & set(mine))
        Hv = torch.zeros_like(v)
        for number, Kbar in zip(here, self.rows.batches(objective.batch, here), strict=True):
            product = self.kept.get(number)
            if product is None:
                product = partial(objective.batch_loss(number, Kbar).product, Kbar @ self.theta)
            Hv += Kbar.shape[1] * share * pull_back(Kbar, product(Kbar @ v))
        return {"product": Hv}

    def _numbers(self, objective: Batched) -> list[int]:
        return list(range(*self.us.span(-(-self.rows.n // objective.batch))))

    def _weighted(
        self, objective: Batched, theta: Tensor, chosen: list[int] | None = None
    ) -> Iterator[tuple[int, float, Any, Tensor]]:
        n, numbers = self.rows.n, self._numbers(objective)
        counted = n
        if chosen is not None:
            counted, numbers = rows_of(chosen, n, objective.batch), sorted(set(chosen) & set(numbers))
        for number, Kbar in zip(numbers, self.rows.batches(objective.batch, numbers), strict=True):
            if number == numbers[0] and Kbar.shape[2] != theta.shape[0]:
                raise InvalidInputError(
                    f"theta {tuple(theta.shape)} does not fit augmented rows {tuple(Kbar.shape)}: it needs "
                    f"{Kbar.shape[2]} rows, one for each landmark point and one for the shift."
                )
            yield number, Kbar.shape[1] * objective.scale(n) / counted, objective.batch_loss(number, Kbar), Kbar


def sample_of(objective: Batched, n: int) -> list[int]:
    """Return the batches that an objective's curvature over ``n`` samples is taken of."""
    return sampled_batches(n, objective.batch, objective.curvature_rows, int(getattr(objective, "seed", 0)))


def _add(sums: Sums, w: float, terms: Sums) -> None:
    for key, term in terms.items():
        sums[key] = sums.get(key, 0.0) + w * term
