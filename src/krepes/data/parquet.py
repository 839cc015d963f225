"""Parquet in: column by column, so that no more than one of a large file is held at a time."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from krepes.budget import Budget
from krepes.data.kept import kept


def read_parquet(path: Path, budget: Budget) -> pd.DataFrame:
    """Read a Parquet file; what pandas kept as the index is a column like others.

    Args:
        path: The file.
        budget: A table of more than an eighth of it lies in a temporary file.

    Returns:
        The table, rows numbered from zero.
    """
    about, schema = pq.read_metadata(path), pq.read_schema(path)
    names, size = list(schema.names), 8 * about.num_rows * about.num_columns
    # Parts of nested columns, and columns of one name, cannot be asked for one by one.
    plain = len(set(names)) == len(names) and not any(pa.types.is_nested(schema.field(name).type) for name in names)
    if budget.fits(size, share=1 / 8) or not plain or any("." in name for name in names):
        return _with_index(pd.read_parquet(path))
    stored = [name for name in names if name not in _index_columns(schema)]
    first = _with_index(pd.read_parquet(path, columns=[]))
    columns = ((name, pd.read_parquet(path, columns=[name])[name].reset_index(drop=True)) for name in stored)
    return kept(chain(first.items(), columns))


def _index_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that pandas would make the index of."""
    about = schema.pandas_metadata or {}
    return [name for name in about.get("index_columns", []) if isinstance(name, str)]


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    named_index = any(name is not None for name in frame.index.names)
    return frame.reset_index(drop=not named_index)
