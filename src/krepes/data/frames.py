"""Tables in: a CSV or Parquet file, a pandas or polars DataFrame, an array or tensor become one pandas DataFrame.

Nothing is interpreted here beyond what the file says: kinds and missing values are the schema's business.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.data.csvfile import read_csv, require_distinct
from krepes.data.files import foreign, named, require_file
from krepes.data.parquet import read_parquet
from krepes.data.text import brief
from krepes.data.values import shown
from krepes.errors import InvalidInputError

PARQUET = (".parquet", ".pq")


def read_table(
    source: Any,
    *,
    delimiter: str | None = None,
    missing: tuple[str, ...] = ("?",),
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
    texts: bool = False,
) -> pd.DataFrame:
    """Return ``source`` as a DataFrame with unique text column names and at least one row.

    Args:
        source: Path of a CSV file (also compressed) with a header line or of a Parquet file; a pandas DataFrame, or
            anything with ``to_pandas``, such as a polars one; a dict of columns; an array or tensor ``(n, d)``.
        delimiter: What separates the columns of a CSV; by default whichever of ``, ; tab |`` splits its header most.
        missing: Texts in a CSV that mean "no value", beside the empty field, ``NA``, ``NaN``, ``null`` and the like.
        memory_budget: The columns of a file lie in a temporary one if they take more than an eighth of it.
        texts: Every field of a CSV as it is written: nothing is missing and nothing a number.

    Returns:
        The table, rows numbered from zero. A DataFrame's data is not copied.

    Raises:
        InvalidInputError: If the source cannot be read, holds no row or no column, or repeats a column name.

    Example:
        >>> read_table(np.array([[1.0, 2.0], [3.0, 4.0]])).columns.tolist()
        ['x0', 'x1']
    """
    if isinstance(source, (str, Path)):
        frame = _read_file(Path(source), delimiter, missing, Budget.of(memory_budget), texts)
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
    names = [str(name) for name in frame.columns]
    require_distinct(names, "the table")
    frame.columns = pd.Index(names)
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
    except (ValueError, TypeError) as error:
        names = ", ".join(shown(name) for name in list(columns)[:10])
        raise InvalidInputError(
            f"the columns {names} make no table: {brief(error)}. Pass lists or arrays of one length."
        ) from error


def _to_pandas(source: Any) -> pd.DataFrame:
    try:
        return source.to_pandas()
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"a {type(source).__module__.split('.')[0]} {type(source).__name__} needs {error.name} to become a pandas "
            f"one, and it is not installed: pip install {error.name}."
        ) from error


def _read_file(
    path: Path, delimiter: str | None, missing: tuple[str, ...], budget: Budget, texts: bool
) -> pd.DataFrame:
    path = require_file(path, "a CSV or Parquet file")
    if path.suffix.lower() in PARQUET:
        with foreign(f"{named(path)} is not a readable Parquet file", "Write it again, or pass a CSV file."):
            return read_parquet(path, budget)
    return read_csv(path, delimiter, missing, budget, texts=texts)
