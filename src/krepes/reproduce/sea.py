"""Concept-conditioned influence (paper, figure "Sea"): do the top landmarks pull a picture towards the sea?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import Attribution, attribute
from krepes.concepts import ConceptVector, aggregate, aggregate_significance, concept_influence
from krepes.data import DATASETS, NamedImages
from krepes.figures import landmark_strips
from krepes.kernels.memory import features_kept
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.claims import Claim, Reading, seeds_of, under_each
from krepes.reproduce.trial import FEATURES, READ, Experiment, Trial, side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = ("setting", "measure", "class")
PULL, TOLD = "mean pull to the sea, in standard deviations", "held-out accuracy of the concept"
SCENES, OTHERS = "held-out accuracy, sea against other scenes", "held-out accuracy, other scenes in place of the sea"
BEYOND, OF_LANDMARKS = "share of samples beyond random concepts (p < 0.05)", "mean pull of landmarks of the class"
CHANCE = 0.05
NEGATIVES = ("cat", "dog", "horse", "truck", "automobile")
SHOWN = ("ship", "airplane", "automobile", "ship", "bird")
TOP = 5
ROAD = ("automobile", "truck")


@features_kept(FEATURES)
def run(trial: Trial) -> Findings:
    """Return how well the concept is told apart, and its pull by class, beside that of random concepts."""
    made = trial.experiment("cifar10")
    pictures: dict[str, Figure] = {}
    table = side_by_side(partial(_pulls, trial, made, _scenes(trial, made), pictures))
    return Findings(table[[*KEYS, "value"]], pictures)


def _pulls(
    trial: Trial,
    made: Experiment,
    scenes: tuple[Tensor, Tensor, Tensor],
    pictures: dict[str, Figure],
    preset: str | None,
) -> pd.DataFrame:
    """Return what one setting finds; strips by ours go to ``pictures``."""
    model = trial.fit(made, preset=preset)
    sea, elsewhere, inland = scenes
    concept = ConceptVector.fit(model, sea, inland, name="sea")
    attribution = attribute(model, made.test)
    pull = aggregate(attribution, concept, k=TOP)
    beyond = aggregate_significance(attribution, concept, k=TOP).p_value < CHANCE
    rows = [
        (TOLD, "all", float(concept.accuracies.mean())),
        ("held-out accuracy of random concepts", "all", float(concept.random_accuracies.mean())),
        (SCENES, "all", float(ConceptVector.fit(model, sea, elsewhere, name="sea").accuracies.mean())),
        (OTHERS, "all", float(ConceptVector.fit(model, elsewhere, inland, name="scenes").accuracies.mean())),
        (BEYOND, "all", float(beyond.double().mean())),
    ]
    spread = float(pull.std())
    by_landmark = _landmarks(made, model, attribution, concept)
    for name in np.unique(made.labels[1]):
        of = torch.from_numpy(made.labels[1] == name)
        rows.append((PULL, str(name), float(pull[of].mean()) / spread))
        rows.append((BEYOND, str(name), float(beyond[of].double().mean())))
        rows.append((OF_LANDMARKS, str(name), by_landmark.get(str(name), float("nan")) / spread))
    if preset is None:
        pictures["strips"] = _strips(made, model, attribution, concept, pull)
    return pd.DataFrame(rows, columns=[*KEYS[1:], "value"])


def _landmarks(made: Experiment, model: Krepes, attribution: Attribution, concept: ConceptVector) -> dict[str, float]:
    """Return how far landmarks of each class pull towards the concept, on average, where they are among the top."""
    top = attribution.top(TOP).indices
    toward = concept_influence(attribution, concept).gather(1, top).flatten().numpy()
    classes = made.landmark_labels(model)[top.flatten().numpy()]
    return {str(name): float(toward[classes == name].mean()) for name in np.unique(classes)}


def _scenes(trial: Trial, made: Experiment) -> tuple[Tensor, Tensor, Tensor]:
    """Return pictures of the sea, of other scenes, and 200 training pictures of classes without it."""
    scenes = DATASETS["scenes"](trial.data_dir)
    assert isinstance(scenes, NamedImages)
    at_sea = torch.from_numpy(scenes.labels == "sea")
    sea, elsewhere = (made.stream.augment.plain(scenes.X[which][:500]) for which in (at_sea, ~at_sea))
    inland = torch.from_numpy(np.flatnonzero(np.isin(made.labels[0], NEGATIVES))[:200])
    return sea, elsewhere, made.stream.plain(inland)


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
    """Return whether the concept is found on held-out pictures, and whether it is the sea or the kind of picture."""
    value = table[table["setting"] == "ours"].set_index(["measure", "class"])["mean"]
    told, scenes, others = (float(value[name, "all"]) for name in (TOLD, SCENES, OTHERS))
    return [
        (f"the sea is told apart from pictures of CIFAR-10: balanced accuracy {told:.2f}, 0.8 wanted", told > 0.8),
        (f"it is told apart from other scenes: {scenes:.2f}, 0.8 wanted", scenes > 0.8),
        (f"better than scenes without the sea are from CIFAR-10: {told:.2f} against {others:.2f}", told > others),
    ]


def _by_class(table: pd.DataFrame, measure: str = PULL) -> tuple[Any, str]:
    """Return the pull of each class with its spread over seeds, strongest first, and all of them in words."""
    pulls: Any = table[table["measure"] == measure].set_index("class")[["mean", "spread"]].astype(float)
    pulls = pulls.fillna({"spread": 0.0}).sort_values("mean", ascending=False)
    return pulls, ", ".join(f"{name} {value:+.2f}" for name, value in pulls["mean"].items())


def _away(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether ships are pulled towards the sea, and automobiles and trucks away from it."""
    pulls, order = _by_class(table)
    return bool(pulls["mean"]["ship"] > 0 > pulls["mean"][list(ROAD)].max()), order


def _ships(table: pd.DataFrame, *, against: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether ships are pulled further to the sea than other classes, by more than the spread over seeds."""
    pulls, order = _by_class(table)
    rivals = pulls.loc[list(against)] if against else pulls.drop(index="ship")
    lead = pulls["mean"]["ship"] - rivals["mean"]
    return bool((lead > (pulls["spread"]["ship"] ** 2 + rivals["spread"] ** 2) ** 0.5).all()), order


def _vehicles(table: pd.DataFrame, *, signs: bool) -> tuple[bool, str]:
    """Return whether landmarks of airplanes pull to the sea and of automobiles away, or at least in this order."""
    rows = table[table["measure"] == OF_LANDMARKS]
    found = dict(zip(rows["class"], seeds_of(rows), strict=True))
    pairs = list(zip(found["airplane"], found["automobile"], strict=True))
    so = [plane > 0 > car if signs else plane > car for plane, car in pairs]
    return all(so), f"{_by_class(table, OF_LANDMARKS)[1]}; in {sum(so)} of {len(so)} seeds"


def _beyond(table: pd.DataFrame, *, of: str) -> tuple[bool, str]:
    """Return whether more samples than chance gives are pulled further than random concepts pull them."""
    share = float(table.set_index(["measure", "class"])["mean"][BEYOND, of])
    return share > CHANCE, f"{100 * share:.1f} % of the samples, {100 * CHANCE:g} % by chance"


CLAIMS = (
    Claim(
        "the top five landmarks often align strongly with the concept that the picture shows",
        under_each(
            READ,
            (
                Reading("ships, beyond random concepts", partial(_beyond, of="ship")),
                Reading("all pictures, beyond random concepts", partial(_beyond, of="all")),
            ),
        ),
        "A pull has a size along any direction; it says something of the sea if directions between random halves of "
        "the same pictures rarely pull as far.",
    ),
    Claim(
        "among the top five, landmarks of automobiles pull away from the sea and those of airplanes towards it",
        under_each(
            READ,
            (
                Reading("by sign", partial(_vehicles, signs=True)),
                Reading("airplanes above automobiles", partial(_vehicles, signs=False)),
            ),
        ),
        "The paper reads it off single pictures, airplanes where sea or sky is seen; here it is the mean over all "
        "landmarks of a class that are among the top five of any test picture, and it has to be so in every seed.",
    ),
    Claim(
        "the top landmarks pull ships towards the sea and road vehicles away from it",
        under_each(
            READ,
            (
                Reading("ships towards it, automobiles and trucks away", _away),
                Reading("ships above automobiles and trucks", partial(_ships, against=ROAD)),
                Reading("ships above every other class", partial(_ships, against=())),
            ),
        ),
        "The paper shows single pictures; here it is the mean over all test pictures of a class, in deviations of the "
        "pull over all of them. A class is above another if it leads by more than both vary over seeds.",
    ),
)
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
    "more than the sea (how they were taken and shrunk), so a direction between them is not the sea alone: the sea "
    "against other scenes, and other scenes in its place, stand beside. "
    "`setting` is ours or the paper's preset, at the same sizes; the strips are by ours.",
    judge=judge,
    claims=CLAIMS,
)
