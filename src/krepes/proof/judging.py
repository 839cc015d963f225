"""The intervention test on one subject: retrain on random halves, and see which scores of rows predicted it.

Everything is kept in a folder as soon as it is finished: a killed test goes on where it was.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from krepes.errors import KrepesError
from krepes.influence.members import mean_of_members
from krepes.proof.halves import Retrained, retrain
from krepes.proof.kept import is_kept, kept
from krepes.proof.lds import lds, lds_interval, noise_ceiling, slope
from krepes.proof.result import CEILING, Proof
from krepes.proof.scores import (
    RUNGS,
    Scored,
    predicted,
    score_gradients,
    score_lazy,
    score_replay,
    score_rest,
    score_surrogate,
    score_warm,
)
from krepes.proof.subject import Subject, mixed
from krepes.storage.tensorfile import read_tensors, write_tensors

logger = logging.getLogger("krepes")
LATER = "the time was over before its turn came; call again, and the test goes on"


def prove(
    subject: Subject,
    folder: str | Path,
    *,
    halves: int = 60,
    retrainings: int = 2,
    members: int = 1,
    seconds: float = float("inf"),
    methods: Sequence[str] = RUNGS,
    progress: bool = False,
) -> Proof:
    """Retrain on random halves and judge every rung and every baseline.

    Args:
        subject: Data, recipe and loss.
        folder: Keeps scores and halves; a later call goes on from there.
        halves: How many.
        retrainings: Encoders for each half, at least two.
        members: Trainings whose replays are averaged.
        seconds: No half is begun after so many, counted from the call, and no scores that would not be done after
            half of them; what is finished by then is judged, and a later call goes on with the rest.
        methods: Rungs to judge beside the baselines.
        progress: Show bars with the time left.

    Returns:
        The proof.
    """
    folder, began = Path(folder), time.monotonic()
    costs = _costs(subject, folder, methods, members) if progress or seconds < float("inf") else {}
    if progress:
        tqdm.write(_forecast(costs, seconds), file=sys.stderr)
    scores, left_out = all_scores(
        subject,
        folder / "scores",
        members=members,
        methods=methods,
        seconds=seconds / 2 - (time.monotonic() - began),
        costs=costs or {},
        progress=progress,
    )
    training = _training(subject, folder / "training.safetensors")
    path, left = folder / "halves.safetensors", seconds - (time.monotonic() - began)
    retrained = retrain(subject, halves, retrainings, path=path, seconds=left, progress=progress)
    return Proof(judge_scores(scores, retrained), len(retrained.member), training, left_out, scores, retrained)


def _costs(subject: Subject, folder: Path, methods: Sequence[str], members: int) -> dict[str, float] | None:
    """Return the seconds that the longest scores will take, those that are done left out; nothing if nobody knows."""
    places = {name: folder / "scores" / ("replay-0" if name == "replay" else name) for name in methods}
    left = [name for name, place in places.items() if not is_kept(place, subject)]
    try:
        return predicted(subject, left, members)
    except KrepesError as error:
        logger.warning("what the scores will take is not known: %s", error)
        return None


def _forecast(costs: Mapping[str, float] | None, seconds: float) -> str:
    """Return in words what the longest scores will take, and when halves are begun."""
    if costs is None:
        return f"scores first, then halves, until {seconds:.0f} s are over"
    told = ", ".join(f"{name} about {cost:.2g} s" for name, cost in costs.items()) or "no replay is left to do"
    if sum(costs.values()) <= seconds / 2:
        return f"scores first: {told}; then halves, until {seconds:.0f} s are over"
    return (
        f"scores first: {told}; those that do not fit into half of {seconds:.0f} s are left for a call with more time"
    )


def _training(subject: Subject, path: Path) -> float:
    """Return the seconds of one training on all rows, measured once."""
    if not path.exists():
        began = time.monotonic()
        subject.train(torch.arange(subject.n), mixed(subject.seed, 8))
        write_tensors(path, {}, {"seconds": time.monotonic() - began})
    return float(read_tensors(path)[1]["seconds"])


def all_scores(
    subject: Subject,
    folder: Path,
    *,
    members: int,
    methods: Sequence[str],
    seconds: float = float("inf"),
    costs: Mapping[str, float] | None = None,
    progress: bool = False,
) -> tuple[dict[str, Scored], dict[str, str]]:
    """Return the scores of every method, from the folder where they were made before, and why some have none.

    A method whose ``costs``, in seconds, do not fit into what is left of ``seconds`` is not begun.
    """
    makers: dict[str, Callable[[], Scored | dict[str, Scored]]] = {
        "rest": lambda: score_rest(subject),
        "surrogate": lambda: score_surrogate(subject),
    }
    makers |= {"lazy": lambda: score_lazy(subject)} if "lazy" in methods else {}
    makers |= {"warm": lambda: score_warm(subject)} if "warm" in methods else {}
    makers |= {
        "gradients": lambda: score_gradients(subject, projector=False),
        "projected gradients": lambda: score_gradients(subject, projector=True),
    }
    if "replay" in methods:
        makers |= {f"replay {k}": partial(score_replay, subject, k) for k in range(members)}
    found: dict[str, Scored] = {}
    left_out: dict[str, str] = {}
    began = time.monotonic()
    with tqdm(makers.items(), desc="scores", disable=not progress) as bar:
        for name, make in bar:
            bar.set_postfix_str(name)
            place = folder / re.sub(r"\W+", "-", name)
            late = None if name == "rest" else _too_late(name, members, costs, seconds - (time.monotonic() - began))
            if late is not None and not is_kept(place, subject):
                left_out[name] = late
                continue
            try:
                found |= kept(place, name, subject, make)
            except (KrepesError, RuntimeError) as error:  # torch's too: one method must not end the test of the others
                left_out[name] = str(error)
                logger.warning("%s has no scores here: %s", name, error)
    return averaged(found), left_out


def _too_late(name: str, members: int, costs: Mapping[str, float] | None, left: float) -> str | None:
    """Return why a method is not begun with ``left`` seconds left, or ``None`` if it is; a replay goes by members."""
    cost = (costs or {}).get(name.split()[0], 0.0) / (members if name.startswith("replay") else 1)
    if left <= 0:
        return LATER
    return (
        f"it would take about {cost:.2g} s, and {left:.2g} s are left for scores; give it more time"
        if cost > left
        else None
    )


def averaged(found: dict[str, Scored]) -> dict[str, Scored]:
    """Return the scores with the members of a replay as one method, their mean."""
    parts = [scored for name, scored in found.items() if name.startswith("replay")]
    rest = {name: scored for name, scored in found.items() if not name.startswith("replay")}
    if not parts:
        return rest
    means = {name: mean_of_members([part.scores[name] for part in parts]) for name in parts[0].scores}
    mean = {name: scores for name, (scores, _) in means.items()}
    shares = {name: left for name, (_, left) in means.items()}
    seconds = sum(part.seconds for part in parts)
    return rest | {"replay": Scored(mean, seconds, {**parts[0].details, "members": len(parts), "shares": shares})}


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
