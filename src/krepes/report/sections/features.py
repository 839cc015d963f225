"""Features: on which original columns does a sample agree with the landmarks that attract it, beyond chance?"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import attributions, compared_scores
from krepes.audit import Alignment, AlignmentSum
from krepes.figures import alignment_bars
from krepes.report.content import Cell, Headline, Section, Table
from krepes.report.evidence import Evidence
from krepes.report.pictures import drawn
from krepes.report.sections.guard import explains_a_step
from krepes.report.wording import METHODS, NONE, cell, estimate, heads, listing, missing, signed, text

KEY, TITLE = "features", "Features: what the encoder looks at"
K, COLUMNS_NAMED = 10, 4
# Columns with at least this part of the largest gap are named in the finding.
LEADING = 1 / 3


@explains_a_step(KEY, TITLE)
def features(evidence: Evidence) -> Section:
    """Return the section on the Alignment Gap of every column."""
    if evidence.tables is None or evidence.space is None:
        return missing(KEY, TITLE, "which columns the encoder looks at", "tables=(training rows, test rows)")
    gaps = alignments(evidence)
    ours = gaps["influence"]
    ranked = ours.ranked()
    sure = ranked[ranked["low"] > 0]
    alt = f"Alignment gaps by column, largest first: {listing(ranked['column'].tolist())}; numbers in the table below."
    return Section(
        KEY,
        TITLE,
        _finding(ranked, sure, len(evidence.space.defined)),
        "A gap says that samples and their landmarks agree on a column, not that the column causes it: a column may "
        "stand in for another, such as a district for a group. Intervals hold model and landmarks fixed.",
        (drawn(alignment_bars(ours), alt, "Normalised Feature Alignment Gap"), _table(gaps, ranked)),
        Headline(text(ranked["column"].iloc[0], 18), "is what samples and their landmarks share most")
        if len(sure)
        else None,
    )


def alignments(evidence: Evidence) -> dict[str, Alignment]:
    """Return the Alignment Gap under every ranking, in one streamed pass."""
    space = evidence.space
    assert space is not None and evidence.tables is not None
    x = space.encode(evidence.tables[1])
    z = space.encode(evidence.tables[0].iloc[evidence.model.landmarks_.numpy()])
    generator = torch.Generator().manual_seed(evidence.seed)
    totals: dict[str, AlignmentSum] = {}
    for rows, found in attributions(evidence.model, evidence.X_test):
        Z_test, Z_landmarks = (None, None) if evidence.embeddings is None else evidence.embeddings
        scores: dict[str, Tensor] = compared_scores(
            found, generator=generator, Z_test=None if Z_test is None else Z_test[rows], Z_landmarks=Z_landmarks
        )
        for method, values in scores.items():
            if method not in totals:
                totals[method] = AlignmentSum(
                    x,
                    z,
                    space.defined,
                    k=min(K, evidence.m),
                    seed=evidence.seed,
                    memory_budget=evidence.model.memory_budget,
                )
            totals[method].add(values, x[rows])
    return {method: Alignment(total.frame(space)) for method, total in totals.items()}


def _finding(ranked: pd.DataFrame, sure: pd.DataFrame, defined: int) -> str:
    if not len(sure):
        return f"On none of {defined} columns do samples and their landmarks agree more than chance would have it."
    leading = sure[sure["estimate"] >= LEADING * sure["estimate"].iloc[0]]
    named = [f"{text(row.column)} ({signed(row.estimate)})" for row in leading.head(COLUMNS_NAMED).itertuples()]
    finding = f"Samples resemble the landmarks that attract them above all in {listing(named)}"
    others = ranked[ranked["estimate"].notna() & ~ranked["column"].isin(leading["column"])]
    if not len(others):
        return f"{finding}; no other column is left to compare."
    next_gap = f"{text(others['column'].iloc[0])} with {signed(others['estimate'].iloc[0])}"
    return f"{finding}; of the other {len(others)} columns the next is {next_gap}. Zero is what chance gives."


def _table(gaps: dict[str, Alignment], ranked: pd.DataFrame) -> Table:
    """Return normalised gaps of every method and the paper's raw gap of ours, columns in the order of ours."""
    raw = gaps["influence"].ranked("raw").set_index("column")
    by_method = {method: gap.ranked().set_index("column") for method, gap in gaps.items()}
    notes = bool(ranked["note"].any())
    rows = []
    for column, note in zip(ranked["column"].tolist(), ranked["note"].tolist(), strict=True):
        ours, *others = (table.loc[column] for table in by_method.values())
        plain = [_gap(other) for other in (*others, raw.loc[column])]
        rows.append((cell(column), estimate(ours), *plain, *((Cell(text(note)),) if notes else ())))
    names = [*(METHODS[method] for method in by_method), "raw influence score", *(["note"] if notes else [])]
    caption = "Gap of each column by what ranks the landmarks, 95 % interval of ours; raw is positive by construction"
    return Table(caption, heads("column", *names), tuple(rows))


def _gap(row: pd.Series[float]) -> Cell:
    return NONE if pd.isna(row["estimate"]) else Cell(signed(row["estimate"]), row["estimate"])
