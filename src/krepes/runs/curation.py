"""Which training rows to remove, or to weigh less, so that an outcome goes where it is wanted: a proposal.

Rows are ranked by their counterfactual influence on the outcome, by the best rung that the seconds allow. What the set
would do is predicted twice, to first order and by taking it out of a surrogate, both beside random sets.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from krepes.errors import InvalidInputError
from krepes.influence import Influence, influence_of
from krepes.influence.caution import beside_a_proof
from krepes.influence.ladder import joined
from krepes.influence.lazy import LAZY
from krepes.influence.whatif import Array, LazyReplay, against_random
from krepes.model.removal import random_places
from krepes.runs.outcomes import Asked, Direction
from krepes.runs.retraining import how_to_replay, training_loss
from krepes.runs.workspace import Workspace

SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
MOST_ROWS = 4096
"""Rows of a step of a warm replay: rows are told apart best where each step sees all of them."""
SHOWN = ["change", "random mean", "random deviation", "random below"]


@dataclass(frozen=True)
class Proposal:
    """Rows to remove or to weigh less.

    Attributes:
        outcome: Its name.
        direction: Where it shall go.
        method: The rung that ranked the rows.
        places: Of the rows in the stream of the run, strongest first, ``(r,)``.
        rows: ``rank, id, score, weight``; the score is what the outcome would change by without the row alone.
        prediction: What the set would do, beside random sets of the same size.
        notes: What a reader must know.
    """

    outcome: str
    direction: Direction
    method: str
    places: Tensor = field(repr=False)
    rows: pd.DataFrame = field(repr=False)
    prediction: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the proposal in words."""
        first = self.prediction.iloc[0]
        verb = "lower" if self.direction == "lower" else "raise"
        return (
            f"{len(self.rows)} rows are proposed to {verb} {self.outcome}: together they are predicted to change it by "
            f"{first['change']:+.3g}; {first['random mean']:+.2g} ± {first['random deviation']:.2g} for random rows."
        )


def drop_count(drop: str, n: int) -> int:
    """Return how many of ``n`` rows a share such as ``5%`` or a number of rows means.

    Args:
        drop: As a person wrote it.
        n: Training rows.

    Returns:
        Rows, at least one.

    Raises:
        InvalidInputError: If it cannot be read, or means no row, or leaves fewer than two.
    """
    share = SHARE.fullmatch(drop.strip())
    if share is None and not drop.strip().isdigit():
        raise InvalidInputError(f"--drop {drop!r} is neither a share, such as 5%, nor a number of rows.")
    count = int(drop) if share is None else round(float(share[1]) / 100 * n)
    if not 1 <= count <= n - 2:
        raise InvalidInputError(
            f"--drop {drop}: that is {count} of {n} training rows; at least one must go and two must stay."
        )
    return count


def direction_of(asked: Asked, lower: bool | None) -> Direction:
    """Return where an outcome shall go: as told, else where a person wants it.

    Args:
        asked: The outcome.
        lower: As told by --lower or --raise, or ``None``.

    Returns:
        The direction.

    Raises:
        InvalidInputError: If neither says.
    """
    if lower is not None:
        return "lower" if lower else "raise"
    if asked.wanted is None:
        raise InvalidInputError(f"{asked.outcome.name}: say where it shall go, by --lower or --raise.")
    return asked.wanted


def propose(
    space: Workspace,
    asked: Asked,
    count: int,
    direction: Direction,
    *,
    weight: float = 0.0,
    method: str = "auto",
    members: int = 4,
    seconds: float = float("inf"),
    sets: int = 20,
    seed: int = 0,
    progress: bool = True,
) -> Proposal:
    """Propose rows.

    Args:
        space: The run.
        asked: The outcome.
        count: Rows, at most.
        direction: Where the outcome shall go.
        weight: That the rows keep, below one: none removes them.
        method: A rung of `krepes.influence.ladder`, or ``"auto"``.
        members: Trainings that a replay averages.
        seconds: What ``"auto"`` may take.
        sets: Random sets to compare the prediction with.
        seed: Of their draw.
        progress: Show bars.

    Returns:
        The proposal. Rows that are predicted to move the outcome the other way are never part of it.

    Raises:
        InvalidInputError: If the weight is no part of one, or no row is predicted to help.
    """
    if not 0 <= weight < 1:
        raise InvalidInputError(f"weight={weight} must be at least zero and less than one, which changes nothing.")
    found = _influence(space, asked, method, members, seconds, progress)
    change = -np.asarray(found.values[:, 0]) / len(found.values)
    gain = -change if direction == "lower" else change
    order = np.argsort(-gain, kind="stable")[:count]
    order = order[gain[order] > 0]
    if len(order) == 0:
        raise InvalidInputError(f"no training row is predicted to {direction} {asked.outcome.name} if it is removed.")
    notes = [] if len(order) == count else [f"only {len(order)} of {count} rows are predicted to help"]
    notes += [str(found.details.get("plan", f"influence by {found.method}"))]
    notes += [said] if (said := beside_a_proof(found.details)) else []
    table = pd.DataFrame({
        "rank": np.arange(1, len(order) + 1),
        "id": found.ids[order],
        "score": change[order],
        "weight": weight,
    })
    places = torch.from_numpy(order.astype(np.int64))
    others = random_places(len(change), len(order), sets, seed)
    prediction = _prediction(space, asked, found, places, others, weight, progress)
    return Proposal(asked.outcome.name, direction, found.method, places, table, prediction, tuple(notes))


def _influence(space: Workspace, asked: Asked, method: str, members: int, seconds: float, progress: bool) -> Influence:
    """Return the influence of every training row; a warm replay sees as many rows in a step as it can."""
    how, stream = how_to_replay(space, method, members=members, seconds=seconds)
    return influence_of(
        space.model,
        asked.outcome,
        method=method,
        how=replace(how, batch=min(stream.n, MOST_ROWS)),
        stream=stream,
        ids=space.train_ids,
        progress=progress,
    )


def _prediction(
    space: Workspace,
    asked: Asked,
    found: Influence,
    places: Tensor,
    others: list[Tensor],
    weight: float,
    progress: bool,
) -> pd.DataFrame:
    """Return what the set would do, to first order and by a surrogate without it, beside random sets."""
    change = -(1 - weight) * np.asarray(found.values[:, 0]) / len(found.values)
    sums = [np.array([change[rows.numpy()].sum()]) for rows in (places, *others)]
    lines = [{"by": f"{found.method}, first order", **_line(np.zeros(1), sums[0], np.stack(sums[1:]))}]
    exact = None if weight else _without(space, asked, found.method, places, others, progress)
    return pd.DataFrame(lines if exact is None else [*lines, exact])


def _without(
    space: Workspace, asked: Asked, method: str, places: Tensor, others: list[Tensor], progress: bool
) -> dict[str, object] | None:
    """Return what taking the rows out of a surrogate does, if rows can be taken out of one."""
    model, loss = space.model, training_loss(space)
    if method == "surrogate":
        if model.moments_ is None:
            return None
        whole = np.array([float(asked.outcome.value(model.solution_.theta))])
        models = model.without_each([places, *others], stream=space.stream)
        values = np.array([[float(asked.outcome.value(less.solution_.theta))] for less in models])
        return {"by": "kernel model without them", **_line(whole, values[0], values[1:])}
    if not isinstance(model.kernel, nn.Module) or not isinstance(loss, str) or loss not in LAZY:
        return None
    replay = LazyReplay.of(model.kernel, model.base_kernel_, model.points_, space.stream, loss, progress=progress)
    table = replay.what_if(places, joined([asked.outcome]), [asked.outcome.name], sets=len(others))
    return {"by": "linearised encoder without them", **{name: float(table[name].iloc[0]) for name in SHOWN}}


def _line(before: Array, after: Array, random: Array) -> dict[str, float]:
    found = against_random(before, after, random)
    return {name: float(found[name][0]) if math.isfinite(found[name][0]) else math.nan for name in SHOWN}
