"""All landmarks of every test sample in the order of each method: held if they are few, else ranked in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from krepes.audit.rankings import PLACE, compared_pieces, first, rankings
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.model import Krepes
from krepes.views.source import RowsOf, as_source

METHODS = ("influence", "directional", "latent cosine", "kernel", "input distance", "random")
CHANCE = "random"
DEEPEST = 50
"""Landmarks that most questions look at."""
SHARE = 1 / 8
"""Of the model's memory, for the whole orders."""


@dataclass(frozen=True, eq=False)
class Orders:
    """Whom each method puts first, second and so on, for every test sample.

    Attributes:
        model: A fitted model.
        X: Un-augmented test samples, ``(t, ...)``.
        landmarks: The un-augmented landmarks, ``(m, ...)``.
        seed: Of the random order.
    """

    model: Krepes
    X: Batch
    landmarks: Batch
    seed: int = 0

    @property
    def m(self) -> int:
        """Landmarks."""
        return len(self.model.landmark_ids_)

    @cached_property
    def t(self) -> int:
        """Test samples."""
        return as_source(self.X)[0].n

    @property
    def k(self) -> int:
        """Landmarks of `first`."""
        return min(DEEPEST, self.m)

    @property
    def first(self) -> dict[str, Tensor]:
        """The first ``k`` landmarks of every sample by every method, ``(t, k)``."""
        return self._found[0]

    def pieces(self, multiple: int) -> Iterator[tuple[slice, dict[str, Tensor]]]:
        """Yield all landmarks in their order, for consecutive pieces of the samples; the random order is left out.

        Args:
            multiple: Samples of a piece are a multiple of so many, but for the last.

        Yields:
            The places of the samples, and for each method the landmarks, best first, ``(b, m)``.
        """
        whole = self._found[1]
        size = multiple if whole else multiple * max(1, self._rows // multiple)
        for start in range(0, self.t, size):
            part = slice(start, min(start + size, self.t))
            if whole:
                yield part, {method: order[part].long() for method, order in whole.items()}
            else:
                asked = RowsOf(self.X, torch.arange(part.start, part.stop))
                found = rankings(self.model, asked, k=self.m, landmarks=self.landmarks, seed=self.seed)
                yield part, {method: found[method] for method in METHODS if method in found and method != CHANCE}

    @property
    def _rows(self) -> int:
        """Samples whose orders may be held."""
        each = (len(METHODS) - 1) * self.m * PLACE.itemsize
        return int(SHARE * Budget.of(self.model.memory_budget).bytes // each)

    @cached_property
    def _found(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The first landmarks of all, and the whole orders, ``(t, m)``, if they may be held: both of one pass."""
        few: dict[str, list[Tensor]] = {}
        whole: dict[str, list[Tensor]] = {}
        for scores in compared_pieces(self.model, self.X, self.landmarks, seed=self.seed):
            for method in METHODS:
                if method in scores:
                    few.setdefault(method, []).append(first(scores[method], self.k))
                if method in scores and method != CHANCE and self.t <= self._rows:
                    whole.setdefault(method, []).append(first(scores[method], self.m).to(PLACE))
        return _joined(few), _joined(whole)


def _joined(pieces: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {method: torch.cat(parts) for method, parts in pieces.items()}
