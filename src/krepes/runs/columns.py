"""Columns that settings name: they must be there, and ids must name each sample once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from krepes import registry
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings, flag

LABEL = "label"
"""Name of the labels that a data set brings along."""


def require_columns(frame: pd.DataFrame, settings: Settings, name: str) -> None:
    """Refuse settings that name a column which a table has not.

    Args:
        frame: The table.
        settings: Their lists of columns, ids, label and texts.
        name: Of the data, for the message.

    Raises:
        InvalidInputError: With the flag, and the columns that there are.
    """
    asked = {
        "exclude": settings.exclude,
        "sensitive": settings.sensitive,
        "id_column": (settings.id_column,),
        "text_column": (settings.text_column,),
        "label": () if settings.label == LABEL else (settings.label,),  # may come along with a data set
    }
    for key, columns in asked.items():
        for column in columns:
            if column is not None and column not in frame:
                raise InvalidInputError(f"{flag(key)}: {missing(name, column, list(map(str, frame.columns)))}")


def missing(name: str, column: str, known: Sequence[str]) -> str:
    """Return in words that data have no such column, and which one may be meant."""
    hint = registry.suggestion(column, known) or f" It has {_some(known)}."
    return f"{name} has no column {column!r}.{hint}"


def unique_ids(column: pd.Series[Any], name: str) -> list[Any]:
    """Return the ids of a table; missing and repeated ones are refused, for a sample could not be named by them."""
    lacking, repeated = int(column.isna().sum()), column[column.astype(str).duplicated()]
    if lacking or len(repeated):
        found = f"{lacking} missing ids" if lacking else f"{len(repeated)} repeated ids, such as {repeated.iloc[0]!r}"
        raise InvalidInputError(
            f"{flag('id_column')}: column {column.name!r} of {name} has {found}. Every row needs an id of its own."
        )
    return column.tolist()


def _some(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
