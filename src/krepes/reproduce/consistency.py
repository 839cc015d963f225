"""Label consistency (paper, table 2): do the top landmarks share the test sample's class, and do neighbours too?"""

from __future__ import annotations

import pandas as pd

from krepes.audit import label_consistency, rankings
from krepes.model import Krepes
from krepes.reproduce.base import Scale, Target
from krepes.reproduce.experiments import experiment

DATA = ("adult", "covertype", "mnist")
KEYS = ("data", "metric", "k", "method")


def run(scale: Scale, data_dir: str | None, seed: int) -> pd.DataFrame:
    """Return consistency at K = 1, 5, 10 of our ranking and of every baseline, on each data set."""
    tables = []
    for name in DATA:
        made = experiment(name, scale, data_dir, seed)
        model = Krepes(made.encoder, m=scale.m, h=scale.h, seed=seed).fit(made.stream)
        found = rankings(model, made.test, k=10, seed=seed)
        of_landmarks = made.labels[0][model.landmarks_.numpy()]
        table = label_consistency(found, of_landmarks, made.labels[1], depths=[1, 5, 10])
        tables.append(table.rename(columns={"estimate": "value"}).assign(data=name))
    return pd.concat(tables, ignore_index=True)[[*KEYS, "value"]]


def _paper() -> pd.DataFrame:
    """Return the paper's figures: ours and its latent nearest neighbours; MNIST is not in its table."""
    ours = {
        "precision": {"adult": (0.872, 0.854, 0.844), "covertype": (0.772, 0.702, 0.659)},
        "majority": {"adult": (0.872, 0.901, 0.921), "covertype": (0.772, 0.777, 0.827)},
        "hit_rate": {"adult": (0.872, 0.987, 0.997), "covertype": (0.772, 0.983, 0.990)},
    }
    base = {
        "precision": {"adult": (0.809, 0.798, 0.789), "covertype": (0.550, 0.495, 0.471)},
        "majority": {"adult": (0.809, 0.842, 0.872), "covertype": (0.550, 0.509, 0.567)},
        "hit_rate": {"adult": (0.809, 0.968, 0.990), "covertype": (0.550, 0.903, 0.948)},
    }
    rows = [
        (name, metric, k, method, value)
        for method, figures in (("influence", ours), ("latent cosine", base))
        for metric, by_data in figures.items()
        for name, values in by_data.items()
        for k, value in zip((1, 5, 10), values, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "paper"])


CONSISTENCY = Target(
    name="consistency",
    what="Label consistency against similarity baselines (table 2)",
    data=DATA,
    keys=KEYS,
    run=run,
    paper=_paper(),
    note="encoders trained here by Barlow Twins without labels; default kernel, damping of lowest loss, nothing tuned "
    "on labels. Label consistency rewards similarity, so it cannot be the only judge.",
)
