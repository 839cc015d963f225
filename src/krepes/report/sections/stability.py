"""Stability: which findings stand in another run, with another seed, encoder or setting, and which do not?"""

from __future__ import annotations

from krepes.audit.base import Estimate
from krepes.audit.standing import Comparison
from krepes.report.blocks import Cell, Table, Tone
from krepes.report.content import Headline, Section
from krepes.report.wording import NONE, cell, heads

KEY, TITLE = "stability", "Stability: what stands in other runs"
MOST = 60
TONES: dict[str, Tone] = {"stable": "attracts", "not stable": "repels", "not asked": "muted"}


def stability(found: Comparison) -> Section:
    """Return the section that puts the findings of several runs side by side."""
    stands = found.found
    share = found.stable / len(stands) if stands else 1.0
    return Section(
        KEY,
        TITLE,
        found.sentence(),
        "Each run has its own split, training and landmarks where its settings say so. A finding stands where it is "
        "beyond chance by the bar of its own audit; two runs may differ in the number and agree in that.",
        (standing_table(found),),
        Headline(f"{found.stable} of {len(stands)}", f"findings stand in {found.everywhere}"),
        "good" if share >= 0.8 else "bad",
    )


def standing_table(found: Comparison) -> Table:
    """Return what stands in some run, one row for each finding; those that stand nowhere are left out."""
    rows = []
    for one in (*found.found, *found.elsewhere)[:MOST]:
        numbers = [_number(e, s) for e, s in zip(one.estimates, one.stands, strict=True)]
        said = "not asked" if None in one.stands else "stable" if one.stable else "not stable"
        note = "; the numbers differ by more than their intervals" if one.apart else ""
        rows.append((
            Cell(one.name),
            Cell(said, None, TONES[said]),
            *numbers,
            Cell(one.word + note),
        ))
    return Table("Every finding that stands in some run", heads("finding", "answer", *found.runs, "where"), tuple(rows))


def _number(estimate: Estimate | None, stands: bool | None) -> Cell:
    if estimate is None:
        return NONE
    shown = cell(estimate)
    return Cell(shown.text, shown.value, "" if stands else "muted", note="stands" if stands else "does not stand")
