"""Planted outliers: one batch of eight is unlike all other rows. Does influence say what it does to the space?

    over-exposed    its pictures have a multiple of the contrast of the others
    noise           its pixels are drawn, each on its own
    blank           its pictures are empty

An outlier is about no sample in particular. The outcome is therefore what it does to all: the mean margin of the
reference samples, that is how well the space holds classes apart. `krepes.reproduce.planted` has batches that are
about one sample, and how effects are measured, predicted and judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from torch import Tensor, nn

from krepes.encoders.call import call
from krepes.influence.rungs import Embed
from krepes.proof.subject import mixed
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.planted import (
    AGAIN,
    BATCHES,
    CONFIRMED,
    FIRST,
    KEYS,
    SIZE,
    changes,
    found_by_warm,
    is_confirmed,
    judged,
    predicted,
    retrained,
    without,
)
from krepes.reproduce.retraining import REFERENCE, TRAIN, Study, open_study
from krepes.reproduce.trial import Trial

CONTRAST, NOISE = 3.0, 0.75
"""Of the over-exposed pictures, as a multiple; and the standard deviation of noise, where ordinary pixels have 0.38."""
OUTLIERS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "over-exposed": lambda X, _: CONTRAST * X,
    "noise": lambda X, draw: NOISE * torch.randn(X.shape, generator=draw),
    "blank": lambda X, _: torch.zeros_like(X),
}
"""From ordinary rows ``(b, d)`` and a generator to the outliers that stand in their place."""
DISTANCE = "distance from the mean"


def run(trial: Trial) -> Findings:
    """Return, for each kind of outlier and each score, whether it names, signs and sizes the batch."""
    ordinary = open_study("digits", trial.data_dir, trial.seed)
    own, rows = trial.seed % BATCHES, []
    for kind in OUTLIERS:
        study = planted(ordinary, own, kind)
        outcome = partial(mean_margin, study)
        effects, errors = changes(retrained(study, outcome, AGAIN))
        effect, error = effects[:, 0], errors[:, 0]
        confirmed = is_confirmed(effect, error, own)
        rows.append((kind, CONFIRMED, "retraining", float(confirmed)))
        rows.append((kind, "effect in standard errors", "retraining", float(effect[own] / error[own])))
        if not confirmed:
            continue
        encoder = study.record(0).encoder
        for score, found in predicted(study, encoder, outcome).items():
            rows += [(kind, name, score, value) for name, value in judged(found[:, 0], effect, own).items()]
        farthest = int(distances(study, encoder).argmax())
        rows.append((kind, FIRST, DISTANCE, float(farthest == own)))
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def planted(study: Study, own: int, kind: str) -> Study:
    """Return a study one batch of which holds outliers."""
    X, draw = study.X.clone(), torch.Generator().manual_seed(mixed(study.seed, 14))
    rows = slice(own * SIZE, (own + 1) * SIZE)
    X[rows] = OUTLIERS[kind](X[rows], draw)
    return replace(study, X=X)


def mean_margin(study: Study, embed: Embed) -> Tensor:
    """Return the mean margin of the reference samples, ``(1,)``."""
    twice = replace(study, y_test=torch.cat([study.y_reference, study.y_reference]))
    Z = embed(study.reference)
    return twice.measured(torch.cat([Z, Z]), Z)[study.first].mean()[None]


def distances(study: Study, encoder: nn.Module) -> Tensor:
    """Return how far each batch lies from the mean of all rows in the latent space, ``(batches,)``: no cause at all."""
    Z = call(encoder, study.X).detach().double()
    return -without((Z - Z.mean(0)).norm(dim=1, keepdim=True))[:, 0]


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the warm replay names, signs and sizes each kind of outlier, where retraining confirms it."""
    return [claim for kind in OUTLIERS for claim in found_by_warm(table[table["planted"] == kind], kind)]


PLANTED_OUTLIERS = Target(
    name="outliers",
    what="Is a batch of outliers found? (beyond the paper)",
    data=("digits",),
    keys=KEYS,
    across="score",
    run=run,
    note=f"Digits, Barlow Twins, {TRAIN} training rows of which {BATCHES} batches of {SIZE} are looked at; one of them "
    f"holds outliers: pictures of {CONTRAST:g} times the contrast, noise of a standard deviation of {NOISE:g} (pixels "
    f"have 0.38), or empty ones. The outcome is the mean margin of {REFERENCE:,} reference samples; effects are means "
    f"over {AGAIN} trainings with all rows and {AGAIN} without each batch. It is confirmed if its retrained effect "
    "is the largest of eight and above two standard errors; only confirmed seeds are counted. Sizes are as predicted, "
    "without calibration. A distance from the mean names a batch and says nothing of what it does. The outcome and the "
    "contrast were chosen on the first seed, among two outcomes and three contrasts (2, 3, 4); inverted ones, tried "
    "there too, moved nothing.",
    judge=judge,
    beyond=True,
)
