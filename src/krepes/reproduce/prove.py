"""The intervention test on one study: retrain on random halves, and see which scores of rows predicted it.

Everything is kept in a folder as soon as it is finished: a killed test goes on where it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from krepes.reproduce.lds import lds, lds_interval, noise_ceiling, slope
from krepes.reproduce.retraining import Retrained, Study, retrain
from krepes.reproduce.scores import (
    RUNGS,
    Scored,
    score_gradients,
    score_lazy,
    score_replay,
    score_rest,
    score_surrogate,
    score_warm,
)
from krepes.storage.tensorfile import read_tensors, write_tensors

CEILING = "noise ceiling"
TRUSTED, SIGN = 0.6, 0.3
"""Parts of the noise ceiling from which rows, or only their sign, are worth trusting."""


@dataclass(frozen=True)
class Proof:
    """What the test found.

    Attributes:
        table: Columns ``outcome, score, kind, value, low, high, slope, seconds``: the LDS of every score with its
            bootstrap interval, and its calibration; the line of the noise ceiling has only a value.
        halves: How many halves were retrained.
        scores: By name of the method.
        retrained: What came of the halves.
    """

    table: pd.DataFrame
    halves: int
    scores: dict[str, Scored] = field(repr=False)
    retrained: Retrained = field(repr=False)

    def verdict(self, outcome: str) -> str:
        """Return what to trust about an outcome, in words.

        Args:
            outcome: ``"margin"`` or ``"pair similarity"``.

        Returns:
            One sentence with its figures.
        """
        of = self.table[self.table["outcome"] == outcome].set_index("score")
        ceiling, rungs = float(of["value"][CEILING]), of[of["kind"] == "rung"]
        best = str(rungs["value"].idxmax())
        value, low = float(rungs["value"][best]), float(rungs["low"][best])
        rival = of[of["kind"] == "baseline"]["value"].abs()
        return in_words(best, value, low, ceiling, str(rival.idxmax()), float(rival.max()), self.halves)


def in_words(best: str, value: float, low: float, ceiling: float, rival: str, other: float, halves: int) -> str:
    """Return the verdict on a rung's LDS, with the lower bound of its interval and its strongest rival."""
    part = value / ceiling if ceiling > 0 else 0.0
    figures = (
        f"{best} reaches {value:.2f} of a possible {ceiling:.2f} over {halves} halves, at least {low:.2f}; the best "
        f"baseline, {rival}, {other:.2f}"
    )
    if low <= 0 or part < SIGN:
        return f"do not trust row-level causes here: {figures}."
    if part < TRUSTED or value <= other:
        return f"trust only the sign of row-level causes here: {figures}."
    return f"trust row-level causes here: {figures}."


def prove(
    study: Study,
    folder: str | Path,
    *,
    halves: int = 60,
    retrainings: int = 2,
    members: int = 1,
    seconds: float = float("inf"),
    methods: Sequence[str] = RUNGS,
) -> Proof:
    """Retrain on random halves and judge every rung and every baseline.

    Args:
        study: Data, recipe and loss.
        folder: Keeps scores and halves; a later call goes on from there.
        halves: How many.
        retrainings: Encoders for each half.
        members: Trainings whose replays are averaged.
        seconds: Of retraining in this call; what is finished by then is judged.
        methods: Rungs to judge beside the baselines.

    Returns:
        The proof.
    """
    folder = Path(folder)
    scores = all_scores(study, folder / "scores", members=members, methods=methods)
    retrained = retrain(study, halves, retrainings, path=folder / "halves.safetensors", seconds=seconds)
    return Proof(judge_scores(scores, retrained), len(retrained.member), scores, retrained)


def all_scores(study: Study, folder: Path, *, members: int, methods: Sequence[str]) -> dict[str, Scored]:
    """Return the scores of every method, from the folder where they were made before."""
    makers: dict[str, Callable[[], Scored | dict[str, Scored]]] = {
        "surrogate": lambda: score_surrogate(study),
        "gradients": lambda: score_gradients(study, projector=False),
        "projected gradients": lambda: score_gradients(study, projector=True),
        "rest": lambda: score_rest(study),
    }
    makers |= {"lazy": lambda: score_lazy(study)} if "lazy" in methods else {}
    makers |= {"warm": lambda: score_warm(study)} if "warm" in methods else {}
    if "replay" in methods:
        makers |= {f"replay {k}": partial(score_replay, study, k) for k in range(members)}
    found: dict[str, Scored] = {}
    for name, make in makers.items():
        found |= _kept(folder / re.sub(r"\W+", "-", name), name, make)
    return averaged(found)


def averaged(found: dict[str, Scored]) -> dict[str, Scored]:
    """Return the scores with the members of a replay as one method, their mean."""
    parts = [scored for name, scored in found.items() if name.startswith("replay")]
    rest = {name: scored for name, scored in found.items() if not name.startswith("replay")}
    if not parts:
        return rest
    mean = {name: torch.stack([part.scores[name] for part in parts]).mean(0) for name in parts[0].scores}
    seconds = sum(part.seconds for part in parts)
    return rest | {"replay": Scored(mean, seconds, {**parts[0].details, "members": len(parts)})}


def judge_scores(scores: dict[str, Scored], retrained: Retrained) -> pd.DataFrame:
    """Return the LDS of every method with interval and calibration; TRAK with the ridge best on every second half."""
    lines: list[tuple[Any, ...]] = []
    for outcome, values in retrained.outcomes.items():
        for name, scored in _swept(scores, retrained, outcome).items():
            if outcome not in scored.scores:
                continue
            of = scored.scores[outcome]
            found = lds_interval(of, retrained.member, values)
            calibration = slope(of, retrained.member, values) if name in RUNGS else float("nan")
            kind = "rung" if name in RUNGS else "baseline"
            lines.append((outcome, name, kind, found.value, found.low, found.high, calibration, scored.seconds))
        lines.append((outcome, CEILING, "ceiling", noise_ceiling(values), *[float("nan")] * 4))
    return pd.DataFrame(lines, columns=["outcome", "score", "kind", "value", "low", "high", "slope", "seconds"])


def _swept(scores: dict[str, Scored], retrained: Retrained, outcome: str) -> dict[str, Scored]:
    """Return the methods with one ridge of each TRAK, chosen by its LDS over every second half."""
    found = {name: scored for name, scored in scores.items() if ", ridge " not in name}
    swept: dict[str, list[str]] = {}
    for name in scores:
        if ", ridge " in name:
            swept.setdefault(name.split(", ridge ")[0], []).append(name)
    member, values = retrained.member[::2], retrained.outcomes[outcome][::2]
    for name, ridges in swept.items():
        found[name] = scores[max(ridges, key=lambda one: lds(scores[one].scores[outcome], member, values))]
    return found


def _kept(folder: Path, name: str, make: Callable[[], Scored | dict[str, Scored]]) -> dict[str, Scored]:
    """Return what ``make`` gives, read from ``folder`` if it is there and whole."""
    whole = folder / "whole.safetensors"
    if not whole.exists():
        made = make()
        parts = {name: made} if isinstance(made, Scored) else made
        for number, (key, scored) in enumerate(parts.items()):
            details = {"name": key, "seconds": scored.seconds, "details": scored.details}
            write_tensors(folder / f"{number:02d}.safetensors", scored.scores, details)
        write_tensors(whole, {}, {"parts": len(parts)})
    found: dict[str, Scored] = {}
    for path in sorted(folder.glob("[0-9][0-9].safetensors")):
        tensors, told = read_tensors(path)
        found[told["name"]] = Scored(tensors, told["seconds"], told["details"])
    return found
