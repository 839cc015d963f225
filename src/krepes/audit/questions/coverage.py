"""Class coverage: how many of the strongest landmarks does it take to meet every class?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.coverage import Coverage, class_coverage
from krepes.audit.study import Study
from krepes.audit.wording import listing, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRONGEST, RANDOM, ABSENT = "strongest first", "random order", "no landmark"


def measure(study: Study) -> Exhibit:
    """Return the landmarks needed for all classes, strongest first and in random order, and classes without any."""
    assert study.label_of is not None
    train, _ = study.label_of
    found = class_coverage(study.attribution.omega, study.of_landmarks(train), classes=train, seed=study.seed)
    nothing = float("nan")
    rows: list[tuple[Any, ...]] = [
        (STRONGEST, "", *_known(found.kappa, None, None, found.p)),
        (RANDOM, "", *_known(found.random, found.random_low, found.random_high, None)),
        *((ABSENT, str(name), 0.0, nothing, nothing, nothing) for name in found.missing),
    ]
    table = pd.DataFrame(rows, columns=["order", "class", "estimate", "low", "high", "p"])
    return Exhibit(table.assign(m=study.m), {"Classes met by the strongest landmarks": partial(_draw, found)})


def _known(*values: float | None) -> tuple[float, ...]:
    return tuple(float("nan") if value is None else float(value) for value in values)


def sentence(table: pd.DataFrame) -> str:
    """Return how many landmarks meet every class, or which classes none meets."""
    absent = table[table["order"] == ABSENT]["class"].tolist()
    if absent:
        return f"No landmark is of class {listing(absent)}, so no number of landmarks meets every class."
    ours, chance = (table[table["order"] == order].iloc[0] for order in (STRONGEST, RANDOM))
    return (
        f"The {int(ours['estimate'])} strongest of {int(ours['m'])} landmarks meet every class; in random order it "
        f"takes {number(chance['estimate'])} ({chance['low']:.0f} to {chance['high']:.0f}), and "
        f"{percent(ours['p'])} of random orders take no more."
    )


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if a class has no landmark or needs surely more than random ones, good if surely fewer."""
    if (table["order"] == ABSENT).any():
        return "bad"
    ours, chance = (table[table["order"] == order].iloc[0] for order in (STRONGEST, RANDOM))
    if ours["estimate"] > chance["high"]:
        return "bad"
    return "good" if ours["estimate"] < chance["low"] else "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the numbers of landmarks, and the classes without any."""
    rows = tuple(
        (row["order"], row["class"] or "all", Estimate(row["estimate"], *_ends(row))) for _, row in table.iterrows()
    )
    return (View("Landmarks needed to meet every class", ("order", "class", "landmarks"), rows),)


def _ends(row: pd.Series[float]) -> tuple[float | None, float | None]:
    return (None, None) if pd.isna(row["low"]) else (float(row["low"]), float(row["high"]))


def _draw(found: Coverage) -> Figure:
    from krepes.figures import coverage_curve

    return coverage_curve(found)


def plain(table: pd.DataFrame) -> str:
    """Return how many landmarks meet every class, or which classes none meets."""
    absent = table[table["order"] == ABSENT]["class"].tolist()
    if absent:
        return f"No landmark is of class {listing(absent[:3])}{' and others' if len(absent) > 3 else ''}."
    ours, chance = (table[table["order"] == order].iloc[0] for order in (STRONGEST, RANDOM))
    return (
        f"The {int(ours['estimate'])} strongest of {int(ours['m'])} landmarks meet every class; in random order it "
        f"takes {number(chance['estimate'], 2)}."
    )


def strength(table: pd.DataFrame) -> float:
    """Return much only if a class has no landmark: the order of the others seldom matters."""
    return 0.5 if (table["order"] == ABSENT).any() else -0.9


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether every class has a landmark."""
    ours = table[table["order"] == STRONGEST].iloc[0]
    return (Finding("every class has a landmark", Estimate(float(ours["estimate"])), verdict(table) != "bad"),)


COVERAGE = Audit(
    name="coverage",
    title="Class coverage: do the strongest landmarks meet every class",
    asks="whether the strongest landmarks meet every class",
    needs=("labels",),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    strength=strength,
    findings=findings,
    caveat="With few balanced classes a handful of landmarks in any order meets them all.",
)
