"""Deletion: how much confidence does a k-NN lose without the landmarks that explain its sample?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Verdict, View
from krepes.audit.deletion import confidence_drop_of
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, count, percent, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELETED, VOTERS = 10, 50


def measure(study: Study) -> Exhibit:
    """Return the loss of confidence for every ranking of landmarks."""
    assert study.label_of is not None and study.embeddings is not None
    delete = max(1, min(DELETED, study.m // 3))
    voters = max(1, min(VOTERS, study.m - delete))
    found = confidence_drop_of(
        study.rankings, *study.embeddings, study.of_landmarks(study.label_of[0]), k=voters, delete=delete
    )
    table = found.assign(deleted=delete, voters=voters)
    return Exhibit(table, {"Confidence lost by deletion": partial(_draw, table)})


def sentence(table: pd.DataFrame) -> str:
    """Return what deleting the attracting landmarks costs, beside random ones and the best baseline."""
    found: Any = table.set_index("method")
    ours, chance = found.loc["influence"], found.loc["random"]
    rivals = found.drop(index=["influence", "directional", "random"], errors="ignore")["estimate"]
    compared = "more than" if ours["estimate"] > rivals.max() else "no more than"
    return (
        f"Without the {count(int(ours['deleted']), 'landmark')} that attract a sample most, a {int(ours['voters'])}-NN "
        f"loses {percent(max(ours['estimate'], 0.0))} of confidence (random landmarks: "
        f"{percent(max(chance['estimate'], 0.0))}), {compared} without the first by "
        f"{METHODS.get(str(rivals.idxmax()), text(rivals.idxmax()))} ({percent(max(rivals.max(), 0.0))})."
    )


def verdict(table: pd.DataFrame) -> Verdict:
    """Return good if deleting ours costs surely more than deleting random landmarks, else bad."""
    found: Any = table.set_index("method")
    return "good" if found.loc["influence", "low"] > found.loc["random", "high"] else "bad"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the loss by ranking, largest first."""
    order = table.sort_values("estimate", ascending=False, kind="stable")
    rows = tuple(
        (METHODS[row["method"]], Estimate(row["estimate"], row["low"], row["high"], "gap"))
        for _, row in order.iterrows()
    )
    first = table.iloc[0]
    caption = (
        f"Confidence of a {int(first['voters'])}-NN ({percent(first['before'])} before) lost with "
        f"{count(int(first['deleted']), 'landmark')}, by what ranks them"
    )
    return (View(caption, ("ranked by", "confidence lost"), rows),)


def _draw(table: pd.DataFrame) -> Figure:
    from krepes.figures import deletion_bars

    return deletion_bars(table)


DELETION = Audit(
    name="deletion",
    title="Deletion: what if the explaining landmarks were not there",
    asks="what a classifier loses without the explaining landmarks",
    needs=("labels", "encoder", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    caveat="The k-NN is built on latent neighbours, so deleting those is the hardest rival. Only the vote is taken "
    "again, nothing is trained anew.",
)
