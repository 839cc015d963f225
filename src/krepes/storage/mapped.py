"""Files that are mapped and yet take no memory: what is read of one is copied, and its pages are let go at once.

A page of a mapped file that was looked at counts as memory of the process until somebody lets it go. Reading a large
file from end to end, in however small pieces, would so end with all of it held. `read` copies a few megabytes at a
time and lets the pages go after each; the system keeps them as long as it has room, so that reading again is fast.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

import numpy as np

AT_ONCE = 16 * 2**20
"""Bytes of a mapped file that are looked at before its pages are let go."""
TOUCHED = 2**21
"""Bytes that looking at a single row may bring in: the system maps the neighbours of a page with it, up to 2 MiB."""

Array = np.ndarray[Any, Any]
_TABLES: WeakValueDictionary[tuple[int, int], mmap.mmap] = WeakValueDictionary()
"""Tables in temporary files that are in use, by where they are in memory."""


def release(array: Array) -> None:
    """Let go of the pages of a mapped array, or do nothing if it is none; what was written to it stays in the file."""
    pages = getattr(array, "_mmap", None)
    # Changes to a private map ("c") are in its pages alone: they would be lost.
    if pages is not None and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def read(array: Array, rows: slice | Array, dtype: np.dtype[Any] | None = None) -> Array:
    """Return some rows of an array as a copy; of a mapped one, no page stays in memory.

    Args:
        array: ``(n, ...)``.
        rows: A slice, integer indices ``(b,)``, or a mask ``(n,)``.
        dtype: Of the copy; by default the array's.

    Returns:
        ``(b, ...)``.
    """
    dtype = array.dtype if dtype is None else dtype
    if getattr(array, "_mmap", None) is None:
        return np.array(array[rows], dtype=dtype)
    if isinstance(rows, slice) and (rows.step or 1) == 1:
        first, last, _ = rows.indices(len(array))
        found = np.empty((max(last - first, 0), *array.shape[1:]), dtype=dtype)
        for part in spans(len(found), _touched(array, whole=True)):
            found[part] = array[first + part.start : first + part.stop]
            release(array)
        return found
    chosen = np.arange(len(array))[rows]  # of a mask, or of steps
    found = np.empty((len(chosen), *array.shape[1:]), dtype=dtype)
    for part in spans(len(found), _touched(array, whole=False)):
        found[part] = array[chosen[part]]
        release(array)
    return found


def spans(n: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices of ``range(n)`` that bring in a few megabytes each."""
    size = max(1, AT_ONCE // max(row_bytes, 1))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def new_file(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros in a new file, mapped; it takes room on disk, and memory only while it is written."""
    return np.memmap(path, mode="w+", dtype=dtype, shape=shape)


def scratch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros in a temporary file that goes with its last use, mapped."""
    with tempfile.TemporaryFile(prefix="krepes-") as file:
        return np.memmap(file, mode="w+", dtype=dtype, shape=shape)


def table(file: IO[bytes]) -> Array:
    """Return the bytes of a temporary file, mapped, and remember it: `release_tables` lets its pages go."""
    pages = np.memmap(file, mode="r+", dtype=np.uint8)
    first = pages.ctypes.data
    _TABLES[first, first + pages.nbytes] = pages._mmap  # type: ignore[attr-defined]
    return pages


def release_tables() -> None:
    """Let go of the pages of all tables that are in use."""
    for pages in list(_TABLES.values()) if hasattr(mmap, "MADV_DONTNEED") else []:
        pages.madvise(mmap.MADV_DONTNEED)


def in_table(address: int) -> bool:
    """Return whether memory at an address is that of a table."""
    return any(first <= address < last for first, last in list(_TABLES))


def write(array: Array, start: int, rows: Array) -> None:
    """Write ``rows`` ``(b, ...)`` into a mapped array from row ``start`` on, and let its pages go."""
    for part in spans(len(rows), _touched(array, whole=True)):
        array[start + part.start : start + part.stop] = rows[part]
        release(array)


def _touched(array: Array, *, whole: bool) -> int:
    """Return the bytes of the file that one row brings in."""
    row = array[:1].nbytes
    if not array.flags.c_contiguous:  # a row of a Fortran-ordered array is spread over the whole file
        return TOUCHED * max(1, row // array.itemsize)
    return row if whole else max(row, TOUCHED)
