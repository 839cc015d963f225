"""Landmarks: which training samples carry the change that the objective made, and is it few or many?"""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit.study import Study
from krepes.audit.wording import number, percent, text
from krepes.report.content import Block, Card, Cell, Gallery, Headline, Quotes, Section, Table
from krepes.report.pictures import thumbnail
from krepes.report.sections.guard import explains_a_step
from krepes.report.sections.sentences import quotable, quoted_row
from krepes.report.wording import cell, heads

KEY, TITLE = "landmarks", "Landmarks"
CARDS, ROWS = 21, 50


@explains_a_step(KEY, TITLE)
def landmarks(study: Study) -> Section:
    """Return the section on the landmarks and their weights."""
    omega = study.attribution.omega
    order = omega.argsort(descending=True, stable=True)
    tenth = max(1, round(study.m / 10))
    weights = omega.square() / omega.square().sum().clamp_min(1e-300)
    carried = float(weights[order[:tenth]].sum())
    effective = float(torch.special.entr(weights).sum().exp())
    finding = (
        f"The strongest {tenth} of {study.m} landmarks carry {percent(carried)} of what the objective added "
        f"(evenly spread it would be {percent(tenth / study.m)}); it is as if {effective:.0f} landmarks shared it."
    )
    return Section(
        KEY,
        TITLE,
        finding,
        "The weight ω of a landmark says how much the objective changed its coefficients, not how good or typical it "
        "is; a training row that is no landmark can matter as much, which only the counterfactual section tells.",
        (_shown(study, omega, order),),
        Headline(f"{effective:.0f} of {study.m}", "landmarks carry the change, in effect"),
    )


def _shown(study: Study, omega: Tensor, order: Tensor) -> Block:
    ids, labels = study.model.landmark_ids_, study.label_of
    classes = study.of_landmarks(labels[0]) if labels else None
    if study.inputs == "image" and isinstance(study.landmarks, Tensor):
        cards = []
        for l in order[:CARDS].tolist():
            name = f"landmark {text(ids[l])}" + (f", class {classes[l]}" if classes else "")
            picture = thumbnail(study.landmarks[l], f"{name}, weight {number(float(omega[l]))}")
            lines = (f"ω {number(float(omega[l]))}", *((f"class {text(classes[l])}",) if classes else ()))
            cards.append(Card(text(ids[l]), picture, lines))
        return Gallery(f"The {len(cards)} strongest landmarks, by ω", tuple(cards))
    if quotable(study):
        rows_of = study.model.landmarks_.tolist()
        about = [
            (f"ω {number(float(omega[l]))}", f"class {text(classes[l])}" if classes else "") for l in range(study.m)
        ]
        quotes = [quoted_row(study, rows_of[l], text(ids[l]), about[l]) for l in order[:CARDS].tolist()]
        return Quotes(f"The {len(quotes)} strongest landmarks, by ω", tuple(quotes))
    table = None if study.tables is None else study.tables[0].iloc[study.model.landmarks_.numpy()]
    columns = heads("landmark", "ω", *(["class"] if classes else []), *(map(str, table) if table is not None else ()))
    rows = []
    for l in order[:ROWS].tolist():
        values = () if table is None else tuple(cell(value) for value in table.iloc[l].tolist())
        shown = (cell(classes[l]),) if classes else ()
        rows.append((cell(ids[l]), Cell(number(float(omega[l])), float(omega[l])), *shown, *values))
    return Table(f"The {len(rows)} strongest landmarks, by ω", columns, tuple(rows))
