"""A number or a level for every sample, to colour the map by."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krepes.errors import InvalidInputError
from krepes.explore.cards import Json, shown
from krepes.explore.room import Array
from krepes.explore.sample import Samples
from krepes.explore.state import State

LEVELS = 12
"""Values that get a colour of their own; the others share one."""
KEPT = 8
"""Answers whose colours are kept, last asked last forgotten."""


def packed(about: Json, arrays: Mapping[str, Array]) -> bytes:
    """Return plain values and arrays as one body: length of the head, the head as JSON, then the arrays.

    Args:
        about: Plain values.
        arrays: Of four or one byte each entry, by name; the page reads them in this order.

    Returns:
        The body; every array starts at a multiple of four bytes.
    """
    parts = [np.ascontiguousarray(array) for array in arrays.values()]
    listed = [{"name": name, "type": str(a.dtype), "length": a.size} for name, a in zip(arrays, parts, strict=True)]
    head = json.dumps({**about, "arrays": listed}, allow_nan=False).encode()
    head += b" " * (-len(head) % 4)
    padded = [part.tobytes() + b"\0" * (-part.nbytes % 4) for part in parts]
    return len(head).to_bytes(4, "little") + head + b"".join(padded)


@dataclass(eq=False)
class Colours:
    """Values for all samples of a run, by what they show."""

    state: State
    samples: Samples
    _kept: OrderedDict[str, tuple[str, Array]] = field(default_factory=OrderedDict, repr=False)

    def keep(self, key: str, title: str, values: Array) -> None:
        """Keep the values of an answer, so that the map can be coloured by it."""
        self._kept[key] = (title, values)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def of(self, by: str, name: str | None, row: int | None) -> bytes:
        """Return the values of all samples.

        Args:
            by: ``"split"``, ``"column"``, ``"influence"`` or ``"answer"``.
            name: Of the column, or the key of the answer.
            row: Of the sample whose influence it is.

        Returns:
            A packed body: levels and a code for each sample, or numbers on a scale.

        Raises:
            InvalidInputError: If there is no such thing.
        """
        subject = self.state.subject
        if by == "split":
            codes = np.where(np.arange(subject.N) < subject.n, 0, 1)
            codes[self.state.landmarks] = 2
            return _levels("part of the fit", ["training", "held out", "landmark"], codes)
        if by == "column" and name is not None:
            return self._column(name)
        if by == "influence" and row is not None:
            values = np.full(subject.N, np.nan, np.float32)
            values[: subject.n] = self.samples.influence(row)
            return _scale("influence", values, signed=True)
        if by == "answer" and name is not None and name in self._kept:
            title, values = self._kept[name]
            return _scale(title, values, signed=bool(np.nanmin(values) < 0))
        raise InvalidInputError("the map can be coloured by split, column, influence of a row, or a recent answer.")

    def _column(self, name: str) -> bytes:
        subject = self.state.subject
        series = subject.series(name)
        if subject.is_number(name) and series.nunique() > LEVELS:
            return _scale(name, series.to_numpy(dtype=np.float32, na_value=np.nan), signed=False)
        texts = subject.texts(name)
        known, codes, counts = np.unique(texts, return_inverse=True, return_counts=True)
        common = np.sort(np.argsort(-counts, kind="stable")[:LEVELS])
        place = np.full(len(known), len(common))
        place[common] = np.arange(len(common))
        levels = [*(shown(known[i], 40) for i in common), *(["(others)"] if len(known) > len(common) else [])]
        return _levels(name, levels, place[codes])


def _levels(title: str, levels: list[str], codes: Array) -> bytes:
    return packed({"kind": "levels", "title": shown(title), "levels": levels}, {"codes": codes.astype(np.uint8)})


def _scale(title: str, values: Array, *, signed: bool) -> bytes:
    """Return numbers with the ends of their scale, two per cent cut off at each side; what is missing is NaN."""
    known = values[np.isfinite(values)]
    low, high = (0.0, 1.0) if len(known) == 0 else (float(x) for x in np.quantile(known, [0.02, 0.98]))
    if signed:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    about: dict[str, Any] = {"kind": "scale", "title": shown(title), "low": low, "high": high, "signed": signed}
    return packed(about, {"values": values.astype(np.float32)})
