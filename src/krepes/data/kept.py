"""A table whose columns lie in a temporary file: the same values and types, and memory only for what is looked at.

Numbers, dates, flags and pandas' own texts are mapped from one file for the whole table; whatever else a column may
hold stays in memory. A column is looked at as a whole, so one at a time must fit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from krepes.storage import mapped

ALIGNED = 64
Part = tuple[int, int]
"""Where bytes of a column lie in the file: first and last but one."""


def kept(columns: Iterable[tuple[Any, pd.Series[Any]]]) -> pd.DataFrame:
    """Return a table of columns that are given one after the other, in a temporary file that goes with its last use.

    Args:
        columns: Names and values, of the same number of rows; none is held once the next is asked for.

    Returns:
        The table, rows numbered from zero.
    """
    stored: list[tuple[Any, Any, list[Part | None]]] = []
    with tempfile.TemporaryFile(prefix="krepes-") as file:
        for name, column in columns:
            about, buffers = _buffers(column)
            stored.append((name, about, [None if one is None else _append(file, one) for one in buffers]))
        del columns
        file.write(b"\0" * ALIGNED)
        file.flush()
        pages = mapped.table(file)
    made = {
        name: _column(about, [None if part is None else pages[slice(*part)] for part in parts])
        for name, about, parts in stored
    }
    return pd.DataFrame(made, copy=False)


def one_by_one(frame: pd.DataFrame) -> Iterator[tuple[Any, pd.Series[Any]]]:
    """Yield the columns of a table by name, and let the pages of each go before the next."""
    for place, name in enumerate(frame.columns):
        yield name, frame.iloc[:, place]
        mapped.release_tables()


def rows_of(frame: pd.DataFrame, rows: Any) -> pd.DataFrame:
    """Return some rows ``(b,)`` of a table, numbered from zero; in a temporary file if the table lies in one.

    Args:
        frame: The table.
        rows: Places of rows.

    Returns:
        The table of these rows.
    """
    if not is_kept(frame):
        return frame.iloc[rows].reset_index(drop=True)
    return kept((name, column.iloc[rows]) for name, column in one_by_one(frame))


def is_kept(frame: pd.DataFrame) -> bool:
    """Return whether columns of a table lie in a temporary file."""
    return any(_is_mapped(frame.iloc[:, place]) for place in range(frame.shape[1]))


def held_bytes(frame: pd.DataFrame) -> int:
    """Return the bytes of a table that are in memory all the time, which columns in a temporary file are not."""
    sizes = frame.memory_usage(index=False).to_numpy()
    return sum(int(size) for place, size in enumerate(sizes) if not _is_mapped(frame.iloc[:, place]))


def _is_mapped(column: pd.Series[Any]) -> bool:
    values = arrow_texts(column)
    if values is None:
        return isinstance(column.dtype, np.dtype) and mapped.in_table(column.to_numpy().ctypes.data)
    chunks = values.chunks
    return bool(chunks) and all(mapped.in_table(chunk.buffers()[1].address) for chunk in chunks if len(chunk))


def arrow_texts(column: pd.Series[Any] | pd.Index[Any]) -> pa.ChunkedArray | None:
    """Return the texts of a column if pandas keeps them as Arrow does, else nothing."""
    if not isinstance(column.array, pd.arrays.ArrowStringArray):
        return None
    found = column.array.__arrow_array__()
    return found if isinstance(found, pa.ChunkedArray) and pa.types.is_large_string(found.type) else None


def _buffers(column: pd.Series[Any]) -> tuple[Any, list[Any]]:
    """Return what must be known of a column, and its bytes; a column that cannot be mapped is known itself."""
    texts = arrow_texts(column)
    if texts is not None:
        joined = pa.concat_arrays([*texts.chunks, pa.array([], texts.type)])
        return (type(column.array), column.dtype, len(joined), joined.null_count), joined.buffers()
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufbmM":
        return column.dtype, [np.ascontiguousarray(column.to_numpy())]
    return column.reset_index(drop=True), []


def _column(about: Any, parts: list[Any]) -> pd.Series[Any]:
    if isinstance(about, pd.Series):
        return about
    if isinstance(about, np.dtype):
        return pd.Series(np.asarray(parts[0].view(about)), copy=False)
    like, dtype, n, missing = about
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    texts = pa.Array.from_buffers(pa.large_string(), n, buffers, missing)
    return pd.Series(like(pa.chunked_array([texts]), dtype=dtype), copy=False)


def _append(file: Any, values: Any) -> Part:
    """Write bytes where a number may begin, and return where."""
    file.write(b"\0" * (-file.tell() % ALIGNED))
    start = file.tell()
    file.write(values if isinstance(values, pa.Buffer) else values.view(np.uint8).data)
    return start, file.tell()
