"""The encoders that all reproductions explain: which were trained, how, and how much a linear probe reads off them."""

from __future__ import annotations

import pandas as pd

from krepes.audit.probing import probe
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.probes import probe_encoder
from krepes.reproduce.trial import Experiment, Trial

USES = {
    "adult": ("barlow_twins", "simclr", "vicreg"),
    "bank": ("barlow_twins",),
    "covertype": ("barlow_twins", "simclr", "vicreg"),
    "higgs": ("barlow_twins", "simclr", "vicreg"),
    "mnist": ("barlow_twins", "simclr", "vicreg"),
    "cifar10": ("barlow_twins", "simclr", "vicreg"),
    "fairface": ("barlow_twins",),
}
WANTED = {"mnist": 0.96, "adult": 0.845, "covertype": 0.78}
KEYS = ("data", "loss", "measure")


def run(trial: Trial) -> Findings:
    """Train every encoder and return the accuracy of a probe on it, beside one on the raw input."""
    rows = []
    for data, losses in USES.items():
        for loss in losses:
            made = trial.experiment(data, loss)
            rows.append((data, loss, "probe accuracy", probe_encoder(made, labelled=made.stream.n)))
        rows.append((data, "none", "probe accuracy on the input", _input(made)))
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def _input(made: Experiment) -> float:
    X = made.train(20_000).flatten(1).numpy()
    return probe(X, made.labels[0][: len(X)], made.test.flatten(1).numpy(), made.labels[1])


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the Barlow Twins encoders reach what was asked of them."""
    value = table[table["loss"] == "barlow_twins"].set_index("data")["mean"]
    return [(f"{name}: {value[name]:.3f} >= {wanted}", bool(value[name] >= wanted)) for name, wanted in WANTED.items()]


ENCODERS = Target(
    name="encoders",
    what="The encoders, and what a linear probe reads off them",
    data=tuple(USES),
    keys=KEYS,
    across="loss",
    run=run,
    note="each trained by `krepes pretrain` without labels; its settings lie beside its weights in `encoders/` and go "
    "back in by `krepes pretrain --config`. A probe sees the labels of all training rows, one on the "
    "input at most 20,000. A first run gave every probe at most 20,000, and Covertype's stayed below what was asked.",
    judge=judge,
)
