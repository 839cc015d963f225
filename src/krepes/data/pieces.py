"""Columns of a file that is read piece by piece: pieces wait in a temporary file, and are joined column by column.

A reader decides the type of a column anew in each piece. Pieces of one type have the type that the whole has, and so
do whole numbers beside decimals and texts beside nothing; of any other mixture only the whole file can tell, and of
whole numbers that are too long to be read as such.
"""

from __future__ import annotations

import tempfile
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

Type = Literal["whole", "decimal", "flag", "text", "nothing", "other"]
LONG = r"^\s*[+-]?\d{19,}\s*$"
EXACT = 2**53
"""Whole numbers up to this size are the same as decimals."""


class Pieces:
    """A table in pieces, which are added in order.

    Attributes:
        names: Of the columns.
        texts: Whether the reader was told that all columns are texts.
        bytes: What the columns take as a table, about.
    """

    def __init__(self, names: list[Any], *, texts: bool = False) -> None:
        self.names, self.texts, self.bytes = names, texts, 0
        self._file = tempfile.TemporaryFile(prefix="krepes-")
        self._places: list[list[tuple[Type, int, int]]] = [[] for _ in names]

    def add(self, frame: pd.DataFrame) -> None:
        """Keep the next rows, all columns of them."""
        for place in range(len(self.names)):
            column = frame.iloc[:, place]
            kind: Type = "text" if self.texts else type_of(column)
            start = self._file.tell()
            if kind not in {"nothing", "other"}:
                values = pa.array(
                    column, type=pa.large_string() if kind == "text" else None, from_pandas=kind == "text"
                )
                for part in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
                    self._file.write(pa.record_batch([part], names=["x"]).serialize())
            self._places[place].append((kind, start, len(column)))
            self.bytes += self._file.tell() - start

    def column(self, place: int) -> pd.Series[Any] | None:
        """Return a column of all rows, of the type that the whole file gives it; None if only the whole can tell."""
        pieces = self._places[place]
        found = {kind for kind, _, _ in pieces}
        if found == {"nothing"}:
            return pd.Series(np.full(sum(rows for _, _, rows in pieces), np.nan))
        if found - {"nothing"} == {"text"}:
            return self._texts(pieces)
        if len(found) == 1 and found <= {"whole", "decimal", "flag"}:
            return pd.Series(np.concatenate([self._numbers(piece) for piece in pieces]))
        if found <= {"whole", "decimal", "nothing"}:
            parts = [self._numbers(piece) for piece in pieces]
            exact = all(part.dtype.kind == "f" or _largest(part) <= EXACT for part in parts)
            return pd.Series(np.concatenate([part.astype(np.float64) for part in parts])) if exact else None
        return None

    def _texts(self, pieces: list[tuple[Type, int, int]]) -> pd.Series[Any]:
        kind = pa.large_string()
        parts = [pa.nulls(rows, kind) if told == "nothing" else self._read(start, kind) for told, start, rows in pieces]
        joined = pa.chunked_array(parts, type=kind)
        like = pd.Series(["text"])  # of pandas' own type for texts, whichever that is
        made: Any = type(like.array)
        if issubclass(made, pd.arrays.ArrowStringArray):
            return pd.Series(made(joined, dtype=like.dtype))
        return joined.to_pandas().astype(like.dtype).where(lambda column: column.notna(), np.nan)

    def _numbers(self, piece: tuple[Type, int, int]) -> np.ndarray[Any, Any]:
        kind, start, rows = piece
        if kind == "nothing":
            return np.full(rows, np.nan)
        types = {"whole": pa.int64(), "decimal": pa.float64(), "flag": pa.bool_()}
        return self._read(start, types[kind]).to_numpy(zero_copy_only=False)

    def _read(self, start: int, type: pa.DataType) -> pa.Array:
        self._file.seek(start)
        message = pa.ipc.read_message(self._file)
        return pa.ipc.read_record_batch(message, pa.schema([("x", type)])).column(0)


def type_of(column: pd.Series[Any]) -> Type:
    """Return what a reader took the values of a column for."""
    if column.dtype == np.float64:
        return "decimal" if column.notna().any() else "nothing"
    if column.dtype == np.int64:
        return "whole"
    if column.dtype == np.bool_:
        return "flag"
    texts = isinstance(column.dtype, pd.StringDtype) or pd.api.types.infer_dtype(column, skipna=True) == "string"
    return "text" if texts and not column.str.contains(LONG).any() else "other"


def _largest(values: np.ndarray[Any, Any]) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
