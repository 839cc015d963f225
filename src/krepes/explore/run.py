"""One run with everything that answers for it, and two runs of the same samples beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.explore.cards import Cards, Json, shown
from krepes.explore.colours import Colours
from krepes.explore.ideas import Ideas
from krepes.explore.maps import DRAWN, SPACES, Maps, projections
from krepes.explore.matrix import Matrix
from krepes.explore.room import Array
from krepes.explore.sample import NEIGHBOURS, Samples
from krepes.explore.selection import Selections
from krepes.explore.state import State
from krepes.influence import caution
from krepes.model import Krepes

COMPARED = 500
"""Samples whose neighbours are compared between two runs."""


@dataclass(frozen=True, eq=False)
class Run:
    """An opened run, asked from one place."""

    state: State

    @cached_property
    def cards(self) -> Cards:
        """Samples in words."""
        return Cards(self.state)

    @cached_property
    def maps(self) -> Maps:
        """Samples on maps."""
        return Maps(self.state)

    @cached_property
    def samples(self) -> Samples:
        """Single samples."""
        return Samples(self.state, self.cards)

    @cached_property
    def matrix(self) -> Matrix:
        """Groups and features."""
        return Matrix(self.state)

    @cached_property
    def selections(self) -> Selections:
        """Sets of samples."""
        return Selections(self.state, self.maps, self.cards, self.matrix)

    @cached_property
    def ideas(self) -> Ideas:
        """Questions about sets of samples."""
        return Ideas(self.state, self.cards)

    @cached_property
    def colours(self) -> Colours:
        """What the map is coloured by."""
        return Colours(self.state, self.samples)

    def require(self, row: int) -> int:
        """Return the place of a sample; refuse one that there is not."""
        if not 0 <= row < self.state.subject.N:
            raise InvalidInputError(f"there is no sample at place {row}: places are 0 to {self.state.subject.N - 1}.")
        return row

    def about(self) -> Json:
        """Return what the page must know of the run before anything is asked."""
        subject, causes = self.state.subject, self.state.causes
        model = subject.model
        columns = [{"name": name, "number": subject.is_number(name)} for name in subject.columns]
        return {
            "title": printable(subject.title),
            "run": None if subject.folder is None else printable(subject.folder),
            "kind": subject.kind,
            "samples": subject.N,
            "trained": subject.n,
            "landmarks": len(self.state.landmarks),
            "dimensions": int(self.state.found.latent.shape[1]),
            "objective": model.objective_.name,
            "start": model.init,
            "columns": columns,
            "label": subject.label,
            "groups": list(subject.groups),
            "spaces": list(SPACES if model.encoder_ is not None else SPACES[:1]),
            "projections": projections(),
            "drawn": min(DRAWN, subject.N),
            "notes": [printable(note) for note in (*subject.notes, *_known_against(model))],
            "removable": causes is not None,
            "why": self.state.why,
            "error": None if causes is None else causes.rows.error,
        }

    def neighbours(self, rows: Array) -> Array:
        """Return the closest other samples by latent cosine, ``(b, 10)``."""
        cosines = self.state.unit[rows] @ self.state.unit.T
        cosines[np.arange(len(rows)), rows] = -np.inf
        few = min(NEIGHBOURS, cosines.shape[1] - 1)
        return np.argpartition(-cosines, few - 1, axis=1)[:, :few]


def _known_against(model: Krepes) -> list[str]:
    """Return what a reader must know of counterfactual answers about a model."""
    said = caution.of_surrogate(model.objective_, model.init)
    return [] if said is None else [f"On what would change a sample: {said}"]


def compared(first: Run, second: Run) -> Json:
    """Return how far two runs agree on who is close to whom.

    Args:
        first: One run.
        second: Another one, with samples of the same ids.

    Returns:
        The share of the ten closest samples that both runs name, over up to 500 shared samples, by chance as well, and
        the samples that differ most.

    Raises:
        InvalidInputError: If the runs share fewer than two ids.
    """
    one, other = first.state.subject, second.state.subject
    shared = [id for id in one.place_of if id in other.place_of]
    if len(shared) < 2:
        raise InvalidInputError(f"the two runs share {len(shared)} ids: neighbours can be compared of two or more.")
    step = max(1, len(shared) // COMPARED)
    asked = shared[::step][:COMPARED]
    names: list[Any] = []
    for run, subject in ((first, one), (second, other)):
        near = run.neighbours(np.array([subject.place_of[id] for id in asked]))
        names.append([{str(subject.ids[j]) for j in line} for line in near])
    agree = np.array([len(a & b) / max(1, len(a)) for a, b in zip(*names, strict=True)])
    order = np.argsort(agree, kind="stable")[:12]
    cards = [{**first.cards.brief(one.place_of[asked[i]]), "agree": float(agree[i])} for i in order]
    chance = NEIGHBOURS / max(one.N - 1, 1)
    return {
        "shared": len(shared),
        "compared": len(asked),
        "agree": float(agree.mean()),
        "chance": min(1.0, chance),
        "least": cards,
        "titles": [shown(run.state.subject.folder or run.state.subject.title) for run in (first, second)],
    }
