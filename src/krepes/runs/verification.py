"""A proposal put to the test: the encoder is trained again without the proposed rows, and without random ones.

Three arms with the same seeds: all rows, all but the proposed, all but as many random ones (another set for each seed).
Differences are taken seed by seed, and their 95 % intervals are Student's over seeds. What a training gave is kept
beside the run as soon as it is finished: a test that was cut goes on, and another proposal finds the arm of all rows.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from tqdm import tqdm

from krepes._checks import require_range
from krepes.encoders.frozen import FrozenEncoder
from krepes.influence import Outcome
from krepes.influence.ladder import encoder_of
from krepes.influence.whatif import Array
from krepes.model.removal import places_of, random_places
from krepes.runs.encoder import output_of
from krepes.runs.outcomes import Asked
from krepes.runs.retraining import require_recipe, retrained
from krepes.runs.store import read_manifest
from krepes.runs.workspace import Workspace
from krepes.storage.files import publish

logger = logging.getLogger("krepes")
ALL, PROPOSED, RANDOM = "all rows", "without the proposed rows", "without random rows"
ASKED, FRESH = "samples that were asked about", "other held-out samples"


@dataclass(frozen=True)
class Verification:
    """What retraining did.

    Attributes:
        values: ``samples, arm, seed, value``: the outcome of every training.
        summary: ``samples, difference, mean, low, high``: differences of arms over seeds, with 95 % intervals.
        times: How many times as far the proposed rows moved the outcome as random rows did. ``of the mean``: the mean
            change over seeds by the first, over that by the others, in size. ``of a single one``: over the mean size of
            the change by a single random removal, most of which is often that no two trainings end alike.
    """

    values: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame = field(repr=False)
    times: pd.DataFrame

    def sentence(self) -> str:
        """Return what happened in words."""
        parts = []
        for samples, mean, single in self.times.itertuples(index=False):
            part = self.summary[self.summary["samples"] == samples].set_index("difference")
            beyond, moved, others = (
                part.loc[_minus(*pair)] for pair in ((PROPOSED, RANDOM), (PROPOSED, ALL), (RANDOM, ALL))
            )
            # A ratio to what may be nothing says nothing: it can be of any size.
            compared = f"random rows {_told_of(others)}"
            if _clear(others):
                compared = f"{mean:.1f} times as far as random rows on average"
            verdict = "which is more than chance" if _clear(beyond) else "which may be chance"
            parts.append(
                f"on {samples} it moved by {moved['mean']:+.3g} on average, {compared}, and {single:.1f} times as far "
                f"as a single random removal; beyond random rows by {_told_of(beyond)}, {verdict}"
            )
        seeds = self.values["seed"].nunique()
        return f"Trained again without the proposed rows, {seeds} seeds: " + "; ".join(parts) + "."


def _clear(row: Any) -> bool:
    """Return whether an interval leaves out zero."""
    return bool(row["low"] > 0 or row["high"] < 0)


def _told_of(row: Any) -> str:
    return f"{row['mean']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"


def verify_removal(
    space: Workspace, asked: Asked, rows: Tensor, *, seeds: int = 5, seed: int = 0, progress: bool = True
) -> Verification:
    """Train the encoder of a run again, with and without some rows, and measure an outcome of each.

    Args:
        space: A run that says how its encoder was trained.
        asked: The outcome; where it can be, it is also measured on held-out samples that it was not asked on.
        rows: Places ``(r,)`` of the proposed rows in the stream of the run.
        seeds: Trainings of each arm, two or more.
        seed: Of the random sets.
        progress: Show a bar over the trainings.

    Returns:
        What happened.
    """
    require_range(seeds, "seeds", low=2)
    recipe = require_recipe(space)
    n = len(space.train)
    gone = places_of(rows, n)
    chosen = {
        ALL: [torch.zeros(0, dtype=torch.int64)] * seeds,
        PROPOSED: [gone] * seeds,
        RANDOM: random_places(n, len(gone), seeds, seed),
    }
    outcomes = {ASKED: asked.outcome} | ({} if asked.fresh is None else {FRESH: asked.fresh})
    lines = []
    kept = Kept(verified_folder(space.folder), _told(space, list(outcomes.values())))
    with tqdm(total=len(chosen) * seeds, desc="retraining", unit=" trainings", disable=not progress) as bar:
        for number in range(seeds):
            for arm, sets in chosen.items():
                stay = torch.from_numpy(np.setdiff1d(np.arange(n), sets[number].numpy()))
                training = recipe.settings.seed + 1 + number
                path = kept.path(stay, training)
                found = kept.read(path, len(outcomes))
                if found is None:
                    encoder = FrozenEncoder(retrained(space, stay, training), output=output_of(recipe.settings))
                    found = _measured(encoder, list(outcomes.values()))
                    kept.write(path, found)
                lines += [(samples, arm, number, value) for samples, value in zip(outcomes, found, strict=True)]
                bar.update()
    return summed_up(pd.DataFrame(lines, columns=["samples", "arm", "seed", "value"]))


def verified_folder(run: str | Path) -> Path:
    """Return where the trainings of verifications lie: beside the run."""
    folder = Path(run).resolve()
    return folder.with_name(f"{folder.name}.verified")


@dataclass(frozen=True)
class Kept:
    """Outcomes of finished trainings, a small file each.

    Attributes:
        folder: Of the files.
        about: What was measured, and of which run.
    """

    folder: Path
    about: list[str]

    def path(self, stay: Tensor, seed: int) -> Path:
        """Return the file of a training on the rows ``stay`` ``(b,)`` by a seed."""
        told = [*self.about, hashlib.sha256(stay.numpy().tobytes()).hexdigest(), seed]
        return self.folder / f"{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]}.json"

    def read(self, path: Path, count: int) -> list[float] | None:
        """Return the ``count`` outcomes that a file holds, or nothing if there is none or it is damaged."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["values"]
            values = [float(value) for value in found]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be used (%s): its encoder is trained again", path, error)
            return None
        return values if len(values) == count else None

    def write(self, path: Path, values: list[float]) -> None:
        """Write the outcomes of a training."""
        path.parent.mkdir(parents=True, exist_ok=True)
        publish(path, lambda temporary: temporary.write_text(json.dumps({"values": values}) + "\n"))


def summed_up(values: pd.DataFrame) -> Verification:
    """Return differences of arms with intervals, from the outcome of every training.

    Args:
        values: ``samples, arm, seed, value``.

    Returns:
        The verification.
    """
    lines, times = [], []
    for samples, part in values.groupby("samples", sort=False):
        arms = part.pivot(index="seed", columns="arm", values="value")
        for one, other in ((PROPOSED, ALL), (RANDOM, ALL), (PROPOSED, RANDOM)):
            lines.append((samples, _minus(one, other), *_student((arms[one] - arms[other]).to_numpy())))
        moved, random = (arms[PROPOSED] - arms[ALL]).to_numpy(), (arms[RANDOM] - arms[ALL]).to_numpy()
        times.append((samples, _ratio(moved.mean(), random.mean()), _ratio(moved.mean(), np.abs(random).mean())))
    summary = pd.DataFrame(lines, columns=["samples", "difference", "mean", "low", "high"])
    return Verification(values, summary, pd.DataFrame(times, columns=["samples", "of the mean", "of a single one"]))


def _told(space: Workspace, outcomes: Sequence[Outcome]) -> list[str]:
    """Return what tells one measurement from another: the run, and each outcome by name and of the run's encoder."""
    encoder = FrozenEncoder(encoder_of(space.model), output=output_of(space.settings))
    of_run = _measured(encoder, outcomes)
    names = [f"{outcome.name} {value:.6g}" for outcome, value in zip(outcomes, of_run, strict=True)]
    return [str(read_manifest(space.folder)["run_sha256"]), *names]


def _measured(encoder: FrozenEncoder, outcomes: Sequence[Outcome]) -> list[float]:
    return [float(outcome.of(encoder.encode)) for outcome in outcomes]


def _student(values: Array) -> tuple[float, float, float]:
    """Return the mean of some values and its 95 % interval."""
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def _ratio(one: float, other: float) -> float:
    return abs(float(one)) / abs(float(other)) if other else float("inf")


def _minus(one: str, other: str) -> str:
    return f"{one} - {other}"
