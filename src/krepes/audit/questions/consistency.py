"""Label consistency: do the landmarks that attract a sample share its class, and do baselines do better?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Verdict, View
from krepes.audit.consistency import label_consistency
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTHS = (1, 5, 10)
"""The K that a person is shown; the table has all."""


def measure(study: Study) -> Exhibit:
    """Return Precision, Majority and Hit Rate at every K, for every ranking."""
    assert study.label_of is not None
    train, test = study.label_of
    table = label_consistency(study.rankings, study.of_landmarks(train), test, predictions=study.predictions_of)
    return Exhibit(table, {"Precision, majority and hit rate over K": partial(_draw, table)})


def first_precision(table: pd.DataFrame) -> Any:
    """Return the precision of the first landmark, one row per method."""
    return table[(table["metric"] == "precision") & (table["k"] == table["k"].min())].set_index("method")


def sentence(table: pd.DataFrame) -> str:
    """Return how often the first landmark has the sample's class, beside random and the best baseline."""
    found = first_precision(table)
    ours, chance = found.loc["influence"], found.loc["random"]
    rivals = found.drop(index=["influence", "directional", "random"], errors="ignore")
    best = rivals["estimate"].idxmax()
    compared = "more often than" if ours["estimate"] > rivals["estimate"].max() else "no more often than"
    return (
        f"The landmark that attracts a sample most has its class in {percent(ours['estimate'])} of {int(ours['n']):,} "
        f"samples (at random: {percent(chance['estimate'])}), {compared} the first by {METHODS[str(best)]} "
        f"({percent(rivals['estimate'].max())})."
    )


def numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return the precision at the K that a person is shown."""
    kept = table[(table["method"] == "influence") & (table["metric"] == "precision") & table["k"].isin(DEPTHS)]
    return {f"precision at K = {k}": float(x) for k, x in zip(kept["k"], kept["estimate"], strict=True)}


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return the precision of the first landmark."""
    found = first_precision(table)["estimate"]
    return percent(found["influence"]), f"first landmark of the same class; random {percent(found['random'])}"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return good if the first landmark shares the class surely more often than a random one, else bad."""
    found = first_precision(table)
    return "good" if found.loc["influence", "low"] > found.loc["random", "high"] else "bad"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the precision at a few K, one row per method."""
    precision = table[table["metric"] == "precision"]
    depths = [k for k in DEPTHS if k in set(precision["k"])] or [int(precision["k"].min())]
    rows = []
    for method, part in precision.groupby("method", sort=False):
        of: Any = part.set_index("k")
        cells = [Estimate(of.loc[k, "estimate"], of.loc[k, "low"], of.loc[k, "high"], "share") for k in depths]
        rows.append((METHODS[str(method)], *cells))
    caption = "Share of a sample's first K landmarks that have its class, by what ranks them"
    return (View(caption, ("ranked by", *(f"K = {k}" for k in depths)), tuple(rows)),)


def _draw(table: pd.DataFrame) -> Figure:
    from krepes.figures import consistency_curves

    return consistency_curves(table)


CONSISTENCY = Audit(
    name="consistency",
    title="Label consistency: do landmarks share the class",
    asks="whether landmarks share the class of their sample",
    needs=("labels", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    headline=headline,
    numbers=numbers,
    caveat="Classes reward similarity: plain kernel or latent neighbours are often as good, and a high share does not "
    "make an explanation right.",
)
