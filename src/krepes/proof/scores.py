"""The scores of every rung and of every baseline for the rows of a subject, from encoders trained on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import influence as inf
from krepes.attribution import attribute, latent_cosine
from krepes.batches import Batch
from krepes.encoders.call import call, cast, home
from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import State, Steps, Views
from krepes.encoders.losses import Loss
from krepes.errors import InvalidInputError
from krepes.influence.costs import step_cost, warm_cost
from krepes.influence.gradients import RIDGES, row_gradients
from krepes.influence.linearised import Linearised
from krepes.influence.reverse import forward, ones_like_state
from krepes.influence.rewind import rewinds_of
from krepes.influence.rungs import Embed, lazy, of_encoder, recorded_steps, replay, warm
from krepes.influence.tables import narrowed
from krepes.influence.warm import LARGEST, warm_steps
from krepes.model import Krepes
from krepes.proof.subject import Subject, mixed

Scores = dict[str, Tensor]
"""By name of the outcome, ``(n, t)``, float64."""

RUNGS = ("surrogate", "lazy", "warm", "replay")
H, DRAWS, LANDMARKS, GRADIENT_DRAWS = 64, 16, 128, 4
GRADIENT_BYTES = 2**33
"""What the gradients of all rows may take; they are left out beyond it."""


@dataclass(frozen=True)
class Scored:
    """Scores of one method, with what it took."""

    scores: Scores = field(repr=False)
    seconds: float
    details: dict[str, Any]


def explained(subject: Subject) -> Callable[[Embed], Tensor]:
    """Return both outcomes of all test samples, side by side, as a function of what embeds samples."""

    def outcomes(embed: Embed) -> Tensor:
        found = subject.measured(embed(subject.test), embed(subject.reference))
        return torch.cat([found[name] for name in subject.names])

    return outcomes


def both(subject: Subject, dw: Tensor) -> Scores:
    """Return scores ``(n, 2t)`` by the name of their outcome."""
    return dict(zip(subject.names, dw.to("cpu", torch.float64).chunk(2, dim=1), strict=True))


def score_warm(subject: Subject, member: int = 0) -> Scored:
    """Return the warm replay of one member."""
    trained = subject.record(member)
    stream = subject.views()
    outcomes = explained(subject)
    found = warm(trained.encoder, stream, subject.loss, outcomes, progress=False)
    return Scored(both(subject, found.dw), found.seconds, found.details)


def predicted(subject: Subject, methods: Sequence[str], members: int = 1) -> dict[str, float]:
    """Return about how many seconds the replays will take, from one step of each; `RUNGS` without one are quick.

    Args:
        subject: Data, recipe and loss.
        methods: Rungs to judge.
        members: Trainings whose replays are averaged.

    Returns:
        Seconds by rung.
    """
    trained, count = subject.record(0), 2 * subject.t
    found: dict[str, float] = {}
    if "warm" in methods:
        warmed = warm_steps(trained.encoder, subject.views(), subject.loss, lr=1e-6)
        found["warm"] = warm_cost(warmed, count, rewinds_of(subject.loss))
    if "replay" in methods and trained.recording is not None:
        replayed = recorded_steps(trained.recording, trained.encoder, subject.stream(0), _own_loss(subject))
        found["replay"] = members * replayed.T * step_cost(replayed, count, 2)
    return found


def score_lazy(subject: Subject, member: int = 0) -> Scored:
    """Return the lazy replay of one member, linearised in its landmarks."""
    encoder = subject.record(member).encoder
    stream = subject.views()
    began = time.monotonic()
    linearised = Linearised.of(encoder, *subject.tangent(encoder, LANDMARKS))
    draws = subject.lazy_draws or DRAWS // 2
    found = lazy(linearised, stream, subject.loss, explained(subject), draws=draws, progress=False)
    return Scored(both(subject, found.dw), time.monotonic() - began, found.details)


def score_replay(subject: Subject, member: int = 0) -> Scored:
    """Return the replay of one member's whole training."""
    trained = subject.record(member)
    assert trained.recording is not None
    outcomes = explained(subject)
    how: dict[str, Any] = {"loss": _own_loss(subject), "progress": False}
    found = replay(trained.encoder, subject.stream(member), [trained.recording], outcomes, **how)
    return Scored(both(subject, found.dw), found.seconds, found.details)


def _own_loss(subject: Subject) -> Loss | None:
    """Return the function of a loss that a recording cannot name."""
    return None if isinstance(subject.loss, str) else subject.loss


def score_surrogate(subject: Subject, member: int = 0) -> dict[str, Scored]:
    """Return counterfactual influence through the kernel surrogate, and the similarities that explain it."""
    encoder = subject.record(member).encoder
    began = time.monotonic()
    model = subject.model(encoder)
    with torch.no_grad():
        Z = subject.embedded(encoder)
        Z_test, Z_reference = (call(encoder, cast(X, *home(encoder))) for X in (subject.test, subject.reference))
    attribution = attribute(model, subject.test)
    found = counterfactual(subject, model)
    seconds = time.monotonic() - began
    similar = {
        "influence score IS": _of_landmarks(subject, model, attribution.scores),
        "directional": _of_landmarks(subject, model, attribution.directional),
        "kernel similarity": subject.kernel(model, attribution),
        "latent cosine": latent_cosine(Z_test, Z, mean=Z_reference.mean(0)),
    }
    others = {name: Scored(_of_samples(subject, values), seconds, {}) for name, values in similar.items()}
    return {"surrogate": Scored(found, seconds, {"damping": model.solution_.damping}), **others}


def score_gradients(subject: Subject, member: int = 0, *, projector: bool) -> dict[str, Scored]:
    """Return the dot product of exact gradients, and TRAK at every ridge, on the embedding or on the projection."""
    trained = subject.record(member)
    assert trained.recording is not None
    encoder = trained.encoder
    began = time.monotonic()
    steps = warm_steps(encoder, subject.views(), subject.loss, lr=1.0, batch=subject.n, steps=GRADIENT_DRAWS)
    views, draws = _in_batches(steps, LARGEST)
    if projector:
        recorded = recorded_steps(trained.recording, encoder, subject.stream(member), _own_loss(subject))
        start = recorded.start()
        state = forward(recorded, start, ones_like_state(start, recorded.n), recorded.T)[-1]
        steps = _started_at(replace(recorded, views=steps.views), state)
    steps = replace(steps, views=views)
    _require_memory(subject.n, sum(x.numel() for x in steps.twins.encoder.parameters()))
    measure = of_encoder(explained(subject), steps.twins.encoder)
    found = row_gradients(steps, steps.start(), measure, draws)
    seconds = time.monotonic() - began
    where = ", projector" if projector else ""
    scored = {f"gradient dot product{where}": found.dot()}
    scored |= {f"TRAK{where}, ridge {ridge:g}": found.trak(ridge) for ridge in RIDGES}
    return {name: Scored(both(subject, values), seconds, {}) for name, values in scored.items()}


def _in_batches(steps: Steps, size: int) -> tuple[Views, range]:
    """Return the views of steps over all rows in batches of at most ``size``, and the numbers of those of all draws."""
    count = -(-steps.n // size)
    whole = lru_cache(maxsize=1)(steps.views)  # every part of a draw takes some of its rows

    def views(t: int) -> tuple[Tensor, Batch]:
        draw, part = divmod(t, count)
        chosen, X = whole(draw)
        order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(draw))
        places = order[part::count].sort().values
        return chosen[places], pytree.tree_map(lambda leaf: leaf[:, places], X)

    return views, range(count * GRADIENT_DRAWS)


def _started_at(steps: Steps, state: State) -> Steps:
    """Return steps that start at a state, of a copy of their networks; tables have the rows that the draws look up."""
    twins = duplicate(steps.twins)
    twins.load_state_dict({name: state[name].detach() for name in twins.state_dict()})
    twins.encoder = narrowed(twins.encoder, steps.views, range(GRADIENT_DRAWS))
    return replace(steps, twins=twins)


def score_rest(subject: Subject) -> dict[str, Scored]:
    """Return random scores, and whether a row has the class of the test sample."""
    draw = torch.Generator().manual_seed(mixed(subject.seed, 5))
    noise = torch.randn(subject.n, 2 * subject.t, generator=draw, dtype=torch.float64)
    found, same = {"random": Scored(both(subject, noise), 0.0, {})}, subject.same_class
    if same is not None:
        found["same-class count (uses labels)"] = Scored({subject.first: same.double()}, 0.0, {})
    return found


def counterfactual(subject: Subject, model: Krepes) -> Scores:
    """Return the influence of every row, the sum over its copies, on both outcomes of the surrogate."""
    reference = inf.rows(model, subject.reference)
    centre = reference.Kbar.mean(0)
    K_test, K_reference = inf.rows(model, subject.test).Kbar - centre, reference.Kbar - centre
    one = [inf.AugmentedRows(k[None]) for k in K_test]
    t, groups = subject.t, subject.group
    parts = [[inf.AugmentedRows(K_reference[chosen]) for chosen in (groups[i], ~groups[i])] for i in range(t)]
    margins = [inf.pull(model, one[i], *parts[i]) for i in range(t)]
    pairs = [inf.similarity(model, one[i], one[t + i]) for i in range(t)]
    found = torch.from_numpy(inf.influence_of(model, margins + pairs, progress=False).values)
    copies = len(found) // subject.n
    return both(subject, found.unflatten(0, (copies, subject.n)).sum(0) / len(found))


def _of_landmarks(subject: Subject, model: Krepes, scores: Tensor) -> Tensor:
    """Return scores of landmarks ``(2t, m)`` as scores of all rows ``(2t, n)``: a row that is none has zero."""
    return scores.new_zeros(len(scores), subject.n).index_copy(1, model.landmarks_, scores)


def _of_samples(subject: Subject, similarity: Tensor) -> Scores:
    """Return scores from similarities ``(2t, n)`` of test samples and rows: a pair has the product of its two."""
    first, second = similarity.to("cpu", torch.float64).T.chunk(2, dim=1)
    return dict(zip(subject.names, (first, first * second), strict=True))


def _require_memory(n: int, P: int) -> None:
    """Refuse gradients of all rows, ``(n, P)`` with a few copies, that would fill the memory."""
    taken = 4 * n * P * 4
    if taken > GRADIENT_BYTES:
        raise InvalidInputError(
            f"the gradients of {n:,} rows in {P:,} parameters take {taken / 2**30:.0f} GiB, more than "
            f"{GRADIENT_BYTES / 2**30:.0f}: gradient dot product and TRAK are left out"
        )
