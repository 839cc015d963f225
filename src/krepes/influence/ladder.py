r"""One call for every rung: which can be climbed here, what each would cost, and the best that a budget allows.

    replay > warm > lazy > surrogate

by how well each predicted retraining where it was tested, a replay if it has four members (docs/findings.md has the
table). ``"auto"`` takes the first that the data, the loss and the seconds allow, and says which and what it costs
before it starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from krepes.batches import Batch
from krepes.encoders.losses import LOSSES, Loss
from krepes.encoders.pretrain import BYOL
from krepes.encoders.recording import Recording
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.influence.costs import lazy_operations, step_cost, warm_cost
from krepes.influence.lazy import LAZY
from krepes.influence.linearised import Linearised
from krepes.influence.outcomes import Outcome
from krepes.influence.rewind import rewinds_of
from krepes.influence.room import beyond_room, say_beyond
from krepes.influence.rungs import Embed, Found, Outcomes, lazy, recorded_steps, replay, warm
from krepes.influence.warm import warm_steps
from krepes.model import Krepes
from krepes.views import ViewStream

METHODS = ("replay", "warm", "lazy", "surrogate")
MEMBERS = 4
"""Recordings that "auto" wants of a replay."""


@dataclass(frozen=True)
class How:
    """What replays need beside the model.

    Attributes:
        loss: The loss of the encoder's training, a name or ``(Z_a, Z_b, w)``; by default that of the model's objective.
        recordings: Of the training, one for each member, for ``"replay"``.
        seconds: What ``"auto"`` may take.
        steps: Steps of a warm or lazy replay; by default 60 and 20.
        batch: Samples of a warm step; by default all, up to 512.
        rewinds: Replays from rewound weights that a warm one has beside it (`krepes.influence.rewind`); by default
            four, none for BYOL.
        draws: Passes of a lazy replay, each with other views.
    """

    loss: str | Loss | None = None
    recordings: tuple[Recording, ...] = ()
    seconds: float = float("inf")
    steps: int | None = None
    batch: int | None = None
    rewinds: int | None = None
    draws: int = 4


@dataclass(frozen=True)
class Plan:
    """The rung to take, what each would cost, and why others are out.

    Attributes:
        method: The rung.
        costs: Predicted seconds of each rung that is possible.
        refused: Why a rung is not possible, or not taken.
        rewinds: Of a warm replay, where the seconds do not allow them; otherwise as asked for.
    """

    method: str
    costs: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    rewinds: int | None = None

    def sentence(self) -> str:
        """Return the plan in words."""
        cost = self.costs.get(self.method)
        text = f"influence by {self.method}" + ("" if cost is None else f", about {cost:.3g} s")
        return text + "".join(f"; no {name}: {why}" for name, why in self.refused.items())


def climb(
    model: Krepes,
    outcomes: Sequence[Outcome],
    method: str,
    how: How,
    *,
    stream: ViewStream,
    path: Any = None,
    memory_budget: int = 2**32,
    progress: bool = True,
) -> Found:
    """Take one of the replaying rungs.

    Args:
        model: A fitted model of an encoder.
        outcomes: What is asked about.
        method: ``"lazy"``, ``"warm"`` or ``"replay"``.
        how: Loss, recordings and sizes.
        stream: The training data.
        path: File from which a killed reverse pass goes on.
        memory_budget: Bytes for states and cotangents.
        progress: Show bars.

    Returns:
        The derivatives in row weights.
    """
    encoder, loss = encoder_of(model), loss_of(model, how)
    asked = joined(outcomes)
    common: dict[str, Any] = {"memory_budget": memory_budget, "progress": progress}
    say_beyond(model, stream, method, batch=how.batch, recordings=how.recordings)
    if method == "replay":
        own = None if isinstance(loss, str) else loss
        return replay(encoder, stream, how.recordings, asked, loss=own, path=path, **common)
    if method == "warm":
        sizes: dict[str, Any] = {"steps": how.steps or 60, "batch": how.batch, "rewinds": how.rewinds}
        return warm(encoder, stream, loss, asked, path=path, **sizes, **common)
    linearised = Linearised.of(encoder, model.base_kernel_, model.points_)
    return lazy(linearised, stream, loss, asked, steps=how.steps or 20, draws=how.draws, **common)


def choose(
    model: Krepes,
    outcomes: Sequence[Outcome],
    how: How,
    stream: ViewStream,
    *,
    failed: Mapping[str, str] | None = None,
    progress: bool = True,
) -> Plan:
    """Return the best rung that data, loss and budget allow, and say so.

    Args:
        model: A fitted model.
        outcomes: What is asked about.
        how: Loss, recordings and the seconds that may be spent.
        stream: The training data.
        failed: Rungs that were tried and refused, and why.
        progress: Say it on the terminal, before anything starts.

    Returns:
        The plan; ``"surrogate"`` if nothing better is possible.
    """
    costs: dict[str, float] = {}
    refused, rewinds = dict(failed or {}), how.rewinds
    for method in METHODS[:-1]:
        if method in refused:
            continue
        try:
            costs[method] = _cost(model, outcomes, method, how, stream)
        except (InvalidInputError, UnsupportedEncoderError) as error:
            refused[method] = first_sentence(error)
            continue
        if costs[method] <= how.seconds:
            break
        refused[method] = _too_long(costs[method], how)
        more = rewinds_of(loss_of(model, how)) if how.rewinds is None else 0
        if method == "warm" and more and costs[method] <= (1 + more) * how.seconds:
            rewinds, costs[method], refused["rewinds"] = 0, costs[method] / (1 + more), refused.pop(method)
            break
    else:
        method = METHODS[-1]
    plan = Plan(method, costs, refused, rewinds)
    if progress:
        tqdm.write(plan.sentence(), file=sys.stderr)
    return plan


def first_sentence(error: Exception) -> str:
    """Return what an error says is wrong, without its advice."""
    return str(error).split(". ")[0]


def _too_long(cost: float, how: How) -> str:
    return f"it would take {cost:.3g} s of {how.seconds:.3g}"


def joined(outcomes: Sequence[Outcome]) -> Outcomes:
    """Return all outcomes side by side, ``(O,)``; samples that several share are embedded once."""

    def measure(embed: Embed) -> Tensor:
        kept: dict[int, tuple[Batch, Tensor]] = {}

        def once(X: Batch) -> Tensor:
            if id(X) not in kept:
                kept[id(X)] = X, embed(X)
            return kept[id(X)][1]

        return torch.stack([outcome.of(once) for outcome in outcomes])

    return measure


def encoder_of(model: Krepes) -> nn.Module:
    """Return the network of a model.

    Args:
        model: A fitted model.

    Returns:
        The encoder.

    Raises:
        InvalidInputError: If the model was fitted with a kernel, or picks the embedding of what the network returns.
    """
    if not isinstance(model.kernel, nn.Module):
        raise InvalidInputError(
            f"a replay needs the encoder, and this model has the kernel {type(model.kernel).__name__}. Fit it with the "
            f"network, or use the method surrogate."
        )
    if model.output is not None:
        raise InvalidInputError(
            f"a replay calls the network itself, and this model picks {model.output!r} of what it returns. Wrap the "
            f"network so that it returns the embedding, or use the method surrogate."
        )
    return model.kernel


def loss_of(model: Krepes, how: How) -> str | Loss:
    """Return the loss to replay: the one given, or the training loss of the same name as the model's objective."""
    if how.loss is not None:
        return how.loss
    name = model.objective_.name
    if name not in {*LOSSES, BYOL}:
        raise InvalidInputError(
            f"no training loss has the name of the objective {name!r}. Say how the encoder was trained, such as "
            f"How(loss='barlow_twins')."
        )
    return name


def _cost(model: Krepes, outcomes: Sequence[Outcome], method: str, how: How, stream: ViewStream) -> float:
    """Return predicted seconds, from one step with as many cotangents as there are outcomes."""
    for outcome in outcomes:
        if type(outcome).of is Outcome.of:
            raise InvalidInputError(f"outcome {outcome.name!r} belongs to the kernel model alone")
    encoder, loss = encoder_of(model), loss_of(model, how)
    if method == "replay":
        if len(how.recordings) < MEMBERS:
            raise InvalidInputError(
                f"{len(how.recordings)} trainings were recorded, and fewer than {MEMBERS} predict less than warm. "
                f"Pretrain with record=True and {MEMBERS} seeds."
            )
        _require_room(model, stream, method, how)
        steps = recorded_steps(how.recordings[0], encoder, stream, None if isinstance(loss, str) else loss)
        return len(how.recordings) * steps.T * step_cost(steps, len(outcomes), 2)
    if method == "warm":
        _require_room(model, stream, method, how)
        warmed = warm_steps(encoder, stream, loss, lr=1e-6, steps=how.steps or 60, batch=how.batch)
        return warm_cost(warmed, len(outcomes), rewinds_of(loss) if how.rewinds is None else how.rewinds)
    linearised = Linearised.of(encoder, model.base_kernel_, model.points_)
    few = min(32, stream.n)
    began = time.monotonic()
    linearised.pair(stream.views_of(torch.arange(few)))
    passes = how.draws if isinstance(loss, str) and loss in LAZY else 0
    pass_cost = (time.monotonic() - began) * passes * stream.n / few
    work = lazy_operations(linearised.R.shape[1], linearised.d, how.steps or 20, len(outcomes))
    return pass_cost + work / 5e9


def _require_room(model: Krepes, stream: ViewStream, method: str, how: How) -> None:
    """Refuse steps whose batch, in all views with the graphs of the encoder, takes more than the model's budget."""
    found = beyond_room(model, stream, method, batch=how.batch, recordings=how.recordings)
    if found is not None:
        raise InvalidInputError(found)
