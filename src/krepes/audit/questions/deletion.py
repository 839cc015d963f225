"""Deletion: how much confidence does a k-NN lose without the landmarks that explain its sample?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.deletions import ANY, PIECE, deletion_drops, deletion_table
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, count, number, percent, points, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELETED, VOTERS = 10, 50
VOTES = {"uniform": "equal votes", "weighted": "votes weighted by cosine"}


def measure(study: Study) -> Exhibit:
    """Return the loss of confidence for every ranking of landmarks, under every reading of vote and deletion."""
    assert study.label_of is not None and study.embeddings is not None and study.orders is not None
    delete = max(1, min(DELETED, study.m // 3))
    voters = max(1, min(VOTERS, study.m - delete))
    truth = study.of_landmarks(study.label_of[0])
    E_test, E_landmarks = study.embeddings
    generator = torch.Generator().manual_seed(study.seed)
    found = [
        deletion_drops(ranked, E_test[part], E_landmarks, truth, k=voters, delete=delete, generator=generator)
        for part, ranked in study.orders.pieces(PIECE)
    ]
    table = deletion_table(found).assign(voters=voters, asked=delete)
    return Exhibit(table, {"Confidence lost by deletion": partial(_draw, plain_reading(table))})


def plain_reading(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of equal votes and landmarks of any class."""
    return table[(table["vote"] == "uniform") & (table["among"] == ANY)]


def sentence(table: pd.DataFrame) -> str:
    """Return what deleting the attracting landmarks costs, beside random ones and the best baseline."""
    found: Any = plain_reading(table).set_index("method")
    ours, chance = found.loc["influence"], found.loc["random"]
    rivals = found.drop(index=["influence", "directional", "random"], errors="ignore")["estimate"]
    compared = "more than" if ours["estimate"] > rivals.max() else "no more than"
    return (
        f"Without the {count(int(ours['asked']), 'landmark')} that attract a sample most, a {int(ours['voters'])}-NN "
        f"loses {percent(max(ours['estimate'], 0.0))} of confidence (random landmarks: "
        f"{percent(max(chance['estimate'], 0.0))}, random ones of the same classes: "
        f"{percent(max(ours['matched'], 0.0))}), {compared} without the first by "
        f"{METHODS.get(str(rivals.idxmax()), text(rivals.idxmax()))} ({percent(max(rivals.max(), 0.0))})."
    )


def verdict(table: pd.DataFrame) -> Verdict:
    """Return good if deleting ours costs surely more than deleting random landmarks, else bad."""
    found: Any = plain_reading(table).set_index("method")
    return "good" if found.loc["influence", "low"] > found.loc["random", "high"] else "bad"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the loss by ranking, largest first, one view for each way to vote and to delete."""
    return tuple(
        _view(part, folded=(vote, among) != ("uniform", ANY))
        for (vote, among), part in table.groupby(["vote", "among"], sort=False)
    )


def _view(part: pd.DataFrame, *, folded: bool) -> View:
    order = part.sort_values("estimate", ascending=False, kind="stable")
    rows = tuple(
        (
            METHODS[row["method"]],
            Estimate(row["estimate"], row["low"], row["high"], "gap"),
            Estimate(row["times_random"]),
            Estimate(row["times_matched"]),
        )
        for _, row in order.iterrows()
    )
    first = part.iloc[0]
    caption = (
        f"Confidence of a {int(first['voters'])}-NN ({percent(first['before'])} before) lost with "
        f"{count(int(first['asked']), 'landmark')}, by what ranks them: {VOTES[first['vote']]}, landmarks of "
        f"{'any' if first['among'] == ANY else 'the predicted'} class{_fewer(part)}"
    )
    heads = ("ranked by", "confidence lost", "times random", "times random of the same classes")
    return View(caption, heads, rows, folded)


def _fewer(part: pd.DataFrame) -> str:
    """Return how many landmarks were deleted on average, where a class has fewer than were asked for."""
    mean, asked = float(part["deleted"].min()), int(part["asked"].iloc[0])
    return "" if mean > asked - 1e-9 else f" (some classes have fewer than {asked}: {number(mean)} on average)"


def _draw(table: pd.DataFrame) -> Figure:
    from krepes.figures import deletion_bars

    return deletion_bars(table)


def plain(table: pd.DataFrame) -> str:
    """Return what deleting the attracting landmarks costs, beside random ones."""
    found: Any = plain_reading(table).set_index("method")
    ours, chance = (max(float(found.loc[name, "estimate"]), 0.0) for name in ("influence", "random"))
    return (
        f"Without the {count(int(found.loc['influence', 'asked']), 'landmark')} that attract a sample most a "
        f"neighbour vote is {points(ours)} less sure of it; without random ones {points(chance)}."
    )


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether deleting the attracting landmarks costs more than deleting random ones."""
    row: Any = plain_reading(table).set_index("method").loc["influence"]
    estimate = Estimate(float(row["estimate"]), float(row["low"]), float(row["high"]), "gap")
    return (Finding("deleting the attracting landmarks costs confidence", estimate, verdict(table) == "good"),)


DELETION = Audit(
    name="deletion",
    title="Deletion: what if the explaining landmarks were not there",
    asks="what a classifier loses without the explaining landmarks",
    needs=("labels", "encoder", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    findings=findings,
    caveat="The k-NN is built on latent neighbours, so deleting those is the hardest rival. Only the vote is taken "
    "again, nothing is trained anew. Where random ones of the same classes cost as much, only the class was found.",
)
