"""CSV out, safe to open in a spreadsheet: no cell from data becomes a formula."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pandas as pd

from krepes.storage.files import publish

# What spreadsheets take for the start of a formula; the wide forms are those of Asian keyboards.
STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table for people and spreadsheets: UTF-8, comma, header, no index, every text in quotes.

    Args:
        frame: Any values; texts, column names included, pass through `harmless`.
        path: The file; its folder is made, an earlier file is replaced, and it is there whole or not at all.

    Returns:
        The path.
    """
    safe = _safe(frame)
    return publish(path, lambda temporary: safe.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC))


def csv_text(frame: pd.DataFrame) -> str:
    """Return the content of such a file, for an answer that is no file."""
    return _safe(frame).to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")


def _safe(frame: pd.DataFrame) -> pd.DataFrame:
    names = pd.Index([harmless(str(name)) for name in frame.columns])
    texts = pd.DataFrame({j: frame.iloc[:, j].map(harmless) for j in range(frame.shape[1])}, dtype=object)
    texts.columns = names
    return texts


def harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet runs: a text that would start a formula gets an apostrophe in front.

    Args:
        cell: Any value; numbers, and texts of numbers such as ``-5``, stay as they are.

    Returns:
        The cell.

    Example:
        >>> [harmless(cell) for cell in ("=1+1", "-5", "-cmd", 3.5, "plain")]
        ["'=1+1", '-5', "'-cmd", 3.5, 'plain']
    """
    if not isinstance(cell, str) or not cell.lstrip(" \u00a0").startswith(STARTS) or NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"
