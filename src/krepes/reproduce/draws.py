"""Other models without another pass, on the same kernel rows: of a random half of the landmarks, or of their moments.

Moments and rows of some landmarks are parts of those of all, so that a step on them is, to round-off, that of a model
fitted with these landmarks alone; and moments are sums over rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from krepes.engine.moments import Moments, MomentSum
from krepes.engine.rowstore import RowStore
from krepes.model import Krepes

PIECE, EXACT = 512, 1e-8
"""Samples whose rows are added at once, and the relative residual of a step over moments, which costs no pass."""


def half_models(model: Krepes, draws: int, *, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random halves of a model's landmarks with the size of what the objective adds to each.

    Args:
        model: A fitted model that starts at principal components, with its moments or rows.
        draws: How many halves.
        seed: Of the choice.

    Yields:
        Places of the kept landmarks among the model's, ``(m / 2,)``, ascending, and their ``ω``, ``(m / 2,)``. The
        damping is that of the whole model.
    """
    m, p = len(model.landmark_ids_), model.p_
    generator = torch.Generator().manual_seed(seed)
    for _ in range(draws):
        kept = torch.randperm(m, generator=generator)[: max(1, m // 2)].sort().values
        points = torch.cat([u * m + kept for u in range(p)])
        part = copy.copy(model)
        part.K_mm_, part.data_ = model.K_mm_[points][:, points], part_of(model.data_, points)
        found = part.solved(part.data_, damping=model.solution_.damping, relative=True)
        moved = (found.theta - found.theta0)[:-1].unflatten(0, (p, len(kept)))  # (p, m / 2, h)
        yield kept, torch.linalg.vector_norm(moved, dim=(0, 2))


def of_moments(model: Krepes, objective: Any) -> Krepes:
    """Return a model of an objective of moments over the rows that a model of a row objective kept.

    Args:
        model: Fitted, with its rows.
        objective: A name or an objective.

    Returns:
        The model that a pass of its own would give, to the round-off of rows in float32, and solved to ``EXACT``
        however loosely the other was.
    """
    assert isinstance(model.data_, RowStore)
    sums = MomentSum(model.data_.K)
    for Kbar in model.data_.batches(PIECE):
        sums.add(Kbar)
    summed = copy.copy(model)
    summed.data_ = sums.moments()
    return summed.refit(objective=objective, tol=EXACT)


def part_of(data: Moments | RowStore | None, points: Tensor) -> Moments | RowStore | None:
    """Return what a pass over some landmark points ``(q',)`` would have kept, from what one over all of them kept."""
    if isinstance(data, Moments):
        rows = torch.cat([points, torch.tensor([data.q])])
        return replace(data, M=data.M[:, :, rows][..., rows], K=data.K[points][:, points], KX=None)
    if isinstance(data, RowStore):
        shards = tuple(shard[:, :, points.numpy()] for shard in data.shards)
        return replace(data, K=data.K[points][:, points], shards=shards)
    return None
