"""Columns that settings name: they must be there, ids must name each sample once, and kinds are those of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from krepes import registry
from krepes.data.schema import Schema
from krepes.data.tabular import TabularEncoder
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


def encoding_of(frame: pd.DataFrame, settings: Settings, rows: np.ndarray[Any, Any]) -> TabularEncoder:
    """Return how a table becomes numbers, with the kinds of the columns that the encoder does not see beside it.

    Args:
        frame: The table.
        settings: Which columns are hidden, and the file that overrides kinds, of hidden columns too.
        rows: Places of the training rows, ``(b,)``.

    Returns:
        The encoding; a file that names a column which does not exist, or a kind that a value is not of, is refused.
    """
    told = {} if settings.schema is None else Schema.from_toml(settings.schema).kinds
    hidden = [column for column in settings.hidden if column in frame]
    seen, apart = frame.drop(columns=hidden), {name: kind for name, kind in told.items() if name in hidden}
    schema = Schema.infer(seen, {name: kind for name, kind in told.items() if name not in apart})
    beside = Schema.look(frame[hidden], apart) if hidden else None
    if beside is not None and apart:
        beside.with_values(frame[list(apart)])  # refused now, not when the fit is done and audited
    return TabularEncoder(schema, unknown="bucket", beside=beside).fit(seen, rows)


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
