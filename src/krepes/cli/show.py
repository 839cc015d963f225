"""Tables for people, JSON for machines: every command ends in one of the two."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()
notes = Console(stderr=True)


def show_frame(frame: pd.DataFrame, title: str) -> None:
    """Print a DataFrame as a table; numbers to four digits, everything from data escaped."""
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    for name in frame.columns:
        number = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(escape(str(name)), justify="right" if number else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*[escape(_text(value)) for value in row])
    console.print(table)


def show_pairs(values: dict[str, Any], title: str) -> None:
    """Print named values, one a line."""
    show_frame(pd.DataFrame({"": list(values), " ": [_text(value) for value in values.values()]}), title)


def show_json(value: Any) -> None:
    """Print plain JSON on standard output; DataFrames become lists of records."""
    print(json.dumps(_plain(value), indent=2, sort_keys=True))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return json.loads(value.to_json(orient="records"))
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
