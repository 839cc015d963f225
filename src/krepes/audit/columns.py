"""What became of every column of a table: seen by the encoder, hidden from it, used to judge, or dropped, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from krepes.audit.ticks import is_numeric

Role = Literal["seen", "hidden", "judging only", "dropped"]
ROLES: tuple[Role, ...] = ("seen", "hidden", "judging only", "dropped")


@dataclass(frozen=True)
class ColumnUse:
    """One column.

    Attributes:
        name: Of the column.
        role: Who used it.
        kind: What it holds.
        why: Why it is used so, or read so.
        told: Its kind as a schema file says it, where there is one.
    """

    name: str
    role: Role
    kind: str = ""
    why: str = ""
    told: str = ""


def uses_of(table: pd.DataFrame, hidden: Iterable[str], groups: Mapping[str, Any]) -> tuple[ColumnUse, ...]:
    """Return the use of the columns of a table of which only the hidden ones are known.

    Args:
        table: Training rows.
        hidden: Columns that the encoder does not see.
        groups: By name, groups of an audit; those that are no column of the table only judge.

    Returns:
        One use for each column.
    """
    unseen = set(hidden)
    found = [
        ColumnUse(
            str(name),
            "hidden" if name in unseen else "seen",
            _kind(column),
            "the encoder does not see it" if name in unseen else "",
        )
        for name, column in table.items()
    ]
    outside = [name for name in groups if name not in set(table.columns)]
    return (*found, *(ColumnUse(name, "judging only", "", "groups of the audit") for name in outside))


def _kind(column: pd.Series[Any]) -> str:
    if is_datetime64_any_dtype(column):
        return "date"
    if isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered:
        return "ordered"
    return "numeric" if is_numeric_dtype(column) or is_numeric(column) else "categorical"
