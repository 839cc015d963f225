"""One column of a schema: its name, kind and format, and how its values are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from krepes.data import dates, numerals, order, values
from krepes.data.kinds import KINDS, Kind
from krepes.errors import InvalidInputError

AUDITED = ("numeric", "date", "ordered")
"""Kinds whose values audits see as such, though a file may hold texts."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its name.
        kind: What it holds.
        note: Why it was given this kind, where that needs saying.
        format: How its numbers or dates are written, where not as every program writes them; the values of an ordered
            column, from low to high.
    """

    name: str
    kind: Kind
    note: str = ""
    format: str = ""

    def __post_init__(self) -> None:
        """Refuse kinds and formats that do not exist."""
        where = f"column {values.shown(self.name)}"
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InvalidInputError(
                f"{where}: no such kind of column: {self.kind!r}. The kinds are {', '.join(KINDS)}."
            )
        if self.kind == "ordered" and not order.is_format(self.format):
            raise InvalidInputError(
                f"{where}: {self.told!r} does not list its values from low to high. Write at least two, all different, "
                f"with {order.MARK!r} between them: {order.EXAMPLE!r}."
            )
        known = {
            "numeric": numerals.is_format(self.format),
            "date": self.format in {"", *dates.FORMATS},
            "ordered": True,
        }
        if not known.get(self.kind, not self.format):
            formats = {"numeric": (numerals.POINT, numerals.COMMA), "date": dates.FORMATS}.get(self.kind, ("none",))
            raise InvalidInputError(
                f"{where}: {self.kind!r} has no format {self.format!r}. Its formats are {', '.join(formats)}."
            )

    @property
    def told(self) -> str:
        """Kind and format as a schema file says them."""
        return f"{self.kind} {self.format}" if self.format else self.kind

    def read(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return values as this kind of column has them; a dropped kind has none."""
        if self.kind in {"numeric", "date"}:
            return (values.numbers if self.kind == "numeric" else values.days)(column, self.format)
        if self.kind == "ordered":
            return values.ordered(column, order.values_in(self.format))
        return values.flags(column) if self.kind == "boolean" else values.categories(column)

    def audited(self, column: pd.Series[Any]) -> pd.Series[Any]:
        """Return values as people and audits see them: texts as the numbers or dates they stand for, or in order."""
        if self.kind == "ordered":
            return self.read(column).cat.set_categories(list(order.values_in(self.format)), ordered=True)
        if is_numeric_dtype(column) or is_datetime64_any_dtype(column):
            return column
        return self.read(column) if self.kind == "numeric" else _moments(self.read(column))


def _moments(days: pd.Series[float]) -> pd.Series[Any]:
    """Return dates to the microsecond from days since 1970; without nanoseconds they have no first and no last year."""
    seconds = days.to_numpy() * 86_400.0
    whole = np.round(seconds)
    # A day is a number of 53 bits: of a time far from 1970 the last microseconds are round-off.
    known = np.where(np.abs(seconds - whole) <= 86_400.0 * np.spacing(np.abs(days.to_numpy())), whole, seconds)
    ticks = np.round(np.where(np.isnan(known), 0.0, known) * 1e6).astype(np.int64)
    moments = np.where(np.isnan(known), np.iinfo(np.int64).min, ticks).view("datetime64[us]")
    return pd.Series(moments, index=days.index, name=days.name)
