"""Tables in: a CSV or Parquet file, a pandas or polars DataFrame, an array or tensor become one pandas DataFrame.

Nothing is interpreted here beyond what the file says: kinds and missing values are the schema's business.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from krepes.errors import InvalidInputError

DELIMITERS = (",", ";", "\t", "|")
PARQUET = (".parquet", ".pq")


def read_table(source: Any, *, delimiter: str | None = None, missing: tuple[str, ...] = ("?",)) -> pd.DataFrame:
    """Return ``source`` as a DataFrame with unique text column names and at least one row.

    Args:
        source: Path of a CSV file (also compressed) with a header line or of a Parquet file; a pandas DataFrame, or
            anything with ``to_pandas``, such as a polars one; a dict of columns; an array or tensor ``(n, d)``.
        delimiter: What separates the columns of a CSV; by default whichever of ``, ; tab |`` splits its header most.
        missing: Texts in a CSV that mean "no value", beside the empty field, ``NA``, ``NaN``, ``null`` and the like.

    Returns:
        The table, rows numbered from zero. A DataFrame's data is not copied.

    Raises:
        InvalidInputError: If the source cannot be read, holds no row or no column, or repeats a column name.

    Example:
        >>> read_table(np.array([[1.0, 2.0], [3.0, 4.0]])).columns.tolist()
        ['x0', 'x1']
    """
    if isinstance(source, (str, Path)):
        frame = _read_file(Path(source), delimiter, missing)
    elif isinstance(source, pd.DataFrame):
        frame = source.reset_index(drop=True)
    elif hasattr(source, "to_pandas"):
        frame = _to_pandas(source)
    elif isinstance(source, (np.ndarray, Tensor)):
        frame = _of_array(source)
    elif isinstance(source, dict):
        frame = _of_columns(source)
    else:
        raise InvalidInputError(
            f"a {type(source).__name__} is no table. Pass the path of a CSV or Parquet file, a pandas or polars "
            f"DataFrame, a dict of columns, or an array or tensor (n, d)."
        )
    frame.columns = pd.Index([str(name) for name in frame.columns])
    _require_distinct(list(frame.columns), "the table")
    if frame.empty:
        raise InvalidInputError(
            f"the table has {len(frame)} rows and {frame.shape[1]} columns. At least one of each is required."
        )
    return frame


def _of_array(array: np.ndarray | Tensor) -> pd.DataFrame:
    values = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
    if values.dtype.names:
        return pd.DataFrame(values)
    if values.ndim != 2:
        raise InvalidInputError(
            f"an array becomes a table if it is (n, d), got shape {values.shape}. Flatten it first."
        )
    return pd.DataFrame(values, columns=pd.Index([f"x{j}" for j in range(values.shape[1])]))


def _of_columns(columns: dict[str, Any]) -> pd.DataFrame:
    try:
        return pd.DataFrame(columns)
    except ValueError as error:
        raise InvalidInputError(f"the columns {list(columns)} make no table: {error}.") from error


def _to_pandas(source: Any) -> pd.DataFrame:
    try:
        return source.to_pandas()
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"a {type(source).__module__.split('.')[0]} {type(source).__name__} needs {error.name} to become a pandas "
            f"one, and it is not installed: pip install {error.name}."
        ) from error


def _read_file(path: Path, delimiter: str | None, missing: tuple[str, ...]) -> pd.DataFrame:
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a file. Pass the path of a CSV or Parquet file.")
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty (0 bytes). A header line and at least one row are required.")
    return _read_parquet(path) if path.suffix.lower() in PARQUET else _read_csv(path, delimiter, missing)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise InvalidInputError(
            f"{path.name} is a Parquet file, and reading it needs pyarrow, which is not installed: "
            f"pip install pyarrow. A CSV file needs nothing more."
        ) from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is not a readable Parquet file: {error}") from error


def _read_csv(path: Path, delimiter: str | None, missing: tuple[str, ...]) -> pd.DataFrame:
    header, delimiter = _header(path, delimiter)
    _require_distinct(header, str(path))
    try:
        # low_memory=False: a column's type is decided once, not anew in each piece of the file.
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path, sep=delimiter, na_values=list(missing), skipinitialspace=True, low_memory=False, index_col=False
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as UTF-8 text in columns separated by {delimiter!r} after its header of "
            f"{len(header)} columns: {str(error).strip(' .')}. Repair those lines, save as UTF-8, or pass delimiter=."
        ) from error
    if frame.empty:
        raise InvalidInputError(f"{path} has a header of {len(header)} columns but no row below it.")
    return frame


def _header(path: Path, delimiter: str | None) -> tuple[list[str], str]:
    """Return the fields of the first line, and the delimiter that was given or splits it most."""
    split = {mark: _first_line(path, mark) for mark in (*DELIMITERS, *([delimiter] if delimiter else []))}
    best = max(DELIMITERS, key=lambda mark: len(split[mark]))
    if delimiter is not None and len(split[delimiter]) == 1 < len(split[best]):
        raise InvalidInputError(
            f"split at {delimiter!r}, {path} has a single column, {split[delimiter][0]!r}; split at {best!r} it has "
            f"{len(split[best])}. Pass delimiter={best!r}."
        )
    chosen = delimiter or best
    return split[chosen], chosen


def _first_line(path: Path, delimiter: str) -> list[str]:
    try:
        # The parser, not a split of our own: fields may be quoted and the file compressed.
        line = pd.read_csv(path, sep=delimiter, header=None, nrows=1, dtype=str, skipinitialspace=True, na_filter=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise InvalidInputError(f"{path} has no readable header line: {error}. Save it as CSV in UTF-8.") from error
    return [str(field) for field in line.iloc[0]]


def _require_distinct(names: list[str], what: str) -> None:
    # An empty name is the index column that to_csv writes; the parser names those by their place.
    repeated = sorted(name for name, times in Counter(names).items() if times > 1 and name)
    if repeated:
        raise InvalidInputError(
            f"{what} has {len(repeated)} column names more than once: {repeated[:5]}. Every column must have a name of "
            f"its own: rename or drop the others."
        )
