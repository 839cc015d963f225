"""Concepts made on the spot, and what-if: two questions that name sets of samples."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from krepes.attribution import attribute
from krepes.concepts import ConceptVector
from krepes.concepts.vector import FEWEST
from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.explore.cards import Cards, Json
from krepes.explore.room import Array
from krepes.explore.state import State
from krepes.influence import movement
from krepes.influence.measures import spread

MOST = 200
"""Samples of each side that a concept is fitted to, at most; drawn at random from more."""
SETS = 10
"""Random sets that a removal is compared with."""
K = 8


@dataclass(frozen=True, eq=False)
class Ideas:
    """Answers about sets of samples of a run."""

    state: State
    cards: Cards

    def concept(self, positive: Array, negative: Array | None) -> tuple[ConceptVector, Json]:
        """Fit the direction from other samples to some, and say who lies along it and who is pulled.

        Args:
            positive: Places of samples of the concept.
            negative: Places of samples that are not; by default random others.

        Returns:
            The concept, and plain values for the page.

        Raises:
            InvalidInputError: If one side has too few samples, or a sample is on both.
        """
        draw, N = np.random.default_rng(0), self.state.subject.N
        others = np.setdiff1d(np.arange(N), positive) if negative is None else negative
        both = len(np.intersect1d(positive, others))
        if len(positive) < FEWEST or len(others) < FEWEST or both:
            raise InvalidInputError(
                f"{len(positive)} samples of the concept and {len(others)} others were given, {both} of them on both "
                f"sides: at least {FEWEST} are needed on each, because a third is held out, and none on both."
            )
        chosen, against = _some(positive, MOST, draw), _some(others, 2 * MOST, draw)
        Z = self.state.found.Z
        found = ConceptVector.of_embeddings(*(torch.from_numpy(Z[rows]).double() for rows in (chosen, against)))
        return found, {
            "positives": len(positive),
            "negatives": len(others),
            "fitted": [len(chosen), len(against)],
            "accuracy": float(found.accuracy.value),
            "chance": float(found.random_accuracies.mean()),
            "p": float(found.accuracy.p_value),
            "stability": found.stability,
            **self._pulled(found, chosen),
        }

    def along(self, concept: ConceptVector) -> Array:
        """Return how far the objective pulled every sample along a concept, ``(N,)``, float32."""
        gamma = self.state.subject.model.gamma_.numpy().astype(np.float32)
        return (self.state.found.shift - gamma) @ concept.v.numpy().astype(np.float32)

    def _pulled(self, found: ConceptVector, chosen: Array) -> Json:
        """Return who is pulled along a concept, and the landmarks that pull its own samples."""
        pulled = self.along(found)
        order = np.argsort(pulled, kind="stable")
        trained = chosen[chosen < self.state.subject.n]
        X = self.state.subject.samples(torch.from_numpy((trained if len(trained) else chosen)[:64]))
        with self.state.lock:
            parts = attribute(self.state.subject.model, X).toward(found.v).mean(0).numpy()
        first = np.argsort(-np.abs(parts), kind="stable")[:K]
        return {
            "toward": [self.cards.brief(i, pull=float(pulled[i])) for i in order[::-1][:K]],
            "away": [self.cards.brief(i, pull=float(pulled[i])) for i in order[:K]],
            "landmarks": [self.cards.brief(self.state.landmarks[l], pull=float(parts[l])) for l in first],
        }

    def what_if(self, rows: Array, groups: Sequence[str]) -> tuple[Json, Array]:
        """Take training rows away, and random sets of the same size, and say what moves.

        Args:
            rows: Places of samples; only those that were trained on can be taken away.
            groups: Columns whose groups' distance is followed.

        Returns:
            Plain values for the page, and how far every sample moved, ``(N,)``, float32, NaN where it is not known.

        Raises:
            InvalidInputError: If the objective of the run does not allow it, or no training row is meant.
        """
        causes, subject, began = self.state.causes, self.state.subject, time.monotonic()
        if causes is None:
            raise InvalidInputError(f"rows cannot be taken away at once: {self.state.why}.")
        trained = rows[rows < subject.n]
        if len(trained) == 0:
            raise InvalidInputError(f"none of the {len(rows)} samples was trained on: without them nothing changes.")
        versions = causes.without(trained, SETS)
        Z = torch.stack([self.state.seen_rows @ theta for theta in versions])
        ids = [printable(subject.ids[i]) for i in self.state.seen]
        named = {column: subject.texts(column)[self.state.seen] for column in groups}
        moved = movement.samples(Z, [str(i) for i in self.state.seen], K)
        answer = {
            "removed": len(trained),
            "trained": subject.n,
            "sets": SETS,
            "looked_at": len(self.state.seen),
            "overall": _records(movement.overall(Z))[0],
            "samples": [self.cards.brief(int(line.pop("what")), **line) for line in _records(moved)],
            "pairs": _records(movement.pairs(Z, ids, K)),
            "groups": _records(movement.groups(Z, named)),
            "error": causes.rows.error,
            "trust": subject.trust.get("surrogate"),
            "seconds": time.monotonic() - began,
        }
        return answer, self._moved(versions[0], versions[1], Z)

    def _moved(self, whole: torch.Tensor, less: torch.Tensor, Z: torch.Tensor) -> Array:
        """Return how far training samples (in their first view) and those looked at moved, in parts of the spread."""
        causes = self.state.causes
        assert causes is not None
        size = float(spread(Z[0]))
        moved = np.full(self.state.subject.N, np.nan, np.float32)
        rows = torch.from_numpy(np.asarray(causes.rows.rows[0]))
        change = (less - whole).to(torch.float32)
        moved[: len(rows)] = (rows @ change[:-1] + change[-1]).norm(dim=1).numpy() / size
        moved[self.state.seen] = (Z[1] - Z[0]).norm(dim=1).numpy() / size
        return moved


def _some(rows: Array, most: int, draw: np.random.Generator) -> Array:
    return rows if len(rows) <= most else np.sort(draw.choice(rows, most, replace=False))


def _records(frame: pd.DataFrame) -> list[Json]:
    """Return a table as plain values; what is not finite becomes nothing."""
    return [
        {
            str(key).replace(" ", "_"): (None if isinstance(value, float) and not np.isfinite(value) else value)
            for key, value in line.items()
        }
        for line in frame.to_dict("records")
    ]
