"""CSV in: the delimiter found, ragged lines refused, and no number read in a way that its file may not mean.

A file that does not separate its columns by commas may write ``1.234`` for a thousand and more. Such a column is kept
as text, so that the schema, which sees all columns, decides.

A large file is read in pieces of some rows. Types are those that reading it at once would give.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.data.files import foreign, named
from krepes.data.kept import is_kept, kept, one_by_one
from krepes.data.pieces import Pieces
from krepes.data.textfile import open_text
from krepes.data.values import shown
from krepes.errors import InvalidInputError

DELIMITERS = (",", ";", "\t", "|")
HEADER = "Save it as CSV in UTF-8, with names in line 1."
MOST_COLUMNS = 30_000
LONGEST_HEADER = 2**24
CELLS = 2**19
"""Fields of a file that are read at a time, at least one line of them."""
THOUSANDS = re.compile(r"[+-]?(?:[1-9]\d{0,2}\.\d{3}|\d{1,3})", re.ASCII)


def read_csv(
    path: Path,
    delimiter: str | None,
    missing: tuple[str, ...],
    budget: Budget = DEFAULT_BUDGET,
    *,
    texts: bool = False,
) -> pd.DataFrame:
    """Read a CSV file with a header line.

    Args:
        path: A regular file, packed or not.
        delimiter: What separates the columns; by default whichever of ``, ; tab |`` splits the header most.
        missing: Texts that mean "no value", beside those of pandas.
        budget: A table of more than an eighth of it lies in a temporary file.
        texts: Every field as it is written, nothing missing and no number: ``007`` and ``NA`` may be ids.

    Returns:
        The table, at least one row.

    Raises:
        InvalidInputError: If lines are ragged, a name is repeated, or the file is no such text.
    """
    header, delimiter = _header(path, delimiter)
    # An empty name is the index column that to_csv writes; the parser names those by their place.
    require_distinct([name for name in header if name], named(path))
    options = {"sep": delimiter, "na_values": list(missing), "skipinitialspace": True, "index_col": False}
    if texts:
        options |= {"dtype": str, "na_filter": False}
    frame = _parsed(path, header, options, budget)
    if frame.empty:
        raise InvalidInputError(f"{named(path)} has a header of {len(header)} columns but no row below it. Add rows.")
    if texts:
        return frame
    if frame.iloc[:, -1].isna().any():
        _require_whole_lines(path, header, delimiter)
    if delimiter != ",":
        frame = _with_texts(path, frame, options, _could_be_thousands, _are_thousands)
    return _with_texts(path, frame, options, _could_be_codes, _are_codes)


def require_distinct(names: list[str], what: str) -> None:
    """Raise `InvalidInputError` if a column name occurs twice in ``what``."""
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise InvalidInputError(
            f"{what} has {len(repeated)} column names more than once: [{', '.join(map(shown, repeated[:5]))}]. Every "
            f"column must have a name of its own: rename or drop the others."
        )


def _parsed(path: Path, header: list[str], options: dict[str, Any], budget: Budget) -> pd.DataFrame:
    cannot = (
        f"{named(path)} cannot be read as UTF-8 text in columns separated by {options['sep']!r} after its header of "
        f"{len(header)} columns"
    )
    advice = "Repair those lines, save as UTF-8, or say what separates columns, as in delimiter=';'."
    with foreign(cannot, advice), warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        pieces = _pieces(path, options, len(header))
        if isinstance(pieces, pd.DataFrame):
            return pieces
        columns = ((name, _column(path, pieces, place, options)) for place, name in enumerate(pieces.names))
        if budget.fits(pieces.bytes, share=1 / 8):
            return pd.DataFrame(dict(columns))
        return kept(columns)


def _pieces(path: Path, options: dict[str, Any], columns: int) -> Pieces | pd.DataFrame:
    """Return a file in pieces, or as a table if a single one holds it."""
    pieces: Pieces | None = None
    first: pd.DataFrame | None = None
    with open_text(path) as text:
        # low_memory=False: a column's type is decided once in a piece, not anew in parts of it.
        for piece in pd.read_csv(text, low_memory=False, chunksize=max(1, CELLS // columns), **options):
            if first is None:
                first = piece
                continue
            if pieces is None:
                pieces = Pieces(list(first.columns), texts="dtype" in options)
                pieces.add(first)
            pieces.add(piece)
    assert first is not None, "of a file without rows there is an empty piece"
    return first if pieces is None else pieces


def _column(path: Path, pieces: Pieces, place: int, options: dict[str, Any]) -> pd.Series[Any]:
    """Return a column of all pieces; one whose pieces do not tell its type is parsed again, by itself."""
    found = pieces.column(place)
    if found is not None:
        return found
    alone = io.StringIO(newline="")
    lines = csv.writer(alone, quoting=csv.QUOTE_ALL)
    lines.writerow(["column"])
    with open_text(path) as text:
        written = {**options, "usecols": [place], "dtype": str, "na_filter": False, "chunksize": CELLS}
        for piece in pd.read_csv(text, **written):
            lines.writerows([field] for field in piece.iloc[:, 0])
    alone.seek(0)
    return pd.read_csv(alone, low_memory=False, na_values=options["na_values"])["column"]


def _header(path: Path, delimiter: str | None) -> tuple[list[str], str]:
    """Return the fields of the first line, and the delimiter that was given or splits it most."""
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '\r\n"'):
        raise InvalidInputError(f"delimiter={delimiter!r} must be one character, not a quote or a line end.")
    _require_columns(path)
    split = {mark: _first_line(path, mark) for mark in (*DELIMITERS, *([delimiter] if delimiter else []))}
    best = max(DELIMITERS, key=lambda mark: len(split[mark]))
    if delimiter is not None and len(split[delimiter]) == 1 < len(split[best]):
        raise InvalidInputError(
            f"split at {delimiter!r}, {named(path)} has a single column, {shown(split[delimiter][0])}; split at "
            f"{best!r} it has {len(split[best])}. Pass delimiter={best!r}."
        )
    chosen = delimiter or best
    return split[chosen], chosen


def _require_columns(path: Path) -> None:
    """Refuse a first line of more fields than tables have, before it is split five times."""
    with foreign(f"{named(path)} has no readable header line", HEADER), open_text(path) as text:
        line = text.readline(LONGEST_HEADER)
    most = max(line.count(mark) for mark in DELIMITERS)
    if most > MOST_COLUMNS:
        raise InvalidInputError(
            f"{named(path)} has {most:,} or more columns, at most {MOST_COLUMNS:,} are read. Save numbers of so many "
            f"columns with numpy.save, as .npy."
        )


def _first_line(path: Path, delimiter: str) -> list[str]:
    with foreign(f"{named(path)} has no readable header line", HEADER), open_text(path) as text:
        # The parser, not a split of our own: fields may be quoted.
        line = pd.read_csv(text, sep=delimiter, header=None, nrows=1, dtype=str, skipinitialspace=True, na_filter=False)
        return [str(field) for field in line.iloc[0]]


def _require_whole_lines(path: Path, header: list[str], delimiter: str) -> None:
    """Refuse lines with fewer fields than the header, which the parser would fill up with missing values."""
    cannot = foreign(f"{named(path)} cannot be split into fields", "Repair its quotes, or save it again.")
    with cannot, open_text(path) as text:
        lines = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
        short = [(lines.line_num, len(fields)) for fields in lines if 0 < len(fields) < len(header) and any(fields)]
    if short:
        line, fields = short[0]
        raise InvalidInputError(
            f"{named(path)} has {len(short)} lines with fewer fields than the header of {len(header)} columns, the "
            f"first at line {line} with {fields}. Complete those lines: nobody knows which columns they leave out."
        )


def _with_texts(
    path: Path,
    frame: pd.DataFrame,
    options: dict[str, Any],
    could_be: Callable[[pd.Series[Any]], bool],
    are: Callable[[pd.Series[Any]], bool],
) -> pd.DataFrame:
    """Return the table with the texts of columns that were read as numbers but are none."""
    doubtful = [place for place, (_, column) in enumerate(one_by_one(frame)) if could_be(column)]
    texts = {frame.columns[place]: column for place, column in _as_texts(path, doubtful, options) if are(column)}
    if not texts:
        return frame
    columns = ((name, texts.get(name, column)) for name, column in one_by_one(frame))
    return kept(columns) if is_kept(frame) else pd.DataFrame(dict(columns))


def _as_texts(path: Path, places: list[int], options: dict[str, Any]) -> Iterator[tuple[int, pd.Series[Any]]]:
    """Yield columns of the file as they are written; it is read again only if there are any."""
    if not places:
        return
    with foreign(f"{named(path)} cannot be read again", "Do not change the file while it is read."):
        pieces = _pieces(path, {**options, "usecols": places, "dtype": str}, len(places))
    for number, place in enumerate(places):
        column = pieces.iloc[:, number] if isinstance(pieces, pd.DataFrame) else pieces.column(number)
        assert column is not None, "texts are texts in every piece"
        yield place, column


def _are_thousands(texts: pd.Series[Any]) -> bool:
    """Return whether texts that were read as decimals are all written as thousands may be: ``1.234`` beside ``12``."""
    return all(THOUSANDS.fullmatch(value.strip()) for value in texts.dropna().unique())


def _are_codes(texts: pd.Series[Any]) -> bool:
    """Return whether some whole numbers start with a zero: ``01067`` is a code and no number."""
    return bool(texts.str.fullmatch(r"\s*0\d+\s*").any())


def _could_be_codes(column: pd.Series[Any]) -> bool:
    """Return whether whole numbers could be codes: none is negative, and some are shorter than the longest."""
    values = column.dropna().to_numpy()
    if column.dtype.kind not in "iuf" or not len(values) or not (values == np.floor(values)).all():
        return False
    longest = len(str(int(values.max()))) if np.isfinite(values).all() else 0
    return bool(3 <= longest <= 15 and values.min() >= 0 and values.min() < 10 ** (longest - 1))


def _could_be_thousands(column: pd.Series[Any]) -> bool:
    if column.dtype.kind != "f":
        return False
    values = column.dropna().to_numpy()
    if not (np.abs(values) < 1000).all():
        return False
    rounded = np.round(values * 1000)
    whole = np.abs(values * 1000 - rounded) < 1e-6
    return bool(whole.all() and (rounded % 1000 != 0).any())
