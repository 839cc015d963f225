"""The schema of a table: what kind each column is, inferred, shown, overridden, stored and enforced.

    numeric       numbers                                        standardised; missing: median and an indicator
    boolean       true/false, yes/no, y/n, t/f, 1/0              0 or 1; missing likewise
    date          ISO 8601 texts or datetimes                    days since 1970, then as numeric
    categorical   few distinct values                            one column for each; missing is one of them
    constant      one value everywhere                           dropped: it tells no two rows apart
    identifier    texts that nearly all differ, row numbers      dropped: they name a row and do not describe it
    ignored       whatever the user says, such as a label        dropped

Identifiers are dropped, not hashed: hash buckets would make rows alike by accident, and no explanation could name them.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from krepes.data import values
from krepes.data.frames import read_table
from krepes.errors import InvalidInputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Kind = Literal["numeric", "boolean", "date", "categorical", "constant", "identifier", "ignored"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DROPPED = ("constant", "identifier", "ignored")
MAX_CATEGORIES = 100
# Below this many values, texts that all differ may still be categories, and consecutive numbers no row numbers.
FEW = 10
PARSERS = {
    "numeric": values.numbers,
    "boolean": values.flags,
    "date": values.days,
    "categorical": values.categories,
}


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its name.
        kind: What it holds.
        note: Why it was given this kind, where that needs saying.
    """

    name: str
    kind: Kind
    note: str = ""


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

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist."""
        wrong = {column.name: column.kind for column in self.columns if column.kind not in KINDS}
        if wrong:
            raise InvalidInputError(f"no such kind of column: {wrong}. The kinds are {', '.join(KINDS)}.")

    @classmethod
    def infer(cls, table: Any, override: Mapping[str, str] | None = None) -> Schema:
        """Look at a table and say what its columns are.

        Args:
            table: Whatever `read_table` takes; training data, for a kind seen here is held to later.
            override: Kinds of the columns that the user knows better, by name.

        Returns:
            The schema, one column for each of the table's.

        Raises:
            InvalidInputError: If ``override`` names a column that does not exist, or no column is left to use.
        """
        frame, override = read_table(table), dict(override or {})
        absent = sorted(set(override) - set(frame.columns))
        if absent:
            raise InvalidInputError(f"the override names columns {absent}, but the table has {list(frame.columns)}.")
        found = {name: _kind(frame[name]) for name in frame.columns if name not in override}
        told = {name: (kind, "as the user said") for name, kind in override.items()}
        schema = cls(tuple(Column(name, *(found | told)[name]) for name in frame.columns))
        schema.require_used()
        return schema

    @classmethod
    def from_dict(cls, kinds: Mapping[str, Any]) -> Schema:
        """Return the schema that `to_dict` stored, or that a user wrote as ``{name: kind}``."""
        entries: dict[str, Mapping[str, Any]] = {
            name: {"kind": entry} if isinstance(entry, str) else entry for name, entry in kinds.items()
        }
        return cls(tuple(Column(name, entry["kind"], entry.get("note", "")) for name, entry in entries.items()))

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
        try:
            kinds = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("columns")
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise InvalidInputError(f"{path} cannot be read as TOML: {error}.") from error
        if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
            raise InvalidInputError(
                f'{path} needs a table [columns] with lines name = "kind"; the kinds are {", ".join(KINDS)}.'
            )
        return cls.from_dict(kinds)

    def to_dict(self) -> dict[str, dict[str, str]]:
        """Return plain JSON values, in the order of the columns."""
        return {column.name: {"kind": column.kind, "note": column.note} for column in self.columns}

    def to_toml(self) -> str:
        """Return the text of a TOML file, notes as comments, for the user to change and give back."""
        lines = (
            f"{_quoted(column.name)} = {_quoted(column.kind)}"
            + (f"  # {_quoted(column.note)[1:-1]}" if column.note else "")
            for column in self.columns
        )
        return "\n".join(["[columns]", *lines, ""])

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each column: its name, kind and note."""
        return pd.DataFrame([(c.name, c.kind, c.note) for c in self.columns], columns=["column", "kind", "note"])

    def __str__(self) -> str:
        rows = [("column", "kind", "note"), *((c.name, c.kind, c.note) for c in self.columns)]
        wide, kind = (max(len(row[j]) for row in rows) for j in (0, 1))
        return "\n".join(f"{row[0]:{wide}}  {row[1]:{kind}}  {row[2]}".rstrip() for row in rows)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kind of each column, by name: also what `infer` takes to override."""
        return {column.name: column.kind for column in self.columns}

    @property
    def used(self) -> dict[str, Kind]:
        """Kind of each column that is not dropped."""
        return {name: kind for name, kind in self.kinds.items() if kind not in DROPPED}

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
            categorical as categories of text, ``(missing)`` among them.

        Raises:
            InvalidInputError: If a used column is absent, or a value is not of its column's kind.
        """
        frame, kinds = read_table(table), self.used
        absent = [name for name in kinds if name not in frame.columns]
        if absent:
            raise InvalidInputError(
                f"the table lacks {len(absent)} of {len(kinds)} columns: {absent}. It has {list(frame.columns)}; "
                f"their order does not matter, their names do."
            )
        extra = [name for name in frame.columns if name not in self.kinds]
        if extra:
            warnings.warn(f"the schema does not know {len(extra)} columns, they are not used: {extra}.", stacklevel=2)
        return pd.DataFrame({name: PARSERS[kind](frame[name]) for name, kind in kinds.items()})


def _kind(column: pd.Series[Any]) -> tuple[Kind, str]:
    """Return kind and note of a column."""
    levels = _levels(column)
    if levels.empty:
        return "constant", "dropped: every value is missing"
    if len(levels) == 1 and column.notna().all():
        return "constant", f"dropped: every value is {_shown(levels.iloc[0])}"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _kind_of_texts(levels, column.count())
    if _counts_rows(column):
        return "identifier", f"dropped: counts the rows from {column.iloc[0]}"
    if _parses(values.flags, levels):
        return "boolean", ""
    if _parses(values.days, levels):
        return "date", ""
    if is_numeric_dtype(column) or _parses(values.numbers, levels):
        return "numeric", ""
    return _kind_of_texts(levels, column.count())


def _levels(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the distinct values: they tell the kind, and of a million rows there are often few."""
    try:
        return pd.Series(column.dropna().unique(), name=column.name)
    except TypeError as error:
        raise InvalidInputError(
            f"column {column.name!r} holds a {type(column.dropna().iloc[0]).__name__} in a cell ({error}). A cell must "
            f"hold one number, text, flag or date: spread such columns over several first."
        ) from error


def _nearly_numbers(levels: pd.Series[Any]) -> str:
    """Return a note if most texts are numbers, or would be with a decimal point; else nothing."""
    texts = levels.astype("str")
    numeric = pd.to_numeric(texts, errors="coerce").notna()
    if 0.5 < numeric.mean() < 1.0:
        return (
            f"{numeric.sum()} of {len(texts)} distinct values are numbers, but {_shown(texts[~numeric].iloc[0])} is not"
        )
    if _parses(values.numbers, texts.str.replace(",", ".", n=1, regex=False)) and not numeric.all():
        return "numbers with a decimal comma? Write them with a point"
    return ""


def _counts_rows(column: pd.Series[Any]) -> bool:
    """Tell row numbers, which an unnamed column of a CSV file holds also when there are few."""
    likely = len(column) > FEW or str(column.name).startswith("Unnamed: ")
    whole = is_integer_dtype(column) and bool(column.notna().all())  # pandas' Int64 may have gaps
    return likely and whole and bool(column.diff().iloc[1:].eq(1).all())


def _kind_of_texts(levels: pd.Series[Any], count: int) -> tuple[Kind, str]:
    if len(levels) > MAX_CATEGORIES or len(levels) > max(FEW, count / 2):
        why = f"dropped: {len(levels)} distinct texts in {count} values; 'categorical' keeps them"
        return "identifier", "; ".join(filter(None, [why, _nearly_numbers(levels)]))
    return "categorical", _nearly_numbers(levels)


def _parses(parse: Callable[[pd.Series[Any]], pd.Series[Any]], levels: pd.Series[Any]) -> bool:
    try:
        parse(levels.iloc[:FEW])  # a few decide most columns: a million texts are not parsed in vain
        parse(levels)
    except InvalidInputError:
        return False
    return True


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _quoted(text: str) -> str:
    """Return a TOML basic string: JSON's escapes, and the one control character that JSON leaves bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
