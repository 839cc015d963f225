"""Which training rows are to go: named by their ids in a file, or by a condition on the columns of the run's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.data.conditions import parse_condition
from krepes.data.frames import read_table
from krepes.data.text import printable
from krepes.errors import InvalidInputError
from krepes.runs.columns import LABEL
from krepes.runs.workspace import Workspace

FEW = 5
"""Unknown ids that a message names."""
ID = "id"


@dataclass(frozen=True)
class Chosen:
    """Training rows that were chosen.

    Attributes:
        places: In the stream of the run, ``(r,)``, sorted.
        what: How they were chosen, in words.
        notes: What a reader must know of the choice.
    """

    places: Tensor = field(repr=False)
    what: str
    notes: tuple[str, ...] = ()


def require_choice(remove: str | None, where: str | None) -> None:
    """Refuse what names no rows, before a run is opened.

    Args:
        remove: A file of ids, or ``None``.
        where: A condition, or ``None``.

    Raises:
        InvalidInputError: If not exactly one is given, or the condition cannot be read.
    """
    if (remove is None) == (where is None):
        raise InvalidInputError("exactly one of --remove FILE and --where CONDITION is needed to say which rows go.")
    if where is not None:
        parse_condition(where, "--where")


def chosen_rows(space: Workspace, *, remove: str | None = None, where: str | None = None) -> Chosen:
    """Return the training rows that a file or a condition names.

    Args:
        space: The run.
        remove: A CSV or Parquet file of ids: its column of the run's name for ids, else ``id``, else the first.
        where: A condition, such as ``country == 'X'``; see `krepes.data.conditions`.

    Returns:
        The rows.

    Raises:
        InvalidInputError: If not exactly one of the two is given, an id is unknown, no training row is meant, or fewer
            than two would stay.
    """
    require_choice(remove, where)
    if remove is not None:
        rows, what = _by_id(space, remove), f"the ids of {Path(remove).name}"
    else:
        rows, what = _by_condition(space, where or ""), f"where {where}"
    place = np.full(space.data.n, -1)
    place[space.train.numpy()] = np.arange(len(space.train))
    found = np.sort(place[rows][place[rows] >= 0])
    held, n = len(rows) - len(found), len(space.train)
    if len(found) == 0:
        raise InvalidInputError(
            f"{what}: {len(rows)} rows are meant, and none of them is one of the {n} training rows. Nothing was "
            f"trained on them, so there is nothing to take out."
        )
    if n - len(found) < 2:
        raise InvalidInputError(f"{what}: {len(found)} of {n} training rows would be removed: at least two must stay.")
    notes = (
        (f"{held} of the {len(rows)} rows are no training rows of this run: nothing was trained on them",)
        if held
        else ()
    )
    return Chosen(torch.from_numpy(found), what, notes)


def _by_condition(space: Workspace, where: str) -> np.ndarray[Any, Any]:
    condition = parse_condition(where, "--where")

    def column(name: str) -> pd.Series[Any]:
        table = space.data.table
        if table is not None and name in table:
            return table[name]
        return pd.Series(space.data.column(name, "--where"), name=LABEL)

    found = np.flatnonzero(condition.holds(column))
    if len(found) == 0:
        raise InvalidInputError(f"--where {printable(where)}: it holds for none of {space.data.n} rows.")
    return found


def _by_id(space: Workspace, path: str) -> np.ndarray[Any, Any]:
    table = read_table(path, texts=True)
    named = [name for name in (space.settings.id_column, ID) if name is not None and name in table]
    written = table[named[0] if named else table.columns[0]].dropna()
    written = written[written != ""]
    if len(written) == 0:
        raise InvalidInputError(f"--remove {path}: column {written.name!r} holds no id.")
    places = [_place(space, one) for one in written.tolist()]
    unknown = [one for one, place in zip(written, places, strict=True) if place is None]
    if unknown:
        known = _listed(space.data.ids[:3])
        raise InvalidInputError(
            f"--remove {path}: {len(unknown)} of {len(written)} ids in column {written.name!r} are not among the "
            f"{space.data.n} rows of {space.data.name}, such as {_listed(unknown[:FEW])}; ids look like {known}."
        )
    return np.unique([place for place in places if place is not None])


def _place(space: Workspace, id: Any) -> int | None:
    """Return the row of an id.

    An apostrophe that an export put before a text, against formulas, is not part of it; nor are zeros behind a point,
    which whole numbers have where some are missing.
    """
    texts = [str(id), str(id).removeprefix("'"), str(id).strip().removesuffix(".0")]
    return next((space.data.places[text] for text in texts if text in space.data.places), None)


def _listed(ids: Sequence[Any]) -> str:
    return ", ".join(printable(id) for id in ids)
