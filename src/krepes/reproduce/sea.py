"""Concept-conditioned influence (paper, figure "Sea"): do the top landmarks pull a picture towards the sea?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import Attribution, attribute
from krepes.concepts import ConceptVector, aggregate, aggregate_significance, concept_influence
from krepes.data import DATASETS, NamedImages
from krepes.figures import landmark_strips
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.trial import Experiment, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = ("measure", "class")
NEGATIVES = ("cat", "dog", "horse", "truck", "automobile")
SHOWN = ("ship", "airplane", "automobile", "ship", "bird")
TOP = 5


def run(trial: Trial) -> Findings:
    """Return how well the concept is told apart, and its pull by class, beside that of random concepts."""
    made = trial.experiment("cifar10")
    model = trial.fit(made)
    sea, others = _scenes(trial, made)
    concept = ConceptVector.fit(model, sea, others, name="sea")
    attribution = attribute(model, made.test)
    pull = aggregate(attribution, concept, k=TOP)
    significance = aggregate_significance(attribution, concept, k=TOP)
    rows = [
        ("held-out accuracy of the concept", "all", float(concept.accuracies.mean())),
        ("held-out accuracy of random concepts", "all", float(concept.random_accuracies.mean())),
        (
            "share of samples beyond random concepts (p < 0.05)",
            "all",
            float((significance.p_value < 0.05).double().mean()),
        ),
    ]
    spread = float(pull.std())
    for name in np.unique(made.labels[1]):
        of = torch.from_numpy(made.labels[1] == name)
        rows.append(("mean pull to the sea, in standard deviations", str(name), float(pull[of].mean()) / spread))
    frame = pd.DataFrame(rows, columns=[*KEYS, "value"])
    return Findings(frame, {"strips": _strips(made, model, attribution, concept, pull)})


def _scenes(trial: Trial, made: Experiment) -> tuple[Tensor, Tensor]:
    """Return pictures of the sea and 200 training pictures of classes without it."""
    scenes = DATASETS["scenes"](trial.data_dir)
    assert isinstance(scenes, NamedImages)
    sea = scenes.X[torch.from_numpy(scenes.labels == "sea")][:500]
    inland = torch.from_numpy(np.flatnonzero(np.isin(made.labels[0], NEGATIVES))[:200])
    return made.stream.augment.plain(sea), made.stream.plain(inland)


def _strips(made: Experiment, model: Krepes, attribution: Attribution, concept: ConceptVector, pull: Tensor) -> Figure:
    """Draw one test picture of each class shown with its top landmarks and their pull, in deviations of the sum Ψ."""
    chosen, used = [], set[int]()
    for name in SHOWN:
        place = next(i for i in np.flatnonzero(made.labels[1] == name) if i not in used)
        used.add(int(place))
        chosen.append(int(place))
    top = attribution.top(TOP).indices[chosen]
    toward = concept_influence(attribution, concept)[chosen].gather(1, top)
    unit = float(pull.std())
    landmarks = model.stream_.plain(model.landmarks_)
    return landmark_strips(
        made.test[chosen],
        landmarks,
        top,
        toward / unit,
        sample_names=[made.labels[1][i] for i in chosen],
        sample_notes=[f"Ψ = {float(pull[i]) / unit:+.2f}" for i in chosen],
        landmark_names=made.landmark_labels(model).tolist(),
    )


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether ships are pulled to the sea and automobiles are not."""
    pull = table[table["measure"].str.startswith("mean pull")].set_index("class")["mean"]
    accuracy = table.set_index("measure")["mean"]["held-out accuracy of the concept"]
    order = pull.sort_values(ascending=False)
    return [
        (f"the concept is told apart on held-out pictures: balanced accuracy {accuracy:.2f} > 0.8", accuracy > 0.8),
        (
            f"ships are pulled further to the sea ({pull['ship']:+.2f}) than automobiles ({pull['automobile']:+.2f}) "
            f"and trucks ({pull['truck']:+.2f}); order of classes: {', '.join(order.index)}",
            bool(pull["ship"] > max(pull["automobile"], pull["truck"])),
        ),
    ]


CONCEPT = Target(
    name="concept",
    what="Concept-conditioned influence: sea scenes on CIFAR-10 (figure on the concept Sea)",
    data=("cifar10", "scenes"),
    keys=KEYS,
    across="measure",
    run=run,
    note="photographs of the sea stand in for CIFAR-100's class, 500 of them, against 200 training pictures of "
    f"{', '.join(NEGATIVES)}, as in the paper; the top {TOP} landmarks by influence, their pulls "
    "(in standard deviations of Ψ, the sum, over the test pictures) written below. Scenes and CIFAR-10 differ in "
    "more than the sea (how they were taken and shrunk), so a direction between them is not the sea alone.",
    judge=judge,
)
