"""One section per audit of the registry: its sentence over the very table it was made from."""

from __future__ import annotations

from krepes.audit.base import Audit, AuditResult, View
from krepes.audit.study import Study
from krepes.audit.wording import METHODS
from krepes.report.content import Block, Headline, Section, Table, Warnings
from krepes.report.pictures import drawn
from krepes.report.wording import OURS, cell, heads

NAMES_OF_OURS = {METHODS[method] for method in OURS}


def audited(audit: Audit, study: Study) -> Section:
    """Return the section of an audit, or what to pass to get it."""
    lacking = audit.missing(study)
    return Section(audit.name, audit.title, lacking) if lacking else section(audit(study))


def section(found: AuditResult) -> Section:
    """Return an audit's result as a section."""
    blocks: list[Block] = [Warnings(found.warnings)] if found.warnings else []
    for caption, draw in found.figures.items():
        blocks.append(drawn(draw(), f"{caption}. The numbers stand in the table below.", caption))
    blocks += [table(view) for view in found.views]
    headline = None if found.headline is None else Headline(*found.headline)
    return Section(found.name, found.title, found.sentence, found.caveat, tuple(blocks), headline, found.verdict)


def table(view: View) -> Table:
    """Return a view as a table of the report; rows of our own methods are marked."""
    rows = tuple(
        tuple(cell(value, tone="ours" if i == 0 and value in NAMES_OF_OURS else "") for i, value in enumerate(row))
        for row in view.rows
    )
    return Table(view.caption, heads(*view.columns), rows, view.folded)
