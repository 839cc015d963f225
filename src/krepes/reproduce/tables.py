"""Results as markdown: one method a column, mean and spread over seeds, the paper's figure in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """Return a table in markdown; what is missing is a dash, and a bar within a cell is escaped."""
    cells = [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def wide(table: pd.DataFrame, keys: Sequence[str], across: str) -> pd.DataFrame:
    """Spread one key over columns.

    Args:
        table: One row a combination of the keys: ``mean``, ``spread``, and ``paper`` where the paper gives a figure.
        keys: Names of its keys.
        across: The key whose values become columns.

    Returns:
        The other keys, then one column for each value of ``across``, cells such as ``0.741 ± 0.003 (0.872)``.
    """
    index = [key for key in keys if key != across]
    cells = table.assign(cell=[figure(row) for row in table.to_dict("records")])
    order = list(dict.fromkeys(cells[across]))
    rows = list(dict.fromkeys(cells[index].itertuples(index=False, name=None)))
    found = {
        (*row[:-2], row[-2]): row[-1] for row in cells[[*index, across, "cell"]].itertuples(index=False, name=None)
    }
    lines = [(*row, *(found.get((*row, column), "–") for column in order)) for row in rows]
    return pd.DataFrame(lines, columns=[*index, *order])


def figure(row: dict[Any, Any]) -> str:
    """Return mean, spread over seeds or else the interval, and the paper's figure, as far as they are there."""
    text = "–" if pd.isna(row["mean"]) else _cell(float(row["mean"]))
    if not pd.isna(row["spread"]):
        text += f" ± {row['spread']:.2g}"
    elif not pd.isna(row.get("low")):
        text += f" [{row['low']:.2f}, {row['high']:.2f}]"
    if not pd.isna(row.get("paper")):
        text += f" ({_cell(float(row['paper']))})"
    return text


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "–" if value != value else f"{value:.3g}" if abs(value) < 10 else f"{value:.4g}"
    return str(value).replace("|", "\\|")
