"""The pass that compresses the training rows, in as many directions as a removal needs to come out as in the model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from krepes import batches
from krepes.budget import Budget
from krepes.engine.rows import pieces
from krepes.explore.compressed import Compressed, of_products
from krepes.explore.room import Array, Room
from krepes.model import Krepes
from krepes.views import ViewStream

EXTRA = (64, 128, 256)
"""Directions of kernel rows that are kept beside those of the coefficients: more, if few are not accurate."""
ACCURATE = 0.02
"""Error of a removal that is good enough."""
PROBED = 200
"""Rows that are removed to see how accurate the directions are, and samples whose movement is looked at."""


def compress(model: Krepes, stream: ViewStream, room: Room, *, progress: bool = True) -> Compressed:
    """Choose the directions and pass once over the training data.

    Args:
        model: A fitted model of moments.
        stream: Its training data.
        room: For the rows.
        progress: Show a bar.

    Returns:
        The compressed rows.
    """
    probe = Probe.of(model, stream)
    for extra in EXTRA:
        found = Compressed.within(model, extra)
        found = replace(found, error=probe.error(found))
        if found.error <= ACCURATE:
            break
    rows = room.zeros((found.moments.p, stream.n, found.T.shape[1]))
    _fill(rows, model, stream, found.T, progress)
    return replace(found, rows=rows)


@dataclass(frozen=True, eq=False)
class Probe:
    """A removal that the model itself answered, to compare with.

    Attributes:
        Kbar: Rows of the removed samples in all views, ``(p, s, q + 1)``.
        K: Rows of the samples looked at, ``(t, q)``.
        moved: How they moved, ``(t, h)``.
    """

    Kbar: Tensor
    K: Tensor
    moved: Tensor

    @classmethod
    def of(cls, model: Krepes, stream: ViewStream) -> Probe:
        """Remove random rows from a model.

        Args:
            model: Fitted, of moments.
            stream: Its training data.

        Returns:
            What happened.
        """
        size = max(1, min(PROBED, stream.n // 10))
        chosen = torch.randperm(stream.n, generator=torch.Generator().manual_seed(0))[:size].sort().values
        kernel, width, budget = model.pass_kernel_, len(model.pass_gram_), Budget.of(model.memory_budget)
        found = pieces(stream.views_of(chosen), kernel, model.prepared_, width, budget, sums=False)
        Kbar = torch.cat([piece.Kbar.to(torch.float64) for piece in found], dim=1)
        K = model.model_rows(batches.take(model.reference_, slice(0, PROBED)))
        less = model.without(chosen.numpy(), stream=stream)
        return cls(Kbar, K, pad(K, (0, 1), value=1.0) @ (less.solution_.theta - model.solution_.theta))

    def error(self, seen: Compressed) -> float:
        """Return by how much compressed rows say otherwise, relative to the movement."""
        x = torch.cat([self.Kbar[..., :-1] @ seen.T, self.Kbar[..., -1:]], dim=-1).permute(1, 0, 2).flatten(1)
        less = seen.step(seen.moments - of_products(seen.moments, x.T @ x, len(x)))
        moved = seen.seen(self.K) @ (less - seen.theta)
        return float((moved - self.moved).norm() / self.moved.norm().clamp_min(1e-300))


def _fill(rows: Array, model: Krepes, stream: ViewStream, T: Tensor, progress: bool) -> None:
    """Pass over the training data, with the views of the fit."""
    kernel, width, budget = model.pass_kernel_, len(model.pass_gram_), Budget.of(model.memory_budget)
    with tqdm(total=stream.n, desc="training rows", unit=" rows", disable=not progress) as bar:
        for chosen, X in stream:
            start = 0
            for piece in pieces(X, kernel, model.prepared_, width, budget, sums=False):
                c = piece.Kbar[..., :-1].to(torch.float64) @ T
                rows[:, chosen[start : start + c.shape[1]].numpy()] = c.to(torch.float32).numpy()
                start += c.shape[1]
            bar.update(len(chosen))
