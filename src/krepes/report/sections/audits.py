"""One section per audit of the registry: its sentence over the very table it was made from."""

from __future__ import annotations

from krepes.audit.base import AuditResult, View
from krepes.audit.wording import METHODS
from krepes.report.blocks import Block, Table, Warnings
from krepes.report.content import Headline, Section
from krepes.report.pictures import drawn
from krepes.report.wording import OURS, cell, heads

NAMES_OF_OURS = {METHODS[method] for method in OURS}


def section(found: AuditResult, mark: str = "") -> Section:
    """Return an audit's result as a section.

    Args:
        found: The result.
        mark: Whether its findings stand in other runs, in words.

    Returns:
        The section.
    """
    blocks: list[Block] = [Warnings(found.warnings)] if found.warnings else []
    figures = [
        drawn(draw(), f"{caption}. The numbers stand in the table beside it.", caption)
        for caption, draw in found.figures.items()
    ]
    blocks += [*figures, *(table(view) for view in found.views)]
    headline = None if found.headline is None else Headline(*found.headline)
    data = str(found.table.to_json(orient="records", default_handler=str))
    return Section(
        found.name, found.title, found.sentence, found.caveat, tuple(blocks), headline, found.verdict, mark, data
    )


def table(view: View) -> Table:
    """Return a view as a table of the report; rows of our own methods are marked."""
    rows = tuple(
        tuple(cell(value, tone="ours" if i == 0 and value in NAMES_OF_OURS else "") for i, value in enumerate(row))
        for row in view.rows
    )
    return Table(view.caption, heads(*view.columns), rows, view.folded)
