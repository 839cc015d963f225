"""Landmarks: which training samples carry the change that the objective made, and is it few or many?"""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit.wording import percent
from krepes.report.blocks import Block, Card, Cell, Gallery, Quotes, Table
from krepes.report.content import Headline, Section
from krepes.report.desk import Desk
from krepes.report.pictures import thumbnail
from krepes.report.sections.guard import NOTHING
from krepes.report.sections.sheets import sheets
from krepes.report.sentences import quotable, quoted_row
from krepes.report.wording import cell, heads

KEY, TITLE = "landmarks", "Landmarks: which training samples carry the change"
CARDS, ROWS = 24, 50


def landmarks(desk: Desk) -> Section:
    """Return the section on the landmarks and what each carries, with a sheet for every one that is named."""
    study = desk.study
    if not study.moved:
        return Section(KEY, TITLE, NOTHING)
    weights = carried(desk)
    order = weights.argsort(descending=True, stable=True)
    tenth = max(1, round(study.m / 10))
    share = float(weights[order[:tenth]].sum())
    effective = float(torch.special.entr(weights).sum().exp())
    finding = (
        f"The strongest {tenth} of {study.m} landmarks carry {percent(share)} of what the objective added "
        f"(evenly spread it would be {percent(tenth / study.m)}); it is as if {effective:.0f} landmarks shared it."
    )
    return Section(
        KEY,
        TITLE,
        finding,
        "What a landmark carries says how much the objective changed by way of it, not how good or typical it is; a "
        "training row that is no landmark can matter as much, which only removal tells.",
        (_shown(desk, weights, order), sheets(desk, weights)),
        Headline(f"{effective:.0f} of {study.m}", "landmarks carry the change, in effect"),
    )


def carried(desk: Desk) -> Tensor:
    """Return the share of the change that each landmark carries, ``(m,)``."""
    omega = desk.study.attribution.omega
    return omega.square() / omega.square().sum().clamp_min(1e-300)


def _shown(desk: Desk, weights: Tensor, order: Tensor) -> Block:
    study = desk.study
    strongest = order[:CARDS].tolist()
    pictures = desk.pictures([desk.rows[l] for l in strongest])
    if pictures is not None:
        cards = []
        for l, picture in zip(strongest, pictures, strict=True):
            row, said = desk.rows[l], f"{percent(float(weights[l]))} of the change"
            lines = (said, *((f"class {desk.class_of(row)}",) if study.label_of else ()))
            alt = f"landmark {desk.train_name(row)}: {', '.join(lines)}"
            cards.append(Card(desk.train_name(row), thumbnail(picture, alt), lines, "", desk.link(row)))
        return Gallery(f"The {len(cards)} landmarks that carry most", tuple(cards))
    if quotable(study):
        shares = {desk.rows[l]: f"{percent(float(weights[l]))} of the change" for l in strongest}
        quotes = tuple(
            quoted_row(desk, row, (share, *([f"class {desk.class_of(row)}"] if study.label_of else [])))
            for row, share in shares.items()
        )
        return Quotes(f"The {len(quotes)} landmarks that carry most", quotes)
    table = None if study.tables is None else study.tables[0]
    names = ["landmark", "share of the change", *(["class"] if study.label_of else [])]
    rows = []
    for l in order[:ROWS].tolist():
        row, share = desk.rows[l], float(weights[l])
        values = () if table is None else tuple(cell(value) for value in table.iloc[row].tolist())
        shown = (cell(desk.class_of(row)),) if study.label_of else ()
        rows.append((Cell(desk.train_name(row), link=desk.link(row)), Cell(percent(share), share), *shown, *values))
    columns = heads(*names, *(map(str, table) if table is not None else ()))
    return Table(f"The {len(rows)} landmarks that carry most", columns, tuple(rows))
