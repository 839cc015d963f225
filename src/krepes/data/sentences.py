"""Texts from files: a ``.txt`` with one on each line, or a ``.jsonl`` of texts or of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from krepes.data.files import foreign, named, require_file
from krepes.data.text import brief
from krepes.data.textfile import open_text
from krepes.data.values import shown
from krepes.errors import InvalidInputError

TEXT = "text"
"""Column of texts that have no other name."""
ENDINGS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".ndjson")
LONGEST_LINE = 2**24


def read_sentences(path: str | Path) -> pd.DataFrame:
    """Return the texts of a file, and what else its records say, as a table.

    Args:
        path: ``.txt``: one text a line, blank lines left out. ``.jsonl``: on each line a string, or an object, whose
            keys become columns. UTF-8, or packed, or with a byte order mark.

    Returns:
        One row a text, in order; of plain texts one column, ``text``.

    Raises:
        InvalidInputError: If the file cannot be read, a line is no JSON, or nothing is in it.
    """
    path = require_file(path, "a .txt or .jsonl file")
    lines = _lines(path)
    if path.name.lower().endswith((".txt", ".txt.gz")):
        frame = pd.DataFrame({TEXT: [line for _, line in lines]}, dtype=object)
    else:
        frame = pd.DataFrame.from_records([_record(path, number, line) for number, line in lines])
    if frame.empty:
        raise InvalidInputError(f"{named(path)} holds no text: all its lines are blank.")
    frame.columns = pd.Index([str(name) for name in frame.columns])
    return frame


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers from 1; only line feeds end a line."""
    found: list[tuple[int, str]] = []
    with (
        foreign(f"{named(path)} cannot be read as text", "Save it in UTF-8."),
        open_text(path) as handle,
    ):
        number = 0
        while line := handle.readline(LONGEST_LINE):
            number += 1
            if len(line) >= LONGEST_LINE:
                raise InvalidInputError(
                    f"{named(path)}: line {number} has {LONGEST_LINE:,} characters or more. Put one text on each line."
                )
            if line.strip():
                found.append((number, line.strip("\r\n")))
    return found


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    """Return the columns of one line of JSON."""
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()  # half a character, "\\ud800", is in no text
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{named(path)}: line {number} is no JSON ({brief(error)}). Write one string or object on each line."
        ) from error
    if isinstance(value, str):
        return {TEXT: value}
    if not isinstance(value, dict):
        raise InvalidInputError(
            f"{named(path)}: line {number} holds {shown(value)}. Write one string or object on each line."
        )
    # What is nested is kept as text: a column has one value a row.
    return {key: json.dumps(entry) if isinstance(entry, (dict, list)) else entry for key, entry in value.items()}
