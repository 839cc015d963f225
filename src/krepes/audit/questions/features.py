"""Features: on which original columns does a sample agree with the landmarks that attract it, beyond chance?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import attributions, compared_scores
from krepes.audit.alignment import Alignment, AlignmentSum
from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.shuffles import LEVEL
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, count, listing, number, points, quoted, signed, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K, NAMED = 10, 4
LEADING = 1 / 3
"""Columns with at least this part of the largest gap lead, and the first four of them are named."""
HIDDEN = "hidden from the encoder"
NULL = ("shuffled [5 %, 95 %]", "p (Holm)")
AGREED = {
    "indicator": "two categories agree if they are equal (agreement indicator)",
    "codes": "two categories agree the more, the nearer their integer codes (agreement codes, the paper's)",
}
"""When two categories agree, in words."""


def measure(study: Study) -> Exhibit:
    """Return the Alignment Gap of every column under every ranking, in one streamed pass."""
    space, tables = study.space, study.tables
    assert space is not None and tables is not None
    x, z = space.encode(tables[1]), space.encode(tables[0].iloc[study.model.landmarks_.numpy()])
    generator = torch.Generator().manual_seed(study.seed)
    sums: dict[str, AlignmentSum] = {}
    for rows, found in attributions(study.model, study.X_test):
        Z_test, Z_landmarks = (None, None) if study.embeddings is None else study.embeddings
        scores: dict[str, Tensor] = compared_scores(
            found, generator=generator, Z_test=None if Z_test is None else Z_test[rows], Z_landmarks=Z_landmarks
        )
        for method, values in scores.items():
            if method not in sums:
                budget = study.model.memory_budget
                sums[method] = AlignmentSum(
                    x, z, space.defined, k=min(K, study.m), seed=study.seed, memory_budget=budget
                )
            sums[method].add(values, x[rows])
    frames = [total.frame(space).assign(method=method) for method, total in sums.items()]
    table = pd.concat(frames, ignore_index=True)
    unseen = table["column"].isin(list(study.hidden)) & (table["note"] == "")
    table.loc[unseen, "note"] = HIDDEN
    first = ["method", "variant", "column"]
    table = table[[*first, *(c for c in table if c not in first)]].assign(agreement=space.agreement)
    return Exhibit(table, {"Feature Alignment Gap": _drawer(table)})


def ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the normalised gaps of influence, largest first, undefined columns last."""
    ours = table[(table["method"] == "influence") & (table["variant"] == "normalised")]
    return ours.sort_values("estimate", ascending=False, kind="stable").reset_index(drop=True)


def leaders(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that lead: beyond what shuffles give, and at least a third of the largest such gap."""
    order = ranked(table)
    passed = order[passes(order)]
    return passed[passed["estimate"] >= LEADING * passed["estimate"].iloc[0]] if len(passed) else passed


def passes(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows have a gap beyond their null, corrected for the number of columns."""
    return (rows["p_corrected"] <= LEVEL) & (rows["estimate"] > rows["null"])


def sentence(table: pd.DataFrame) -> str:
    """Return which columns samples and their landmarks share most, and how far the next one follows."""
    order, leading = ranked(table), leaders(table)
    defined = order[order["estimate"].notna()]
    if not len(leading):
        return (
            f"On none of {count(len(defined), 'column')} do samples and their landmarks agree more than they do when "
            "the values of the landmarks are shuffled."
        )
    named = leading.head(NAMED)
    words = [f"{text(row['column'])} ({signed(row['estimate'])})" for row in named.to_dict("records")]
    found = f"Samples resemble the landmarks that attract them above all in {listing(words)}"
    how = f"Zero is what chance gives, and a column is named only beyond shuffled landmarks (corrected p ≤ {LEVEL})."
    others = defined[~defined["column"].isin(named["column"])]
    if not len(others):
        return f"{found}; no other column is left to compare. {how}"
    following = others.iloc[0]
    name, gap = text(following["column"]), signed(following["estimate"])
    if bool(passes(others.head(1)).iloc[0]):
        said = f"the next is {name} with {gap}"
    elif following["estimate"] > named["estimate"].min():
        said = f"{name} is as large, but within what shuffles give, with {gap}"
    else:
        said = f"the next is {name}, within what shuffles give, with {gap}"
    return f"{found}; of the other {count(len(others), 'column')} {said}. {how}"


def numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return the normalised gap of every column for which it is defined."""
    order = ranked(table).dropna(subset="estimate").sort_values("column", kind="stable")
    return {f"gap of {name}": float(gap) for name, gap in zip(order["column"], order["estimate"], strict=True)}


def headline(table: pd.DataFrame) -> tuple[str, str] | None:
    """Return the column of the largest gap beyond its null."""
    leading = leaders(table)
    return (
        (text(leading["column"].iloc[0], 18), "is what samples and their landmarks share most")
        if len(leading)
        else None
    )


def verdict(table: pd.DataFrame) -> Verdict:
    """Return neither good nor bad: which columns ought to count is for the reader to say."""
    return "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return normalised gaps with their null, those of other rankings, and the paper's raw gap beside its own null."""
    order = ranked(table)
    methods = [method for method in dict.fromkeys(table["method"]) if method != "influence"]
    cells: Any = table.set_index(["method", "variant", "column"])
    rows, plain = [], []
    for column, note in zip(order["column"], order["note"], strict=True):
        ours, raw = (cells.loc[("influence", variant, column)] for variant in ("normalised", "raw"))
        others = [cells.loc[(method, "normalised", column)]["estimate"] for method in methods]
        gaps = [Estimate(float(value), unit="gap") for value in others]
        rows.append((text(column), _estimate(ours), *_null(ours), *gaps, text(note)))
        plain.append((text(column), Estimate(float(raw["estimate"]), unit="gap"), *_null(raw)))
    notes = bool(order["note"].astype(bool).any())
    heads = ("column", f"{METHODS['influence']} [95 %, corrected]", *NULL, *(METHODS[name] for name in methods))
    caption = (
        "Gap of each column by what ranks the landmarks, ours with a 95 % interval corrected for the number of "
        f"columns; p: against shuffled landmarks; {AGREED[table['agreement'].iloc[0]]}"
    )
    return (
        View(caption, (*heads, *(["note"] if notes else [])), tuple(row if notes else row[:-1] for row in rows)),
        View(
            "Raw gap of the influence score, positive by construction: only what is above its shuffles means anything",
            ("column", "raw gap", *NULL),
            tuple(plain),
            folded=True,
        ),
    )


def _null(row: pd.Series[float]) -> tuple[Estimate, str]:
    """Return the band of the null around its mean and the corrected p."""
    band = Estimate(float(row["null"]), float(row["null_low"]), float(row["null_high"]), "gap")
    return band, "–" if pd.isna(row["p_corrected"]) else number(float(row["p_corrected"]), 2)


def _estimate(row: pd.Series[float]) -> Estimate:
    """Return a gap with the interval in which those of all columns lie together."""
    return Estimate(float(row["estimate"]), float(row["low_corrected"]), float(row["high_corrected"]), "gap")


def _drawer(table: pd.DataFrame) -> Callable[[], Figure]:
    return partial(_draw, Alignment(table[table["method"] == "influence"].drop(columns="method")))


def _draw(alignment: Alignment) -> Figure:
    from krepes.figures import alignment_bars

    return alignment_bars(alignment)


def plain(table: pd.DataFrame) -> str:
    """Return the columns that lead, and how far above chance the first of them is."""
    leading = leaders(table).head(2)
    if not len(leading):
        return "No column stands out: samples are as unlike the landmarks that attract them as chance would have it."
    first = leading.iloc[0]
    hidden = ", which was hidden from it," if first["note"] == HIDDEN else ""
    second = f" (then {quoted(leading['column'].iloc[1])})" if len(leading) > 1 else ""
    return (
        f"The encoder keeps {quoted(first['column'])}{hidden} above all{second}: samples are "
        f"{points(first['estimate'])} more alike in it to the landmarks that attract them than chance gives."
    )


def strength(table: pd.DataFrame) -> float:
    """Return the largest gap beyond its null."""
    leading = leaders(table)
    return float(leading["estimate"].iloc[0]) if len(leading) else 0.0


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return for every column whether the encoder keeps it beyond chance."""
    order = ranked(table)
    rows = order[order["estimate"].notna()]
    return tuple(
        Finding(f"the encoder keeps {text(row['column'])}", _estimate(row), bool(sure))
        for (_, row), sure in zip(rows.iterrows(), passes(rows), strict=True)
    )


FEATURES = Audit(
    name="features",
    title="Features: what the encoder looks at",
    asks="which columns the encoder looks at",
    needs=("table",),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    strength=strength,
    findings=findings,
    headline=headline,
    numbers=numbers,
    caveat="A gap says that samples and their landmarks agree on a column, not that the column causes it: a column may "
    "stand in for another, such as a district for a group. Intervals hold model and landmarks fixed; shuffles ask what "
    "other landmarks would give, and take every landmark as a draw of its own.",
)
