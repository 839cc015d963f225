"""Landmarks: which training samples carry the change that the objective made, and is it few or many?"""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit import Coverage, class_coverage
from krepes.figures import coverage_curve
from krepes.report.content import Block, Card, Cell, Gallery, Headline, Picture, Section, Table
from krepes.report.evidence import Evidence
from krepes.report.pictures import drawn, thumbnail
from krepes.report.sections.guard import explains_a_step
from krepes.report.wording import cell, heads, number, percent, text

KEY, TITLE = "landmarks", "Landmarks"
CARDS, ROWS = 21, 50


@explains_a_step(KEY, TITLE)
def landmarks(evidence: Evidence) -> Section:
    """Return the section on the landmarks and their weights."""
    omega = evidence.attribution.omega
    order = omega.argsort(descending=True, stable=True)
    tenth = max(1, round(evidence.m / 10))
    weights = omega.square() / omega.square().sum().clamp_min(1e-300)
    carried = float(weights[order[:tenth]].sum())
    effective = float(torch.special.entr(weights).sum().exp())
    coverage = _coverage(evidence, omega)
    finding = (
        f"The strongest {tenth} of {evidence.m} landmarks carry {percent(carried)} of what the objective added "
        f"(evenly spread it would be {percent(tenth / evidence.m)}); it is as if {effective:.0f} landmarks shared it."
    ) + ("" if coverage is None else f" Classes: {coverage.verdict}")
    return Section(
        KEY,
        TITLE,
        finding,
        "The weight ω of a landmark says how much the objective changed its coefficients, not how good or typical it "
        "is; a training row that is no landmark can matter as much, which only the counterfactual section tells.",
        (_shown(evidence, omega, order), *([] if coverage is None else [_coverage_picture(coverage)])),
        Headline(f"{effective:.0f} of {evidence.m}", "landmarks carry the change, in effect"),
    )


def _shown(evidence: Evidence, omega: Tensor, order: Tensor) -> Block:
    ids, labels = evidence.model.landmark_ids_, evidence.label_of
    classes = evidence.of_landmarks(labels[0]) if labels else None
    if evidence.inputs == "image" and isinstance(evidence.landmarks, Tensor):
        cards = []
        for l in order[:CARDS].tolist():
            name = f"landmark {text(ids[l])}" + (f", class {classes[l]}" if classes else "")
            picture = thumbnail(evidence.landmarks[l], f"{name}, weight {number(float(omega[l]))}")
            lines = (f"ω {number(float(omega[l]))}", *((f"class {text(classes[l])}",) if classes else ()))
            cards.append(Card(text(ids[l]), picture, lines))
        return Gallery(f"The {len(cards)} strongest landmarks, by ω", tuple(cards))
    table = None if evidence.tables is None else evidence.tables[0].iloc[evidence.model.landmarks_.numpy()]
    columns = heads("landmark", "ω", *(["class"] if classes else []), *(map(str, table) if table is not None else ()))
    rows = []
    for l in order[:ROWS].tolist():
        values = () if table is None else tuple(cell(value) for value in table.iloc[l].tolist())
        shown = (cell(classes[l]),) if classes else ()
        rows.append((cell(ids[l]), Cell(number(float(omega[l])), float(omega[l])), *shown, *values))
    return Table(f"The {len(rows)} strongest landmarks, by ω", columns, tuple(rows))


def _coverage(evidence: Evidence, omega: Tensor) -> Coverage | None:
    if evidence.label_of is None:
        return None
    train, _ = evidence.label_of
    return class_coverage(omega, evidence.of_landmarks(train), classes=train, seed=evidence.seed)


def _coverage_picture(found: Coverage) -> Picture:
    alt = f"Classes met among the strongest landmarks: {found.verdict}"
    return drawn(coverage_curve(found), alt, "Classes met by the strongest landmarks")
