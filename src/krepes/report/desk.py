"""What sections on single samples share: who is listed, made of what, changed by what, and who has a sheet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krepes.audit.study import Study
from krepes.audit.wording import percent, text
from krepes.report.blocks import Tone
from krepes.report.pictures import thumbnail

MOST_SHEETS = 400
LIGHT = 200_000
"""Bytes that pictures of samples listed in brief may take, seven each."""


@dataclass(frozen=True)
class Bond:
    """A training sample as it bears on a test sample.

    Attributes:
        row: Among the training samples.
        tone: Whether it attracts or repels; empty for rows that are asked about for their removal.
        said: How much, in words.
        value: The number behind the words.
    """

    row: int
    tone: Tone
    said: str
    value: float


@dataclass(frozen=True, eq=False)
class Desk:
    """A study, and what is read from it for single samples; samples are named by their position in the list."""

    study: Study

    @cached_property
    def places(self) -> list[int]:
        """Test samples that are listed, those shown in depth first; of pictures as many as make no heavy page."""
        found = self.study.places.tolist()
        if self.study.inputs != "image":
            return found
        sample: Any = self.study.test(torch.tensor(found[:1]))
        size = len(thumbnail(sample[0], "").content) if isinstance(sample, Tensor) else 1
        return found[: max(self.deep, LIGHT // (7 * size))]

    @property
    def deep(self) -> int:
        """How many of them are shown in depth."""
        return len(self.study.chosen)

    @cached_property
    def shares(self) -> Tensor:
        """Share of the pull on each listed sample that each landmark makes, with its sign, ``(s, m)``."""
        scores = self.study.listing.scores.double()[: len(self.places)]
        return scores / scores.abs().sum(1, keepdim=True).clamp_min(1e-300)

    @cached_property
    def rows(self) -> list[int]:
        """Training row of each landmark."""
        return [int(row) for row in self.study.model.landmarks_.tolist()]

    def made_of(self, i: int, k: int | None = None) -> list[Bond]:
        """Return the landmarks that attract a listed sample most, then those that repel it most."""
        shares, found = self.shares[i], []
        for sign, tone in ((1, "attracts"), (-1, "repels")):
            for l in (sign * shares).topk(min(k or self.study.k, len(shares))).indices.tolist():
                share = float(shares[l])
                if sign * share > 0:
                    role: Tone = "attracts" if tone == "attracts" else "repels"
                    found.append(Bond(self.rows[l], role, f"{tone}, {percent(abs(share))} of the pull", share))
        return found

    @cached_property
    def asks_removal(self) -> bool:
        """Whether the influence of training rows is part of the report."""
        return self.study.counterfactual and self.study.data is not None

    def would_change(self, i: int) -> tuple[list[Bond], list[Bond]]:
        """Return the rows that hold a sample shown in depth to its first landmark, and those that drive them apart."""
        values, k = np.asarray(self.study.influence.values)[:, i], self.study.k
        order = np.argsort(-values, kind="stable")
        found = []
        for rows in (order[:k], order[::-1][:k]):
            changes = [(int(row), -100 * float(values[row]) / self.study.n) for row in rows]
            found.append([Bond(row, "", f"{moved(change)} if removed", change) for row, change in changes])
        return found[0], found[1]

    @cached_property
    def sheets(self) -> tuple[int, ...]:
        """Training rows that have a sheet of their own: those named anywhere, then the strongest landmarks."""
        study = self.study
        strongest = study.attribution.omega.argsort(descending=True, stable=True).tolist()
        named = [bond.row for i in range(len(self.places)) for bond in self.made_of(i)]
        if self.asks_removal:
            named += [bond.row for i in range(self.deep) for part in self.would_change(i) for bond in part]
        return tuple(dict.fromkeys([*named, *(self.rows[l] for l in strongest)]))[:MOST_SHEETS]

    @cached_property
    def _with_sheet(self) -> frozenset[int]:
        return frozenset(self.sheets)

    def link(self, row: int) -> str:
        """Return the key of a training row's sheet, or nothing if it has none."""
        return f"row-{row}" if row in self._with_sheet else ""

    def name(self, place: int) -> str:
        """Return what a test sample is called: its id, and its class if that is known."""
        study = self.study
        label = f", class {text(study.label_of[1][place])}" if study.label_of else ""
        return f"{text(study.test_id(place))}{label}"

    def class_of(self, row: int) -> str:
        """Return the class of a training row as text, or nothing."""
        return "" if self.study.label_of is None else text(self.study.label_of[0][row])

    def train_name(self, row: int) -> str:
        """Return what a training row is called."""
        return text(self.study.train_id(row))

    def pictures(self, rows: list[int]) -> Tensor | None:
        """Return training samples as images, ``(b, ...)``, or nothing if they are none."""
        if self.study.inputs != "image" or self.study.data is None:
            return None
        found: Any = self.study.data.plain(torch.tensor(rows))
        return found if isinstance(found, Tensor) else None


def moved(change: float) -> str:
    """Return a change of the closeness in words, such as '0.42 points closer'."""
    shown = f"{abs(change):.2g}"
    return f"{shown} {'point' if shown == '1' else 'points'} {'closer' if change > 0 else 'less close'}"
