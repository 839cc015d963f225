"""Label-free selection (paper, figure on MNIST): spectral entropy against a 10 % probe over Barlow Twins' lambda."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from krepes.audit import select_by_spectrum
from krepes.model import Krepes
from krepes.objectives import BarlowTwins
from krepes.reproduce.base import Scale, Target
from krepes.reproduce.experiments import Experiment, experiment

GRID = (1e-5, 1e-4, 1e-3, 5e-3, 2e-2, 1e-1, 1.0)
KEYS = ("lam", "measure")


def run(scale: Scale, data_dir: str | None, seed: int) -> pd.DataFrame:
    """Return entropy, RankMe and the probe's accuracy for each value of the grid."""
    made = experiment("mnist", scale, data_dir, seed)
    models = {
        lam: Krepes(made.encoder, objective=BarlowTwins(lam=lam), m=scale.m, h=scale.h, seed=seed).fit(made.stream)
        for lam in GRID
    }
    curve = select_by_spectrum(models).curve.set_index("value")
    rows = [(lam, str(name), float(value)) for lam, line in curve.iterrows() for name, value in line.items()]
    rows += [(lam, "probe accuracy, 10 % of labels", probe(model, made)) for lam, model in models.items()]
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def probe(model: Krepes, made: Experiment) -> float:
    """Return the test accuracy of a linear probe on a tenth of the training rows."""
    few = np.arange(len(made.train)) % 10 == 0
    classifier = LogisticRegression(max_iter=500)
    classifier.fit(model.transform(made.train[few]).numpy(), made.labels[0][few])
    return float(classifier.score(model.transform(made.test).numpy(), made.labels[1]))


SPECTRAL = Target(
    name="spectral",
    what="Spectral entropy against a 10 % probe over Barlow Twins' lambda (label-free selection)",
    data=("mnist",),
    keys=KEYS,
    run=run,
    paper=pd.DataFrame(columns=[*KEYS, "paper"]),
    note="one encoder, the objective of the kernel model varies; the paper shows a curve without figures.",
)
