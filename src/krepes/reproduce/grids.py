"""Grids of small encoders for label-free selection: one encoder per value, trained in seconds, kept on disk."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from krepes.audit.selection import CRITERIA, choose, encoder_criteria
from krepes.audit.spectrum import spectrum_of
from krepes.encoders import CollapsedEncoderError, FrozenEncoder
from krepes.errors import KrepesError
from krepes.model import Krepes
from krepes.objectives import BarlowTwins
from krepes.preset import presets
from krepes.reproduce.probes import probe_encoder, probe_input
from krepes.reproduce.recipes import recipe
from krepes.reproduce.trial import Experiment, Trial
from krepes.runs.settings import Settings

DATA = ("mnist", "adult", "cifar10")
GRIDS: dict[str, tuple[float, ...]] = {
    "lam": (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
    "lr": (1e-5, 1e-4, 1e-3, 1e-2),
    "epochs": (1, 3, 8, 16),
    "spread weight": (0, 5, 25),
}
"""What varies, on every data set. The last is the weight of VICReg's variance term, without which encoders collapse."""
COMMON: dict[str, Any] = {"label": "label", "projector": (128,), "batch_size": 128, "epochs": 8, "lr": 1e-3}
MLP: dict[str, Any] = {"encoder": "mlp", "encoder_options": {"width": 256, "depth": 1, "out": 64}}
CONV: dict[str, Any] = {
    "encoder": "krepes.reproduce.retraining:small_conv",
    "encoder_options": {"channels": 3, "out": 64},
}
BASES: dict[str, dict[str, Any]] = {
    "mnist": {**COMMON, **MLP, "max_rows": 6_000, "holdout": 0.5, "augment": "crops"},
    "adult": {**COMMON, **MLP, "max_rows": 6_000, "holdout": 0.5, "augment": "drop"},
    "cifar10": {
        **COMMON,
        **CONV,
        "max_rows": 5_000,
        "holdout": 0.6,
        "augment": "images",
        "augment_options": {"crop": 0.4, "flip": 0.5, "grey": 0.2},
    },
}
STRONG = "lam, convolutions"
"""Of MNIST alone, where the paper has its figure: lambda again, with encoders whose probes are above the input's."""
STEP = {"mnist": 10, "adult": 10, "cifar10": 30}
"""Of the last grid, in learning rates of the others: large, so that a collapse comes within a few epochs. Batch norm
holds the features of CIFAR-10's encoder apart, and ten rates were too few."""
M, H, ROWS = 200, 32, 2_000
"""Sizes of the kernel models: landmarks, dimensions and training rows, at most."""
PROBE, COST, CARELESS, FELL = (
    "probe accuracy",
    "pick costs (points)",
    "pick costs without the alarm",
    "picked a collapse",
)
RANDOM = "random value"


def base(data: str, seed: int) -> Settings:
    """Return the settings that all encoders of a data set share."""
    return Settings(data=data, seed=seed, **BASES[data])


def strong(seed: int) -> Settings:
    """Return the settings of `STRONG`: the recipe of MNIST's stored encoder, with a fifth of its rows."""
    return replace(recipe("mnist", loss="barlow_twins", scale="standard", seed=seed), max_rows=10_000, precision=None)


def values_of(grid: str) -> tuple[float, ...]:
    """Return what varies in a grid."""
    return GRIDS["lam" if grid == STRONG else grid]


def variant(settings: Settings, grid: str, value: float) -> Settings:
    """Return the settings of one value of a grid."""
    if grid in {"lam", STRONG}:
        return replace(settings, loss_options={"lam": value}, objective_options={"lam": value})
    if grid == "lr":
        return replace(settings, lr=value)
    if grid == "epochs":
        return replace(settings, epochs=int(value))
    weights: dict[str, Any] = {"weights": [25.0, float(value), 1.0]}
    lr = STEP[settings.data] * settings.lr
    return replace(settings, loss="vicreg", loss_options=weights, lr=lr, min_spread=0.0)  # nothing stops a collapse


def experiment(trial: Trial, settings: Settings) -> Experiment:
    """Return the encoder of some settings; the same settings of two grids share a file."""
    options = "x".join(f"{entry:g}" for value in settings.loss_options.values() for entry in _entries(value))
    parts = (settings.training_loss, options, f"{settings.lr:g}", settings.epochs, trial.seed)
    return trial.made(settings, "-".join(["select", settings.data, *(str(part) for part in parts if part != "")]))


def _entries(value: Any) -> list[float]:
    return [float(entry) for entry in value] if isinstance(value, list) else [float(value)]


def curve(trial: Trial, data: str, grid: str, preset: str | None = None) -> pd.DataFrame:
    """Return the criteria, the alarm and the probe of every value of a grid, one row each."""
    settings = strong(trial.seed) if grid == STRONG else base(data, trial.seed)
    return pd.DataFrame([
        {"value": f"{value:g}", **measured(trial, variant(settings, grid, value), preset)} for value in values_of(grid)
    ])


def input_accuracy(trial: Trial, settings: Settings) -> float:
    """Return what a probe reads off the input of an encoder, with the labels that probes on the encoder see."""
    made = experiment(trial, settings)
    return probe_input(made, made.stream.n)


def measured(trial: Trial, settings: Settings, preset: str | None = None) -> dict[str, Any]:
    """Return what is known of one encoder; of a training or a fit that failed, what is left is not a number."""
    row: dict[str, Any] = {**dict.fromkeys(CRITERIA, math.nan), "spread": math.nan, PROBE: math.nan}
    try:
        made = experiment(trial, settings)
    except CollapsedEncoderError as error:
        return {**row, "collapsed": str(error)}
    row |= encoder_criteria(FrozenEncoder(made.encoder), made.stream)
    row[PROBE] = probe_encoder(made, made.stream.n)
    try:
        row |= spectrum_of(kernel_model(trial, made, preset, **settings.objective_options))
    except KrepesError:  # a kernel of embeddings that are one point
        if not row["collapsed"]:
            raise
    return row


def barlow_twins(preset: str | None, **options: Any) -> Any:
    """Return the objective with its options: ours, or that of a preset."""
    return BarlowTwins(**options) if preset is None else presets[preset].objective("barlow_twins", **options)


def kernel_model(trial: Trial, made: Experiment, preset: str | None, **options: Any) -> Krepes:
    """Return the kernel model of an encoder, of the sizes that all grids share."""
    sizes = {"rows": ROWS, "m": min(M, trial.scale.m), "h": min(H, trial.scale.h)}
    return trial.fit(made, preset=preset, objective=barlow_twins(preset, **options), **sizes)


def costs(found: pd.DataFrame) -> list[tuple[str, str, float]]:
    """Return what the pick of each criterion costs in points of the probe, as ``(row, measure, value)``.

    Args:
        found: What `curve` returned.

    Returns:
        With and without the alarm, and whether a collapsed encoder was picked; beside them what a value costs that is
        drawn at random among the encoders that the alarm leaves.
    """
    accuracy = found.set_index("value")[PROBE]
    lost, gone = 100 * (accuracy.max() - accuracy), found.set_index("value")["collapsed"] != ""
    rows = [(COST, RANDOM, float(lost[~gone].mean()))]
    for criterion in CRITERIA:
        if criterion not in found:
            continue
        for name, seen in ((COST, found), (CARELESS, found.assign(collapsed=""))):
            pick = choose(seen, criterion).winners[criterion]
            rows.append((name, criterion, math.nan if pick is None else float(lost[pick])))
        careful = choose(found, criterion).winners[criterion]
        rows.append((FELL, criterion, math.nan if careful is None else float(gone[careful])))
    return rows
