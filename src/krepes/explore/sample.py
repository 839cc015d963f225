"""The page of one sample: what it is made of, beside what would change it, its neighbours, and what is unusual."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from krepes.attribution import attribute
from krepes.errors import InvalidInputError
from krepes.explore.cards import LONG, Cards, Json
from krepes.explore.room import Array
from krepes.explore.state import State

K = 6
"""Landmarks, rows and neighbours that a list shows."""
NEIGHBOURS, SAME, FAR = 10, 0.99999, 0.02
"""Neighbours that a class is compared with; a cosine that means the same embedding; the quantile that is far."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Answers about single samples of a run."""

    state: State
    cards: Cards

    def page(self, row: int) -> Json:
        """Return everything about a sample that needs no counterfactual.

        Args:
            row: Its place.

        Returns:
            Plain values for the page.
        """
        subject = self.state.subject
        X = subject.samples(torch.tensor([row]))
        with self.state.lock:
            found = attribute(subject.model, X)
        near = self._nearest(row)
        return {
            **self.cards.brief(row, values=self.cards.values(row, LONG)),
            "columns": self.cards.columns,
            "picture": subject.drawn is not None,
            "made_of": self._made_of(row, found.scores[0].numpy(), found.directional[0].numpy(), found.shift[0].norm()),
            "latent": [self.cards.brief(i, cosine=float(self._cosines(row)[i])) for i in near[:K]],
            "kernel": self._kernel(row, found.K_tm[0].mean(0).numpy()),
            "flags": self._flags(row, near),
        }

    def would_change(self, row: int) -> Json:
        """Return the training rows that bring a sample and its first landmark together, and those that part them.

        Args:
            row: Its place.

        Returns:
            Plain values for the page.
        """
        values, landmark = self.influence(row), int(self.state.found.first[row])
        change = -values / len(values)
        order = np.argsort(change, kind="stable")
        place = int(self.state.landmarks[landmark])
        assert self.state.causes is not None
        return {
            "method": "surrogate",
            "landmark": self.cards.brief(place),
            "together": [self.cards.brief(i, change=float(change[i])) for i in order[:K] if change[i] < 0],
            "apart": [self.cards.brief(i, change=float(change[i])) for i in order[::-1][:K] if change[i] > 0],
            "error": self.state.causes.rows.error,
            "trust": self.state.subject.trust.get("surrogate"),
        }

    def influence(self, row: int) -> Array:
        """Return the influence of every training sample on the cosine of a sample and its first landmark, ``(n,)``.

        Args:
            row: Place of the sample.

        Returns:
            Without a row the cosine changes by ``-influence / n``, to first order.

        Raises:
            InvalidInputError: If the objective of the run does not allow it.
        """
        causes = self.state.causes
        if causes is None:
            raise InvalidInputError(
                f"what would change it cannot be answered at once: {self.state.why}. The command krepes influence can "
                f"answer it, by a pass over the data."
            )
        landmark = int(self.state.landmarks[int(self.state.found.first[row])])
        pair = self.state.compressed(np.array([landmark])), self.state.compressed(np.array([row]))
        return causes.influence(*pair, self.state.origin)

    def _made_of(self, row: int, scores: Array, along: Array, length: torch.Tensor) -> Json:
        """Return the landmarks that attract and that repel, and which part of the shift each makes."""
        size = max(float(length), 1e-300)
        order = np.argsort(scores, kind="stable")

        def listed(chosen: Array) -> list[Json]:
            places = self.state.landmarks[chosen]
            return [
                self.cards.brief(place, score=float(scores[l]), part=float(along[l]) / size)
                for l, place in zip(chosen, places, strict=True)
            ]

        pulls, pushes = order[::-1][:K], order[:K]
        return {
            "attracts": listed(pulls[scores[pulls] > 0]),
            "repels": listed(pushes[scores[pushes] < 0]),
            "landmarks": len(scores),
            "moved": bool(self.state.subject.model.solution_.accepted),
        }

    def _kernel(self, row: int, kernel: Array) -> list[Json]:
        order = np.argsort(-kernel, kind="stable")
        places = [(int(self.state.landmarks[l]), float(kernel[l])) for l in order[: K + 1]]
        return [self.cards.brief(place, kernel=value) for place, value in places if place != row][:K]

    def _cosines(self, row: int) -> Array:
        return self.state.unit @ self.state.unit[row]

    def _nearest(self, row: int) -> Array:
        """Return the closest other samples by latent cosine, closest first."""
        cosines = self._cosines(row)
        cosines[row] = -np.inf
        few = min(NEIGHBOURS, len(cosines) - 1)
        best = np.argpartition(-cosines, few - 1)[:few] if few else np.zeros(0, np.int64)
        return best[np.argsort(-cosines[best], kind="stable")]

    @cached_property
    def _far(self) -> float:
        return float(np.quantile(self.state.found.close, FAR))

    def _flags(self, row: int, near: Array) -> list[Json]:
        """Return what is unusual about a sample, each with its figure."""
        found, labels, flags = self.state.found, self.cards.labels, []
        if labels is not None and len(near):
            own = labels[row]
            first = labels[self.state.landmarks[int(found.first[row])]]
            if first != own:
                flags.append(f"The landmark that attracts it most is of another class, {first}, not {own}.")
            same = int((labels[near] == own).sum())
            if same * 2 < len(near):
                flags.append(f"{same} of its {len(near)} closest samples have its class, {own}: is the label right?")
        if float(found.close[row]) <= self._far:
            flags.append(
                f"It lies far from every landmark: kernel {found.close[row]:.2g} to the closest, among the lowest "
                f"{FAR:.0%} of all samples. What it is made of says little here."
            )
        twins = [i for i in near if float(self._cosines(row)[i]) > SAME]
        if twins:
            side = self.cards.split(int(twins[0]))
            flags.append(f"It has practically the embedding of {self.cards.brief(twins[0])['id']} ({side}).")
        return [{"text": text} for text in flags]
