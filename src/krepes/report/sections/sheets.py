"""Sheets: all that is known of one training sample, opened by a click on its name anywhere."""

from __future__ import annotations

from collections import defaultdict

from torch import Tensor

from krepes.audit.wording import percent, text
from krepes.report.blocks import Block, Cell, Facts, Paragraph, Sheet, Sheets, Table
from krepes.report.desk import Bond, Desk
from krepes.report.showing import portrait
from krepes.report.wording import heads

MOST = 8
Bears = dict[int, list[tuple[int, Bond]]]
"""For each training row, the test samples on which it bears, and how."""


def sheets(desk: Desk, weights: Tensor) -> Sheets:
    """Return a sheet for every training row that is named on the page.

    Args:
        desk: What is known.
        weights: Share of the change that each landmark carries, ``(m,)``.

    Returns:
        The sheets.
    """
    of_landmark = {row: float(weight) for row, weight in zip(desk.rows, weights.tolist(), strict=True)}
    made, changed = _bearings(desk)
    found = []
    for row in desk.sheets:
        blocks = (_about(desk, row, of_landmark), *portrait(desk, row), *_listed(desk, row, made, changed))
        found.append(Sheet(f"row-{row}", f"Training sample {desk.train_name(row)}", blocks))
    return Sheets(tuple(found))


def _bearings(desk: Desk) -> tuple[Bears, Bears]:
    made, changed = defaultdict(list), defaultdict(list)
    for i, place in enumerate(desk.places):
        for bond in desk.made_of(i):
            made[bond.row].append((place, bond))
        for bond in (
            (bond for part in desk.would_change(i) for bond in part) if i < desk.deep and desk.asks_removal else ()
        ):
            changed[bond.row].append((place, bond))
    return made, changed


def _about(desk: Desk, row: int, of_landmark: dict[int, float]) -> Block:
    study = desk.study
    role = f"a landmark: carries {percent(of_landmark[row])} of the change" if row in of_landmark else "no landmark"
    facts = [("It is", role)]
    if study.label_of:
        facts.append(("Class", desk.class_of(row)))
    facts += [
        (text(name), text(list(pair[0])[row])) for name, pair in study.groups.items() if not _in_table(desk, name)
    ]
    return Facts(tuple(facts))


def _in_table(desk: Desk, name: str) -> bool:
    return desk.study.tables is not None and name in desk.study.tables[0]


def _listed(desk: Desk, row: int, made: Bears, changed: Bears) -> list[Block]:
    """Return the samples on which a row bears, strongest first."""
    found: list[Block] = []
    for bears, caption in (
        (made, "Samples that it attracts or repels"),
        (changed, "Samples that its removal would move"),
    ):
        bonds = sorted(bears.get(row, ()), key=lambda one: -abs(one[1].value))[:MOST]
        rows = tuple(
            (Cell(desk.name(place), link=f"sample-{place}"), Cell(bond.said, bond.value, bond.tone))
            for place, bond in bonds
        )
        if rows:
            found.append(Table(caption, heads("test sample", "how"), rows))
    return found or [Paragraph("It is among the strongest of no sample that is listed here.")]
