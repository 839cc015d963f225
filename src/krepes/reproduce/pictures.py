"""Pictures with their landmarks (paper, figures on samples and on repulsion): what attracts, and what repels?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import Attribution, attribute
from krepes.audit import rankings
from krepes.encoders import FrozenEncoder
from krepes.figures import landmark_columns, landmark_strips, latent_map
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.claims import Claim, Judge, Reading, under_each
from krepes.reproduce.trial import SETTINGS, Experiment, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = ("cifar10", "mnist")
SAMPLES_KEYS, REPULSIVE_KEYS = ("setting", "data", "method"), ("setting", "data", "measure", "landmarks")
SHARE, DISTANCE = "share of the sample's class", "latent distance over mean"
TOP = 3
TWICE = 2.0
NEGATIVE, REPEL = "share of negative scores", 0.01
"""How many scores repel, and the share of them below which nothing is said to."""
SHOWN, REST = 6, "other classes"
"""Pictures with what repels them, and what a map calls the classes that it does not tell apart."""


def run_samples(trial: Trial) -> Findings:
    """Return how many of the top-3 landmarks share the class, for each ranking, with pictures of every class."""
    rows, pictures = [], {}
    for name, setting, made, model in _models(trial):
        of_landmark, of_test = made.landmark_labels(model), made.labels[1]
        for method, top in rankings(model, made.test, k=TOP, seed=trial.seed).items():
            rows.append((setting, name, method, float((of_landmark[top.numpy()] == of_test[:, None]).mean())))
        if setting == "ours":
            pictures[name] = _columns(made, model)
    return Findings(pd.DataFrame(rows, columns=[*SAMPLES_KEYS, "value"]), pictures)


def _models(trial: Trial) -> Iterator[tuple[str, str, Experiment, Krepes]]:
    """Yield a model of each data set under our settings and under the paper's."""
    for name in DATA:
        made = trial.experiment(name)
        for setting, preset in SETTINGS.items():
            yield name, setting, made, trial.fit(made, preset=preset)


def run_repulsive(trial: Trial) -> Findings:
    """Return what attractive and repulsive landmarks are, beside nearest and farthest neighbours."""
    rows, pictures = [], {}
    for name, setting, made, model in _models(trial):
        attribution = attribute(model, made.test)
        rows += [(setting, name, *row) for row in _forces(made, model, attribution)]
        if setting != "ours":
            continue
        pull, push = (attribution.top(TOP, by=by) for by in ("score", "repulsive"))
        indices = torch.cat([pull.indices, push.indices], 1)[:SHOWN]
        scores = torch.cat([pull.scores, push.scores], 1)[:SHOWN]
        pictures[name] = _strips(made, model, indices, scores)
        Z = model.transform(model.stream_.plain(model.landmarks_))
        names = _fewer(made.landmark_labels(model), made.labels[1][0])
        pictures[f"{name}-map"] = latent_map(
            model.transform(made.test[:1])[0], Z, attribution.scores[0], names=names, own=made.labels[1][0], rest=REST
        )
    return Findings(pd.DataFrame(rows, columns=[*REPULSIVE_KEYS, "value"]), pictures)


def _forces(made: Experiment, model: Krepes, attribution: Attribution) -> list[tuple[str, str, float]]:
    """Return the share of the sample's class and the latent distance of the landmarks that attract or repel."""
    of_landmark, of_test = made.landmark_labels(model), made.labels[1]
    same = torch.from_numpy(of_landmark[None] == of_test[:, None]).double()  # (t, m)
    encoder = FrozenEncoder(made.encoder)
    distance = torch.cdist(encoder.encode(made.test), encoder.encode(model.stream_.plain(model.landmarks_)))
    distance = distance / distance.mean(1, keepdim=True)
    push = attribution.top(TOP, by="repulsive")
    chosen = {
        "attractive": attribution.top(TOP).indices,
        "repulsive": push.indices,
        "nearest in latent space": distance.topk(TOP, largest=False).indices,
        "farthest in latent space": distance.topk(TOP).indices,
        "all": torch.arange(len(of_landmark)).expand(len(of_test), -1),
    }
    found = [(NEGATIVE, "all", float((attribution.scores < 0).double().mean()))]
    for which, indices in chosen.items():
        # What does not repel is not repulsive, even if nothing repels more.
        counted = push.scores < 0 if which == "repulsive" else torch.ones(indices.shape, dtype=torch.bool)
        found.append((SHARE, which, float(same.gather(1, indices)[counted].mean())))
        found.append((DISTANCE, which, float(distance.gather(1, indices)[counted].mean())))
    return found


def _columns(made: Experiment, model: Krepes) -> Figure:
    """Draw the first test picture of each class over its top landmarks."""
    names, first = np.unique(made.labels[1], return_index=True)
    samples = made.test[torch.from_numpy(first)]
    return landmark_columns(
        samples,
        model.stream_.plain(model.landmarks_),
        attribute(model, samples).top(TOP).indices,
        sample_names=names.tolist(),
        landmark_names=made.landmark_labels(model).tolist(),
    )


def _strips(made: Experiment, model: Krepes, indices: Tensor, scores: Tensor) -> Figure:
    """Draw the first test pictures beside the landmarks that attract and repel them most."""
    return landmark_strips(
        made.test[: len(indices)],
        model.stream_.plain(model.landmarks_),
        indices,
        scores,
        sample_names=made.labels[1][: len(indices)].tolist(),
        landmark_names=made.landmark_labels(model).tolist(),
        attracting=TOP,
    )


def _fewer(labels: np.ndarray, own: str, most: int = 6) -> list[str]:
    """Return the classes with all but the sample's own and the most frequent merged, so that colours suffice."""
    names, counts = np.unique(labels, return_counts=True)
    kept = {own, *names[np.argsort(-counts)][:most]}
    return [str(label) if label in kept else REST for label in labels]


def _repelling(table: pd.DataFrame, *, data: str, judge: Judge) -> tuple[bool, str]:
    """Return what a judge says where landmarks repel at all; where hardly any score is negative, that none does."""
    table = table[table["data"] == data]
    share = float(table[table["measure"] == NEGATIVE]["mean"].item())
    holds, said = judge(table)
    return holds and share >= REPEL, f"{said}; {100 * share:.2g} % of all scores are negative"


def _apart(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are of another class more often than all and than attractive ones."""
    share = table[table["measure"] == SHARE].set_index("landmarks")["mean"]
    said = ", ".join(f"{which} {1 - share[which]:.3f}" for which in ("repulsive", "all", "attractive"))
    return bool(share["repulsive"] < min(share["all"], share["attractive"])), f"of another class: {said}"


def _far(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are farther in latent space than the mean and than attractive ones."""
    distance = table[table["measure"] == DISTANCE].set_index("landmarks")["mean"]
    said = f"{distance['repulsive']:.2f} of the mean distance, attractive {distance['attractive']:.2f}"
    return bool(distance["repulsive"] > max(1.0, distance["attractive"])), said


def _beyond_farthest(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are of another class more often than the farthest ones."""
    share = table[table["measure"] == SHARE].set_index("landmarks")["mean"]
    ours, theirs = 1 - share["repulsive"], 1 - share["farthest in latent space"]
    return bool(ours > theirs), f"{ours:.3f} against {theirs:.3f}"


REPULSIVE_CLAIMS = tuple(
    Claim(
        f"landmarks that repel a test image are of other classes and far from it ({name})",
        under_each(
            SETTINGS,
            (
                Reading(words, partial(_repelling, data=name, judge=judge))
                for words, judge in (
                    ("other classes, more often than all and than attractive ones", _apart),
                    ("far in latent space", _far),
                    ("other classes, more often than the farthest", _beyond_farthest),
                )
            ),
        ),
        "The paper shows pictures and a map and no count. A negative score needs a kernel value below the mean of a "
        "centred kernel, or below zero of a plain one, where hardly any is; fewer than one in a hundred count as none. "
        "A ranking by distance alone finds such landmarks as well.",
    )
    for name in DATA
)


def _times_random(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether the top landmarks share the class at least twice as often as random ones."""
    by = table[table["data"] == data].set_index("method")["mean"]
    ratio = float(by["influence"] / by["random"])
    figures = f"{by['influence']:.3f} against {by['random']:.3f}, {ratio:.1f} times"
    return ratio >= TWICE, f"{figures} (latent cosine {by['latent cosine'] / by['random']:.1f} times)"


def _mostly(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether more than half of the top landmarks share the class."""
    by = table[table["data"] == data].set_index("method")["mean"]
    return bool(by["influence"] > 0.5), f"{by['influence']:.3f} (latent cosine {by['latent cosine']:.3f})"


def _beyond(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether the top landmarks share the class more often than latent neighbours."""
    by = table[table["data"] == data].set_index("method")["mean"]
    return bool(by["influence"] > by["latent cosine"]), f"{by['influence']:.3f} against {by['latent cosine']:.3f}"


SAMPLES_CLAIMS = tuple(
    Claim(
        f"the top-{TOP} landmarks of a test image belong to its class ({name})",
        under_each(
            SETTINGS,
            (
                Reading("at least twice as often as random ones", partial(_times_random, data=name)),
                Reading("consistently: more than half of them", partial(_mostly, data=name)),
                Reading("more often than latent neighbours", partial(_beyond, data=name)),
            ),
        ),
        "The paper shows a few pictures and no count. How often landmarks share the class depends on how well the "
        "encoder separates classes; what the method adds is what it has over latent cosine on the same encoder.",
    )
    for name in DATA
)
SAMPLES = Target(
    name="samples",
    what="Test images with their top-3 landmarks (figures on sample-specific influence)",
    data=DATA,
    keys=SAMPLES_KEYS,
    across="method",
    run=run_samples,
    note="the first test images of the split, not chosen. The paper shows pictures only; the table counts how many of "
    "the top-3 landmarks share the class, for each ranking. `setting` is ours or the paper's preset, at the same "
    "sizes; the pictures are by ours.",
    claims=SAMPLES_CLAIMS,
)
REPULSIVE = Target(
    name="repulsive",
    what="Attractive and repulsive landmarks (figure on semantic separation)",
    data=DATA,
    keys=REPULSIVE_KEYS,
    across="landmarks",
    run=run_repulsive,
    note="the first test images of the split, not chosen: three landmarks that attract most, three that repel most, "
    "and a map of the kernel model's latent space. A negative score is a kernel value below the mean: with a centred "
    "kernel about half of all landmarks repel. `setting` is ours or the paper's preset, at the same sizes; the "
    "pictures are by ours.",
    claims=REPULSIVE_CLAIMS,
)
