"""Tables for people, JSON for machines: every command ends in one of the two. What comes from data is escaped."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from krepes.audit.base import View

console = Console()
notes = Console(stderr=True)


def plain(value: Any) -> str:
    """Return a value as text without control characters, which a terminal would obey, and without markup."""
    from krepes.data.text import printable

    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4g}"
    return escape(printable(value))


def say(text: str) -> None:
    """Print a line of plain text."""
    console.print(plain(text), highlight=False)


def show_frame(frame: pd.DataFrame, title: str) -> None:
    """Print a DataFrame as a table, numbers to four digits."""
    import pandas as pd

    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    show_rows(title, [str(name) for name in frame.columns], list(frame.itertuples(index=False)), numeric)


def show_view(view: View) -> None:
    """Print a view of an audit's table."""
    numeric = [not isinstance(value, str) for value in view.rows[0]] if view.rows else []
    show_rows(view.caption, list(view.columns), list(view.rows), numeric)


def show_rows(title: str, heads: list[str], rows: list[Any], numeric: list[bool]) -> None:
    """Print rows as a table, numbers to the right."""
    table = Table(title=plain(title), title_justify="left", header_style="bold")
    for i, name in enumerate(heads):
        table.add_column(plain(name), justify="right" if i < len(numeric) and numeric[i] else "left")
    for row in rows:
        table.add_row(*[plain(value) for value in row])
    console.print(table)


def show_pairs(values: dict[str, Any], title: str) -> None:
    """Print named values, one per line."""
    show_rows(title, ["", " "], list(values.items()), [False, False])


def show_json(value: Any) -> None:
    """Print plain JSON on standard output; DataFrames become lists of records, NaN becomes null."""
    print(json.dumps(_json(value), indent=2, sort_keys=True))


def _json(value: Any) -> Any:
    if hasattr(value, "to_json") and hasattr(value, "columns"):
        return json.loads(value.to_json(orient="records"))
    if isinstance(value, dict):
        return {str(key): _json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
