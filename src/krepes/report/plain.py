"""A report as plain values, for machines: everything that the page says but its pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from krepes.report.blocks import Block, Chooser, Facts, Paragraph, Quotes, Sheets, Table, Titled, Warnings
from krepes.report.content import Front, Part, Report, Section


def report_values(report: Report) -> dict[str, Any]:
    """Return a report as values that JSON knows."""
    return {"title": report.title, "parts": [_part(part) for part in report.parts]}


def _part(part: Part) -> dict[str, Any]:
    front = {} if part.front is None else _front(part.front)
    return {"title": part.title, **front, "sections": [_section(section) for section in part.sections]}


def _front(front: Front) -> dict[str, Any]:
    return {
        "light": front.light,
        "why": front.why,
        "rules": _table(front.rules)["rows"],
        "findings": [{"text": one.text, "verdict": one.verdict, "section": one.key} for one in front.points],
        "next": [{"text": step.text, "command": step.command} for step in front.steps],
    }


def _section(section: Section) -> dict[str, Any]:
    headline = section.headline
    return {
        "key": section.key,
        "title": section.title,
        "finding": section.finding,
        "caveat": section.caveat,
        "verdict": section.verdict,
        "standing": section.mark,
        "missing": section.missing,
        "headline": None if headline is None else {"value": headline.value, "label": headline.label},
        "data": json.loads(section.data) if section.data else None,
        "said": list(_said(section.blocks)),
    }


def _said(blocks: tuple[Block, ...]) -> Iterator[dict[str, Any]]:
    """Yield words and tables of blocks, those of samples and sheets under their names."""
    for block in blocks:
        if isinstance(block, Table):
            yield _table(block)
        elif isinstance(block, Paragraph):
            yield {"text": block.text}
        elif isinstance(block, Warnings):
            yield {"warnings": list(block.texts)}
        elif isinstance(block, Facts):
            yield {"facts": dict(block.items)}
        elif isinstance(block, Quotes):
            yield {
                "texts": [{"name": one.title, "text": str(one.text), "about": list(one.lines)} for one in block.quotes]
            }
        elif isinstance(block, Titled):
            yield {"title": block.title, "said": list(_said(block.blocks))}
        elif isinstance(block, Chooser):
            yield {"samples": [{"name": one.name, "said": list(_said(one.blocks))} for one in block.choices]}
        elif isinstance(block, Sheets):
            yield {"sheets": [{"name": one.title, "said": list(_said(one.blocks))} for one in block.sheets]}


def _table(table: Table) -> dict[str, Any]:
    """Return a table with one record for each row; numbers where a cell has one, else its text."""
    names = [head.text or f"column {place + 1}" for place, head in enumerate(table.columns)]
    rows = [
        {name: cell.text if cell.value is None else cell.value for name, cell in zip(names, row, strict=True)}
        for row in table.rows
    ]
    return {"table": table.caption, "rows": rows}
