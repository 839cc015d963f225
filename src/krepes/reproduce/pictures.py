"""Pictures with their landmarks (paper, figures on samples and on repulsion): what attracts, and what repels?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import Attribution, attribute
from krepes.audit import rankings
from krepes.encoders import FrozenEncoder
from krepes.figures import landmark_columns, landmark_strips, latent_map
from krepes.kernels.memory import features_kept
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.pictures_claims import (
    CONFUSABLE,
    DATA,
    DISTANCE,
    INPUT,
    NEGATIVE,
    REPULSIVE_CLAIMS,
    SAMPLES_CLAIMS,
    SHARE,
    TOP,
    judge_samples,
)
from krepes.reproduce.trial import FEATURES, SETTINGS, Experiment, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES_KEYS, REPULSIVE_KEYS = ("setting", "data", "method"), ("setting", "data", "measure", "landmarks")
SHOWN, REST = 6, "other classes"
"""Pictures with what repels them, and what a map calls the classes that it does not tell apart."""


@features_kept(FEATURES)
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


@features_kept(FEATURES)
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
    """Return the share of the sample's class and the distances of the landmarks that attract or repel."""
    of_landmark, of_test = made.landmark_labels(model), made.labels[1]
    same = torch.from_numpy(of_landmark[None] == of_test[:, None]).double()  # (t, m)
    encoder = FrozenEncoder(made.encoder)
    X, Z = made.test, model.stream_.plain(model.landmarks_)
    distance = _relative(encoder.encode(X), encoder.encode(Z))
    of_input = _relative(X.flatten(1).double(), Z.flatten(1).double())
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
        found.append((INPUT, which, float(of_input.gather(1, indices)[counted].mean())))
    return found


def _relative(X: Tensor, Z: Tensor) -> Tensor:
    """Return distances ``(t, m)`` of samples ``(t, d)`` and landmarks ``(m, d)``, over their mean for each sample."""
    distance = torch.cdist(X, Z)
    return distance / distance.mean(1, keepdim=True)


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


SAMPLES = Target(
    name="samples",
    what="Test images with their top-3 landmarks (figures on sample-specific influence)",
    data=DATA,
    keys=SAMPLES_KEYS,
    across="method",
    run=run_samples,
    note="the first test image of each class, not chosen. The paper shows pictures only; the table counts how many of "
    "the top-3 landmarks share the class, for each ranking. `setting` is ours or the paper's preset, at the same "
    "sizes; the pictures are by ours.",
    judge=judge_samples,
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
    claims=(*REPULSIVE_CLAIMS, *CONFUSABLE),
)
