"""What was measured of a target as plain data: one file, in which studies that ran apart stand together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from krepes.storage.files import publish_bytes

Measured = Mapping[str, Any]
"""``target``, ``scale``, ``runs``, ``table`` by columns and ``pictures``; every value is plain JSON.

The table has ``mean`` and ``spread`` over ``seeds``, and ``by_seed``, a list of the values, where they were kept.

A run says which of the target's data sets it stands for (``data``), the choices on its command line (``only``,
``without``), the ``sizes`` of its scale, ``seeds``, ``commit``, CPU ``seconds`` and ``versions``; ``kept`` where an
earlier call had done some of its work, and ``printed`` where only the rounded figures of a page were left of it.
"""
NUMBERS = ("mean", "spread", "paper", "low", "high")


def result_path(folder: Path, target: str, scale: str) -> Path:
    """Return where the result of a target lies."""
    return folder / f"{target}-{scale}.json"


def read(path: Path) -> Measured | None:
    """Return what a file holds, or nothing where there is none."""
    return json.loads(path.read_text()) if path.is_file() else None


def write(measured: Measured, path: Path) -> None:
    """Write what was measured, one run and one column of the table a line."""
    table = {name: json.dumps(values) for name, values in measured["table"].items()}
    columns = ",\n".join(f"  {json.dumps(name)}: {values}" for name, values in table.items())
    runs = ",\n".join(f"  {json.dumps(run, sort_keys=True)}" for run in measured["runs"])
    rest = ",\n".join(f"{json.dumps(name)}: {json.dumps(measured[name])}" for name in ("target", "scale", "pictures"))
    text = f'{{\n{rest},\n"runs": [\n{runs}\n],\n"table": {{\n{columns}\n}}\n}}\n'
    publish_bytes(path, text.encode())


def as_columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a table as lists by name; what is missing is ``None``."""
    return {str(name): [_plain(x) for x in column.tolist()] for name, column in table.items()}


def _plain(value: Any) -> Any:
    """Return a value, or a list of one value for each seed, as JSON has it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if pd.isna(value) else value


def as_table(measured: Measured) -> pd.DataFrame:
    """Return the table; JSON has null where a number is missing."""
    table = pd.DataFrame(measured["table"])
    return table.astype(dict.fromkeys([name for name in NUMBERS if name in table], float))


def together(before: Measured | None, now: Measured) -> Measured:
    """Return a new result with what an earlier one holds of studies that did not run again.

    Args:
        before: The earlier result of the same target and scale, if there is one.
        now: The new one. If it is not of studies, it stands for all data and nothing of the earlier one remains.

    Returns:
        Rows of both, each run with the studies that are still its own; pictures of the new one first.
    """
    again = {name for run in now["runs"] for name in run["data"]}
    kept = [] if before is None else [_without(run, again) for run in before["runs"]]
    runs = [run for run in kept if run["data"]]
    if before is None or not runs:
        return now
    old = as_table(before)
    table = pd.concat([old[~old["data"].isin(again)], as_table(now)], ignore_index=True)
    pictures = list(dict.fromkeys([*now["pictures"], *before["pictures"]]))
    return {**now, "runs": [*runs, *now["runs"]], "table": as_columns(table), "pictures": pictures}


def _without(run: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {**run, "data": [name for name in run["data"] if name not in names]}
