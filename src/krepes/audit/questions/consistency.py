"""Label consistency: do the landmarks that attract a sample share its class, and do baselines do better?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.consistency import MIXED, PREDICTED, TRUE, consistency_readings, label_consistency
from krepes.audit.probes import PROBE_ROWS, predicted_labels
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, percent, points
from krepes.views.source import evenly_spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = (1, 5, 10)
"""The K by which two models are compared; a person is shown all."""
READ = {
    TRUE: "true classes",
    MIXED: "predicted class of the sample and true ones of the landmarks",
    PREDICTED: "predicted classes of the sample and of the landmarks",
}
"""Whose classes are compared, in words; predictions are those of a probe on the encoder."""
ASKED = {
    "precision": ("Precision@K", "share of the first K landmarks that have the sample's class"),
    "majority": ("Majority@K", "samples whose class is the most frequent among their first K landmarks"),
    "majority_of_prediction": (
        "Majority@K",
        "samples whose first K landmarks are mostly of the class of --predictions",
    ),
    "hit_rate": ("HitRate@K", "samples that share their class with at least one of their first K landmarks"),
}
"""What each metric counts, in the order of the views."""


def measure(study: Study) -> Exhibit:
    """Return Precision, Majority and Hit Rate at every K, for every ranking and every reading of "class"."""
    assert study.label_of is not None
    train, test = study.label_of
    truth = study.of_landmarks(train)
    table = label_consistency(study.rankings, truth, test, predictions=study.predictions_of)
    table.insert(0, "labels", TRUE)
    probed = _probed(study, train)
    if probed is not None:
        readings = consistency_readings(study.rankings, (truth, probed[1]), (test, probed[0]))
        table = pd.concat([table, readings[readings["labels"] != TRUE]], ignore_index=True)
    return Exhibit(table, {"Precision, majority and hit rate over K": partial(_draw, table)})


def _probed(study: Study, train: list[str]) -> list[list[Any]] | None:
    """Return what a probe on the encoder predicts for test samples and landmarks; it sees the label of neither."""
    if study.encoder is None or study.data is None or study.embeddings is None:
        return None
    landmarks = set(study.model.landmarks_.tolist())
    rows = [row for row in evenly_spaced(study.n, PROBE_ROWS + len(landmarks)).tolist() if row not in landmarks]
    labels = [train[row] for row in rows]
    if len(set(labels)) < 2:
        return None
    E = study.encoder.encode(study.train(torch.tensor(rows)))
    return predicted_labels(E, labels, *study.embeddings)


def of_reading(table: pd.DataFrame, reading: str = TRUE) -> pd.DataFrame:
    """Return the rows of one reading of "class"."""
    return table[table["labels"] == reading]


def first_precision(table: pd.DataFrame, reading: str = TRUE) -> Any:
    """Return the precision of the first landmark, one row per method."""
    chosen = of_reading(table, reading)
    return chosen[(chosen["metric"] == "precision") & (chosen["k"] == chosen["k"].min())].set_index("method")


def sentence(table: pd.DataFrame) -> str:
    """Return how often the first landmark has the sample's class, beside random and the best baseline."""
    found = first_precision(table)
    ours, chance = found.loc["influence"], found.loc["random"]
    rivals = found.drop(index=["influence", "directional", "random"], errors="ignore")
    best = rivals["estimate"].idxmax()
    compared = "more often than" if ours["estimate"] > rivals["estimate"].max() else "no more often than"
    predicted = ""
    if (table["labels"] == PREDICTED).any():
        share = first_precision(table, PREDICTED)["estimate"]
        predicted = f" A probe on the encoder predicts the same class for both in {percent(share['influence'])}."
    return (
        f"The landmark that attracts a sample most has its class in {percent(ours['estimate'])} of {int(ours['n']):,} "
        f"samples (at random: {percent(chance['estimate'])}), {compared} the first by {METHODS[str(best)]} "
        f"({percent(rivals['estimate'].max())}).{predicted}"
    )


def numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return the precision at the K by which models are compared."""
    ours = of_reading(table)
    kept = ours[(ours["method"] == "influence") & (ours["metric"] == "precision") & ours["k"].isin(COMPARED)]
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
    """Return every metric at every K, one row per method: of true classes, and folded those of predictions."""
    return tuple(
        _view(part, f"{name}, {words}: {asked}", folded=reading != TRUE)
        for reading, words in READ.items()
        for metric, (name, asked) in ASKED.items()
        if len(part := of_reading(table[table["metric"] == metric], reading))
    )


def _view(part: pd.DataFrame, caption: str, *, folded: bool) -> View:
    """Return one metric of one reading; intervals, all nearly alike, are said once by the widest."""
    widest = float(pd.concat([part["high"] - part["estimate"], part["estimate"] - part["low"]]).max())
    depths = sorted(set(part["k"]))
    rows = []
    for method, found in part.groupby("method", sort=False):
        of: Any = found.set_index("k")["estimate"]
        rows.append((METHODS[str(method)], *(Estimate(float(of[k]), unit="share") for k in depths)))
    said = f"{caption}; 95 % intervals: at most {points(widest)} to either side"
    return View(said, ("ranked by", *(f"K = {k}" for k in depths)), tuple(rows), folded)


def _draw(table: pd.DataFrame) -> Figure:
    from krepes.figures import consistency_curves

    return consistency_curves(table)


def plain(table: pd.DataFrame) -> str:
    """Return how often the first landmark has the sample's class, that of the best baseline, and a random one."""
    found = first_precision(table)["estimate"]
    best = found.drop(index=["influence", "directional", "random"], errors="ignore")
    rival = f"the first by {METHODS[str(best.idxmax())]} in {percent(best.max())}, " if len(best) else ""
    unsure = "" if verdict(table) == "good" else ", from which it is not surely apart"
    return (
        f"The landmark that attracts a sample most has its class in {percent(found['influence'])} of cases; {rival}a "
        f"random one in {percent(found['random'])}{unsure}."
    )


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether landmarks share the class more often than random ones."""
    row = first_precision(table).loc["influence"]
    estimate = Estimate(float(row["estimate"]), float(row["low"]), float(row["high"]), "share")
    return (Finding("the first landmark has the sample's class", estimate, verdict(table) == "good"),)


CONSISTENCY = Audit(
    name="consistency",
    title="Label consistency: do landmarks share the class",
    asks="whether landmarks share the class of their sample",
    needs=("labels", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    findings=findings,
    headline=headline,
    numbers=numbers,
    caveat="Classes reward similarity: plain kernel or latent neighbours are often as good, and a high share does not "
    "make an explanation right.",
)
