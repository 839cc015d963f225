r"""The rungs that replay: what each needs, what it costs, and the derivative of outcomes in row weights that it finds.

    lazy     the encoder linearised at itself, from moments       any n, loss of second moments
    warm     T gradient steps from the checkpoint, and back to it any encoder and weighted loss
    replay   the recorded training itself, members averaged       the recording

Removing row i changes an outcome by ``-dw_i`` to first order. An outcome is written once, as a function of whatever
embeds samples, and each rung embeds them in its own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from krepes import _autodiff
from krepes.batches import Batch
from krepes.encoders.call import call
from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import SGD, State, Steps
from krepes.encoders.losses import Loss
from krepes.encoders.pretrain import chosen_loss, make_twins
from krepes.encoders.recording import Recording
from krepes.encoders.weighted_norm import WeightedBatchNorm
from krepes.errors import InvalidInputError
from krepes.influence.keeping import KeptRows
from krepes.influence.lazy import (
    LAZY,
    LazyRowSteps,
    LazySteps,
    falling_eta,
    lazy_batches,
    lazy_loss,
)
from krepes.influence.linearised import Linearised, coefficients
from krepes.influence.members import mean_of_members
from krepes.influence.reverse import Measure, differentiate
from krepes.influence.rewind import foretold, member_seed, returning_rate, rewinds_of, rewound_steps
from krepes.influence.scoring import forms_of, score_all
from krepes.influence.stepsize import near_step_size
from krepes.influence.tables import open_to_others
from krepes.influence.warm import warm_steps
from krepes.processes import current
from krepes.views import ViewStream

Embed = Callable[[Batch], Tensor]
Outcomes = Callable[[Embed], Tensor]
"""From a way to embed samples, ``(b, ...) -> (b, d)``, to all outcomes, ``(O,)``."""


@dataclass(frozen=True)
class Found:
    """What a rung found.

    Attributes:
        dw: Derivative of every outcome in every row's weight, ``(n, O)``, float64; removal changes it by ``-dw``.
        values: The outcomes at the end of the replay, ``(O,)``.
        seconds: What it took.
        details: Step size, steps, losses: plain values.
    """

    dw: Tensor = field(repr=False)
    values: Tensor = field(repr=False)
    seconds: float
    details: dict[str, Any]


def warm(
    encoder: nn.Module,
    stream: ViewStream,
    loss: str | Loss,
    outcomes: Outcomes,
    *,
    steps: int = 60,
    batch: int | None = None,
    lr: float | None = None,
    rewinds: int | None = None,
    seed: int = 0,
    memory_budget: int = 2**32,
    path: Any = None,
    progress: bool = True,
) -> Found:
    """Differentiate gradient steps that start at the frozen encoder, and steps that lead back to it.

    The derivatives add up: what rows do to the steps from rewound weights, averaged over ``rewinds``, and to those that
    start at the encoder.

    Args:
        encoder: Frozen.
        stream: The training data.
        loss: The loss of its training, on the embedding.
        outcomes: What is asked about.
        steps: How many.
        batch: Samples of each; by default all, up to 512.
        lr: Step size; by default the largest that keeps the loss falling and the embeddings near (`near_step_size`).
        rewinds: Replays from rewound weights, left out where they do not lead back, or where their derivative does not
            foretell what they do without a few rows; by default those of `rewinds_of`.
        seed: Of order, views and shuffles.
        memory_budget: Bytes for states and cotangents.
        path: File from which a killed reverse pass goes on.
        progress: Show a bar.

    Returns:
        The derivatives.
    """
    began = time.monotonic()
    replayed = warm_steps(encoder, stream, loss, lr=lr or 1.0, steps=steps, batch=batch, seed=seed)
    details: dict[str, Any] = {"steps": steps}
    if lr is None:
        size = near_step_size(replayed, replayed.twins.encoder)
        lr, details = size.lr, details | {"losses": list(size.losses), "moved": size.moved, "refused": size.refused}
        replayed = replace(replayed, rule=SGD(lr))
    measure = of_encoder(outcomes, replayed.twins.encoder)
    found = differentiate(
        replayed, measure, memory_budget=memory_budget, path=path, what="warm replay", progress=progress
    )
    dw = found.dw.double()
    count = rewinds_of(loss) if rewinds is None else rewinds
    again, told = _rewound(replayed, encoder, stream, loss, batch=batch, rewinds=count, seed=seed)
    parts = []
    for member, one in enumerate(again):
        place = None if path is None else f"{path}.rewound{member}"
        of = of_encoder(outcomes, one.twins.encoder)
        what = f"rewound replay {member + 1} of {len(again)}"
        part = differentiate(one, of, memory_budget=memory_budget, path=place, what=what, progress=progress)
        told["foretold"].append(foretold(one, of, part, member_seed(seed, member)))
        parts += [part.dw.double()] if told["foretold"][-1] > 0 else []
    if parts:
        dw += torch.stack(parts).mean(0)
    told |= {"rewinds": len(parts)} if told else {}
    return Found(dw, found.values.double(), time.monotonic() - began, details | {"lr": lr, **told})


def _rewound(
    steps: Steps,
    encoder: nn.Module,
    stream: ViewStream,
    loss: str | Loss,
    *,
    batch: int | None,
    rewinds: int,
    seed: int,
) -> tuple[list[Steps], dict[str, Any]]:
    """Return the rewound replays that go with a warm one, none if they do not lead back, and what to tell of them."""
    if rewinds == 0:
        return [], {}
    seeds = [member_seed(seed, member) for member in range(rewinds)]
    found = returning_rate(steps, seeds[0])
    told: dict[str, Any] = {"rewinds": 0, "rate": found.rate, "alike": found.alike, "foretold": []}
    if found.rate is None:
        return [], told
    warmed = [warm_steps(encoder, stream, loss, lr=1.0, steps=steps.T, batch=batch, seed=own) for own in seeds]
    return [rewound_steps(one, found.rate, own) for one, own in zip(warmed, seeds, strict=True)], told


def replay(
    encoder: nn.Module,
    stream: ViewStream,
    recordings: Sequence[Recording],
    outcomes: Outcomes,
    *,
    loss: Loss | None = None,
    memory_budget: int = 2**32,
    path: Any = None,
    progress: bool = True,
) -> Found:
    """Differentiate recorded trainings from their first step to the last, and average over them (`mean_of_members`).

    Args:
        encoder: An encoder of the same layers; its weights do not matter.
        stream: The training data, with the views of the training.
        recordings: One for each member.
        outcomes: What is asked about.
        loss: The loss, if it is one's own.
        memory_budget: Bytes for states and cotangents.
        path: File from which a killed reverse pass goes on.
        progress: Show a bar.

    Returns:
        The derivatives.

    Raises:
        InvalidInputError: If there is no recording.
    """
    if not recordings:
        raise InvalidInputError("a replay needs at least one recording. Pretrain with record=True.")
    began, parts = time.monotonic(), []
    for number, recording in enumerate(recordings):
        steps = recorded_steps(recording, encoder, stream, loss)
        file = None if path is None else f"{path}-{number}"
        what, of = f"replay {number + 1} of {len(recordings)}", of_encoder(outcomes, encoder)
        parts.append(differentiate(steps, of, memory_budget=memory_budget, path=file, what=what, progress=progress))
    dw, shares = mean_of_members([part.dw.double() for part in parts])
    values = torch.stack([part.values.double() for part in parts]).mean(0)
    details = {"members": len(parts), "shares": shares, "steps": steps.T}
    return Found(dw, values, time.monotonic() - began, details)


def recorded_steps(recording: Recording, encoder: nn.Module, stream: ViewStream, loss: Loss | None = None) -> Steps:
    """Return the steps of a recorded training of an encoder of the same layers."""
    recipe = recording.recipe
    stream, compare = stream.with_batch_size(recipe.batch_size), loss or chosen_loss(recipe.loss, recipe.loss_options)
    twins = make_twins(duplicate(encoder), stream, compare, tuple(recipe.projector), recipe.momentum, recipe.output)
    return recording.steps(twins, stream)


def lazy(
    linearised: Linearised,
    stream: ViewStream,
    loss: str | Loss,
    outcomes: Outcomes,
    *,
    steps: int = 20,
    draws: int = 8,
    eta: float | None = None,
    memory_budget: int = 2**32,
    progress: bool = True,
) -> Found:
    """Differentiate gradient steps of the linearised encoder in the moments of its rows.

    Args:
        linearised: The encoder with its landmarks.
        stream: The training data, any n.
        loss: A name, or a function ``(Z_a, Z_b, w)``; those of `LAZY` need one pass, others batches of rows.
        outcomes: What is asked about.
        steps: How many.
        draws: Passes, each with other views, that moments and scores are averaged over.
        eta: Step size; by default the largest at which the loss falls at every step.
        memory_budget: Bytes for states and cotangents.
        progress: Show bars.

    Returns:
        The derivatives.
    """
    began, us = time.monotonic(), current()
    details: dict[str, Any] = {"steps": steps, "rank": linearised.R.shape[1]}
    measure = of_linearised(outcomes, linearised)
    if isinstance(loss, str) and loss in LAZY:
        kept = KeptRows(linearised, stream, draws)
        moments = linearised.moments(stream, draws, rows_of=kept.made(progress))
        by_moments = LazySteps(LAZY[loss], moments, linearised.d, eta or 1.0, steps)
        by_moments, details["losses"] = falling_eta(by_moments) if eta is None else (by_moments, None)
        forms, values = forms_of(by_moments, measure, linearised.dtype, memory_budget, progress)
        dw = score_all(kept, forms, len(values), memory_budget, progress)
        return Found(dw, values, time.monotonic() - began, details | {"eta": by_moments.eta, "draws": draws})
    by_rows = LazyRowSteps(lazy_loss(loss), lazy_batches(linearised, stream, steps), linearised.d, 1.0, stream.n)
    by_rows, details["losses"] = falling_eta(by_rows) if eta is None else (replace(by_rows, eta=eta), None)
    w = torch.ones(stream.n, dtype=torch.float64)
    found = us.share(
        differentiate(by_rows, measure, w=w, memory_budget=memory_budget, what="lazy steps", progress=progress)
    )
    return Found(found.dw, found.values, time.monotonic() - began, details | {"eta": by_rows.eta})


def of_encoder(outcomes: Outcomes, encoder: nn.Module) -> Measure:
    """Return outcomes of a training's state, whose encoder is used in eval mode."""
    shell = open_to_others(duplicate(encoder).eval())

    def measure(state: State) -> Tensor:
        own = {name.removeprefix("encoder."): x for name, x in state.items() if name.startswith("encoder.")}
        with WeightedBatchNorm(torch.ones(0)):
            return outcomes(partial(call, _autodiff.with_parameters(shell, own)))

    return measure


def of_linearised(outcomes: Outcomes, linearised: Linearised) -> Measure:
    """Return outcomes of the coefficients of a linearised encoder; rows of the same samples are made once."""
    kept: dict[int, tuple[Batch, Tensor]] = {}

    def rows(X: Batch) -> Tensor:
        if id(X) not in kept:
            kept[id(X)] = X, linearised.rows(X)
        return kept[id(X)][1]

    return lambda state: outcomes(lambda X: rows(X) @ coefficients(state["B"]))
