"""Models of random halves of the landmarks, without another pass: how much does an answer owe to the draw of landmarks?

Moments and rows of some landmarks are parts of those of all, so that a step on them is, to round-off, that of a model
fitted with these landmarks alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from krepes.engine.moments import Moments
from krepes.engine.rowstore import RowStore
from krepes.model import Krepes


def half_models(model: Krepes, draws: int, *, seed: int, tol: float | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random halves of a model's landmarks with the size of what the objective adds to each.

    Args:
        model: A fitted model that starts at principal components, with its moments or rows.
        draws: How many halves.
        seed: Of the choice.
        tol: Relative residual of the steps; by default that of the model.

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
        part.tol = model.tol if tol is None else tol
        part.K_mm_, part.data_ = model.K_mm_[points][:, points], part_of(model.data_, points)
        found = part.solved(part.data_, damping=model.solution_.damping, relative=True)
        moved = (found.theta - found.theta0)[:-1].unflatten(0, (p, len(kept)))  # (p, m / 2, h)
        yield kept, torch.linalg.vector_norm(moved, dim=(0, 2))


def part_of(data: Moments | RowStore | None, points: Tensor) -> Moments | RowStore | None:
    """Return what a pass over some landmark points ``(q',)`` would have kept, from what one over all of them kept."""
    if isinstance(data, Moments):
        rows = torch.cat([points, torch.tensor([data.q])])
        KX = None if data.KX is None else data.KX[rows]
        return replace(data, M=data.M[:, :, rows][..., rows], K=data.K[points][:, points], KX=KX)
    if isinstance(data, RowStore):
        shards = tuple(shard[:, :, points.numpy()] for shard in data.shards)
        return replace(data, K=data.K[points][:, points], shards=shards)
    return None
