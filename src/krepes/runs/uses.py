"""What a run did with every column of its table, in words a reader can check and change."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from krepes.audit.columns import ColumnUse, Role
from krepes.data.column import Column
from krepes.data.schema import DROPPED
from krepes.data.text import printable
from krepes.data.values import shown
from krepes.runs.dataset import Dataset
from krepes.runs.settings import Settings
from krepes.runs.workspace import Workspace

logger = logging.getLogger("krepes")


def column_uses(space: Workspace, groups: Sequence[str] = (), label: str | None = None) -> tuple[ColumnUse, ...]:
    """Return the use of every column.

    Args:
        space: The run.
        groups: Columns whose values are groups of the audit.
        label: Column that judges; by default that of the settings.

    Returns:
        One use for each column of the table; none for data that are no table.
    """
    table, encoding, settings = space.data.table, space.data.encoding, space.settings
    if table is None:
        return ()
    if encoding is None:  # the encoder sees pixels or texts, and what stands beside them judges
        seen = ColumnUse(settings.text_column or "text", "seen", "text") if space.data.texts is not None else None
        beside = [ColumnUse(str(name), "judging only", "", "stands beside the samples") for name in table]
        return (*([seen] if seen else []), *beside)
    known, apart = ({c.name: c for c in schema.columns} for schema in (encoding.schema, encoding.beside))
    judging = {label or settings.label: "the label: it judges and never reaches the fit"}
    found = []
    for name in map(str, table):
        if name in known:
            column = known[name]
            role: Role = "dropped" if column.kind in DROPPED else "seen"
            also = ["also groups of the audit"] * (name in groups and role == "seen")
            why = "; ".join([*filter(None, [column.note]), *also])
            found.append(ColumnUse(name, role, column.kind, why, column.told))
        elif name in settings.sensitive:
            found.append(ColumnUse(name, "hidden", _kind(apart.get(name)), "sensitive: audited for what gives it away"))
        elif name in judging:
            found.append(ColumnUse(name, "judging only", "", judging[name]))
        elif name == settings.id_column:
            found.append(ColumnUse(name, "dropped", "", "names the rows"))
        else:
            said = "groups of the audit" if name in groups else "left out as asked"
            found.append(ColumnUse(name, "hidden", _kind(apart.get(name)), said))
    return tuple(found)


def _kind(column: Column | None) -> str:
    """Return what audits take a hidden column for; of a run that did not look, nothing."""
    return "" if column is None else column.kind


def say_what_is_lost(dataset: Dataset, settings: Settings) -> None:
    """Say before any work which columns the encoder will not see although nobody asked, and how to change it."""
    if dataset.encoding is None or settings.schema is not None:
        return
    for column in dataset.encoding.schema.columns:
        if column.kind in DROPPED:
            logger.info(
                "column %s is not used: %s. To use it, name its kind in a file for --schema.",
                shown(column.name),
                printable(column.note) or column.kind,
            )
