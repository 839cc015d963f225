"""Class coverage: how many of the strongest landmarks does it take to meet every class?

One draw of landmarks is one case. Over random halves of them, each with a step of its own, the mean is compared with
that of shuffled classes, where the step costs no pass over the data; where there are none the table says why.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.coverage import Coverage, class_coverage, coverage_of_draws
from krepes.audit.halves import half_models
from krepes.audit.study import Study
from krepes.audit.wording import listing, number, percent, text
from krepes.data.text import printable
from krepes.engine.init import ENCODER
from krepes.errors import ConvergenceWarning, KrepesError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRONGEST, RANDOM, ABSENT = "strongest first", "random order", "no landmark"
HALVES, SHUFFLED, MET = "halves, strongest first", "halves, shuffled classes", "halves that meet every class"
UNDRAWN = "halves, not drawn"
DRAWS, LARGEST, LOOSE, SURE = 10, 100_000, 1e-3, 0.05
"""Random halves of the landmarks, the most coefficients of the step of each, its residual, and a p that is sure."""


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
        *(() if found.missing else _over_halves(study)),
    ]
    table = pd.DataFrame(rows, columns=["order", "class", "estimate", "low", "high", "p"])
    return Exhibit(table.assign(m=study.m), {"Classes met by the strongest landmarks": partial(_draw, found)})


def _over_halves(study: Study) -> tuple[tuple[Any, ...], ...]:
    """Return the mean over random halves of the landmarks with its p, and that of shuffled classes; else why not."""
    model, nothing = study.model, float("nan")
    assert study.label_of is not None
    why = _too_dear(study)
    if why:
        return (_undrawn(why),)
    train, _ = study.label_of
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the order of strengths needs no exact step
            halves = list(half_models(model, DRAWS, seed=study.seed, tol=max(model.tol, LOOSE)))
    except KrepesError as error:  # a half spans fewer directions than the model has, or its step cannot be taken
        said = str(error).partition(". ")[0].removesuffix(".")
        return (_undrawn(f"a half of the landmarks has no step of its own ({printable(said)})"),)
    labels, classes = study.of_landmarks(train), len(set(study.of_landmarks(train)))
    mean, chance, p = coverage_of_draws(halves, labels, classes=train, seed=study.seed)
    met = sum(len({labels[i] for i in kept.tolist()}) == classes for kept, _ in halves)
    if not met:
        return (_undrawn(f"none of {DRAWS} halves of the {study.m} landmarks meets every class"),)
    rest = (nothing, nothing)
    return (HALVES, "", mean, *rest, p), (SHUFFLED, "", chance, *rest, nothing), (MET, "", float(met), *rest, nothing)


def _too_dear(study: Study) -> str:
    """Return why halves of the landmarks would cost too much, or nothing if they do not."""
    model = study.model
    if model.init == ENCODER:
        return "the model starts at the encoder, and a half would have to be fitted to it anew"
    if model.moments_ is None:
        return "the objective compares rows, and each half would take passes over the data"
    size = model.solution_.theta.numel()
    return "" if size <= LARGEST else f"the step has {size:,} coefficients, and halves are tried up to {LARGEST:,}"


def _undrawn(why: str) -> tuple[Any, ...]:
    return (UNDRAWN, why, *(float("nan"),) * 4)


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
        f"{percent(ours['p'])} of random orders take no more.{_halves_in_words(table)}"
    )


def _halves_in_words(table: pd.DataFrame) -> str:
    """Return what random halves of the landmarks say, or why they were not drawn."""
    of = table.set_index("order")
    if UNDRAWN in of.index:
        return f" What it takes with other landmarks was not drawn: {text(of['class'][UNDRAWN], 300)}."
    if HALVES not in of.index:
        return ""
    mean, chance, met = (float(of["estimate"][order]) for order in (HALVES, SHUFFLED, MET))
    some = "" if met == DRAWS else f" ({met:.0f} of them meet every class, and the mean is theirs)"
    return (
        f" Over {DRAWS} random halves of the landmarks{some}, each with a step of its own, it takes {number(mean)} on "
        f"average, with shuffled classes {number(chance)} (p = {number(float(of['p'][HALVES]), 2)})."
    )


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if a class has no landmark or needs surely more than random ones, good if surely fewer, halves too."""
    if (table["order"] == ABSENT).any():
        return "bad"
    ours, chance = (table[table["order"] == order].iloc[0] for order in (STRONGEST, RANDOM))
    if ours["estimate"] > chance["high"]:
        return "bad"
    by_halves = table[table["order"] == HALVES]["p"]
    return "good" if ours["estimate"] < chance["low"] and not (by_halves > SURE).any() else "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the numbers of landmarks, and the classes without any."""
    rows = tuple(
        (row["order"], row["class"] or "all", Estimate(row["estimate"], *_ends(row)), _p(row["p"]))
        for _, row in table[~table["order"].isin([MET, UNDRAWN])].iterrows()
    )
    left_out = tuple(
        (UNDRAWN, "all", f"not drawn: {text(why, 300)}", "–") for why in table[table["order"] == UNDRAWN]["class"]
    )
    heads = ("order", "class", "landmarks", "p")
    return (
        View("Landmarks needed to meet every class; p: share of chance that needs no more", heads, rows + left_out),
    )


def _p(value: float) -> str:
    return "–" if pd.isna(value) else number(float(value), 2)


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
