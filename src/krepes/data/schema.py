"""The schema of a table: what kind each column is, inferred, shown, overridden, stored and enforced.

    numeric       numbers, also 1.234,5 and 12 %                 standardised; missing: median and an indicator
    boolean       true/false, yes/no, y/n, t/f, 1/0              0 or 1; missing likewise
    date          datetimes, ISO 8601 texts, 31.12.2020          days since 1970, then as numeric
    categorical   values that repeat, codes such as 01067        one column for each, of many the most frequent; missing
                                                                 is one of them
    ordered       categories from low to high, S < M < L         as categorical; audits compare places in the order
    constant      one value everywhere                           dropped: it tells no two rows apart
    identifier    texts that nearly all differ, row numbers      dropped: they name a row and do not describe it
    ignored       whatever the user says, such as a label        dropped

Numbers and dates that are not written as every program writes them have a format beside their kind, such as
``"numeric 1.234,5"`` or ``"date dd/mm/yyyy"`` (see `krepes.data.numerals` and `krepes.data.dates`). What can be read in
two ways stays text, and its note tells what to say. The format of an ordered column lists its values from low to high,
as in ``"ordered S < M < L"``: no file but Parquet says so itself.

Identifiers are dropped, not hashed: hash buckets would make rows alike by accident, and no explanation could name them.
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.data import values
from krepes.data.column import AUDITED, Column
from krepes.data.files import foreign, named, require_file
from krepes.data.frames import read_table
from krepes.data.kinds import KINDS, Kind, format_of, infer_kinds
from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.registry import load
from krepes.storage.mapped import release_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DROPPED = ("constant", "identifier", "ignored")
SHOWN = 20


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Example:
        >>> frame = pd.DataFrame({"age": [31, 45, 52], "member": ["yes", "no", None], "unit": ["kg"] * 3})
        >>> print(Schema.infer(frame))
        column  kind      note
        age     numeric
        member  boolean
        unit    constant  dropped: every value is 'kg'
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(cls, table: Any, override: Mapping[str, str] | None = None) -> Schema:
        """Look at a table and say what its columns are.

        Args:
            table: Whatever `read_table` takes; training data, for a kind seen here is held to later.
            override: Kinds of the columns that the user knows better, by name, with a format where needed:
                ``{"when": "date dd/mm/yyyy"}``.

        Returns:
            The schema, one column for each of the table's. An override of a column that does not exist is refused,
            and a table of which no column is left to use.
        """
        schema = cls.look(table, override)
        schema.require_used()
        return schema

    @classmethod
    def look(cls, table: Any, override: Mapping[str, str] | None = None) -> Schema:
        """Return what `infer` does, of columns that only audits see: none has to be of use to an encoder."""
        frame, told = read_table(table), cls.from_dict(override or {})
        absent = sorted(column.name for column in told.columns if column.name not in frame.columns)
        if absent:
            raise InvalidInputError(f"the override names columns {absent}, but the table has {_some(frame.columns)}.")
        known = {column.name: column for column in told.columns}
        found = infer_kinds(frame[[name for name in frame.columns if name not in known]])
        columns = []
        for name in frame.columns:
            if name in known:
                format = known[name].format or format_of(frame[name], known[name].kind)
                columns.append(Column(name, known[name].kind, "as the user said", format))
            else:
                columns.append(Column(name, found[name].kind, found[name].note, found[name].format))
        return cls(tuple(columns))

    @classmethod
    def from_dict(cls, kinds: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_dict` stored, or that a user wrote as ``{name: kind}``.

        Args:
            kinds: For each name a text of kind and format, or a dict of ``kind``, ``note`` and ``format``.

        Returns:
            The schema.

        Raises:
            InvalidInputError: If an entry is neither, or names no kind.
        """
        if not isinstance(kinds, Mapping):
            raise InvalidInputError(f"a schema must be a table of columns, got a {type(kinds).__name__}.")
        columns = []
        for name, entry in kinds.items():
            parts = _split(entry)
            if not isinstance(parts, Mapping) or not all(isinstance(part, str) for part in parts.values()):
                raise InvalidInputError(
                    f"column {values.shown(name)}: the schema has {values.shown(entry)}, where a kind must stand: "
                    f"{', '.join(KINDS)}."
                )
            columns.append(Column(str(name), parts.get("kind", ""), parts.get("note", ""), parts.get("format", "")))
        return cls(tuple(columns))

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema, of all columns or only of those to override, from the ``[columns]`` table of a TOML file.

        Args:
            path: A file with lines ``name = "kind"`` under ``[columns]``.

        Returns:
            The schema.

        Raises:
            InvalidInputError: If the file is no TOML, or has no such table.
        """
        path = require_file(path, "a TOML file with a table [columns]")
        with foreign(f"{named(path)} cannot be read as TOML", "Correct it, and save it as UTF-8."):
            kinds = tomllib.loads(path.read_text(encoding="utf-8")).get("columns")
        if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
            raise InvalidInputError(
                f'{named(path)} needs a table [columns] with lines name = "kind"; the kinds are {", ".join(KINDS)}.'
            )
        return cls.from_dict(kinds)

    def to_dict(self) -> dict[str, dict[str, str]]:
        """Return plain JSON values, in the order of the columns."""
        return {
            column.name: {"kind": column.kind, "note": column.note}
            | ({"format": column.format} if column.format else {})
            for column in self.columns
        }

    def to_toml(self) -> str:
        """Return the text of a TOML file, notes as comments, for the user to change and give back."""
        lines = (
            f"{_quoted(column.name)} = {_quoted(column.told)}"
            + (f"  # {_quoted(column.note)[1:-1]}" if column.note else "")
            for column in self.columns
        )
        return "\n".join(["[columns]", *lines, ""])

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each column: its name, kind and note."""
        return pd.DataFrame([(c.name, c.kind, c.note) for c in self.columns], columns=["column", "kind", "note"])

    def plot(self) -> Figure:
        """Draw how many columns are of each kind."""
        return load("krepes.figures:kind_bars")(self.to_frame())

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(index=False)

    def __str__(self) -> str:
        rows = [("column", "kind", "note"), *((printable(c.name), c.kind, c.note) for c in self.columns)]
        wide, kind = (max(len(row[j]) for row in rows) for j in (0, 1))
        return "\n".join(f"{row[0]:{wide}}  {row[1]:{kind}}  {row[2]}".rstrip() for row in rows)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each column, by name, with its format where it has one: what `infer` takes to override."""
        return {column.name: column.told for column in self.columns}

    @property
    def used(self) -> dict[str, Kind]:
        """Kind of each column that is not dropped."""
        return {column.name: column.kind for column in self.columns if column.kind not in DROPPED}

    def require_used(self) -> None:
        """Raise `InvalidInputError` if every column is dropped."""
        if not self.used:
            raise InvalidInputError(
                f"none of the {len(self.columns)} columns can be used:\n{self}\n"
                f"Override the kind of at least one, or check that the right file and delimiter were given."
            )

    def apply(self, table: Any) -> pd.DataFrame:
        """Hold a table to the schema: its columns by name, in the schema's order, of the schema's kinds.

        Args:
            table: Whatever `read_table` takes. Columns the schema does not know are left out with a warning.

        Returns:
            The used columns: numeric, boolean and date (days since 1970) as float64 with NaN where a value is missing,
            categorical and ordered as categories of text, ``(missing)`` among them. A table that lacks a used column,
            or has a value that is not of its column's kind, is refused.
        """
        return pd.DataFrame(dict(self.columns_of(table)))

    def columns_of(self, table: Any, rows: Any = None) -> Iterator[tuple[str, pd.Series[Any]]]:
        """Yield what `apply` returns column by column, so that one is held at a time.

        Args:
            table: Whatever `read_table` takes.
            rows: Places of the rows to return, ``(b,)``; by default all.

        Yields:
            Names and values.

        Raises:
            InvalidInputError: If a used column is absent, or a value is not of its column's kind.
        """
        frame, used = read_table(table), [column for column in self.columns if column.kind not in DROPPED]
        absent = [column.name for column in used if column.name not in frame.columns]
        if absent:
            raise InvalidInputError(
                f"the table lacks {len(absent)} of {len(used)} columns: {_some(absent)}. It has "
                f"{_some(frame.columns)}; their order does not matter, their names do."
            )
        known = {column.name for column in self.columns}
        extra = [name for name in frame.columns if name not in known]
        if extra:
            warnings.warn(
                f"the schema does not know {len(extra)} columns, they are not used: {_some(extra)}.", stacklevel=2
            )
        for column in used:
            values = frame[column.name] if rows is None else frame[column.name].iloc[rows].reset_index(drop=True)
            yield column.name, column.read(values)
            release_tables()

    def with_values(self, table: Any) -> pd.DataFrame:
        """Return a table as people and audits read it: all its columns, texts of numbers and dates read as such.

        Args:
            table: Whatever `read_table` takes.

        Returns:
            The table; where they were texts, numeric columns of the schema are float64 and dates ``datetime64[us]``;
            ordered ones are pandas' ordered categories.
        """
        frame = read_table(table)
        read = {column.name: column for column in self.columns if column.kind in AUDITED}
        return frame.assign(**{name: read[name].audited(frame[name]) for name in frame if name in read})


def _some(names: Iterable[str]) -> str:
    """Return a list of names as it may stand in a message."""
    found = list(names)
    shown = ", ".join(values.shown(name) for name in found[:SHOWN])
    return f"[{shown}{f', and {len(found) - SHOWN} more' if len(found) > SHOWN else ''}]"


def _split(entry: Any) -> Mapping[str, Any]:
    """Return what a schema's entry says: ``"numeric 1.234,5"`` is a kind and a format."""
    if not isinstance(entry, str):
        return entry
    kind, _, format = entry.partition(" ")
    return {"kind": kind, "format": format}


def _quoted(text: str) -> str:
    """Return a TOML basic string: JSON's escapes, and the one control character that JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
