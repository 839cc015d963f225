"""A sample in words: its id, where it belongs, its class and its values, as text that can be shown anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
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
        return [shown(column[int(row)], longest) for column in self._arrays]

    @cached_property
    def _arrays(self) -> list[Any]:
        """The columns that are shown, ready for single values."""
        table = self.state.subject.table
        return [] if table is None else [table[name].array for name in table.columns[:MOST]]

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
    if isinstance(value, (float, np.floating)):
        return "–" if np.isnan(value) else f"{value:.6g}"
    if value is None or value is pd.NA or value is pd.NaT:
        return "–"
    text = printable(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
