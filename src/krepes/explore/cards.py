"""A sample in words: its id, where it belongs, its class and its values, as text that can be shown anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from krepes.data.text import printable
from krepes.explore.room import Array
from krepes.explore.state import State

Json = dict[str, Any]
SHORT, LONG, MOST = 120, 5000, 60
"""Characters of a value in a list and on a sample's own page, and columns that are shown."""


@dataclass(frozen=True, eq=False)
class Cards:
    """Writes samples of a run as plain values for the page."""

    state: State
    _cache: dict[str, Array] = field(default_factory=dict, repr=False)

    def brief(self, row: int, **more: Any) -> Json:
        """Return what a list shows of a sample, with whatever else is given."""
        subject = self.state.subject
        return {
            "row": int(row),
            "id": shown(subject.ids[row]),
            "split": self.split(row),
            "landmark": int(row) in self.state.landmark_place,
            "label": None if self.labels is None else shown(self.labels[row]),
            "values": self.values(row, SHORT),
            **more,
        }

    def split(self, row: int) -> str:
        """Return on which side of the fit a sample is."""
        return "training" if row < self.state.subject.n else "held out"

    def values(self, row: int, longest: int) -> list[str]:
        """Return the values of a sample, in the order of `columns`."""
        table = self.state.subject.table
        return [] if table is None else [shown(value, longest) for value in table.iloc[row].tolist()[:MOST]]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are shown."""
        return [shown(name) for name in self.state.subject.columns[:MOST]]

    @cached_property
    def labels(self) -> Array | None:
        """Class of every sample as text, or ``None``."""
        label = self.state.subject.label
        return None if label is None else self.state.subject.texts(label)


def shown(value: Any, longest: int = SHORT) -> str:
    """Return a value as short text without hidden characters."""
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:.6g}"
    text = printable(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
