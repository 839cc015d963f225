"""The scores of every rung and of every baseline for the rows of a study, from encoders trained on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from krepes import influence as inf
from krepes.attribution import attribute, kernel_similarity, latent_cosine
from krepes.encoders.call import call
from krepes.influence.gradients import RIDGES, row_gradients
from krepes.influence.linearised import Linearised
from krepes.influence.reverse import forward
from krepes.influence.rungs import Embed, lazy, of_encoder, recorded_steps, replay, warm
from krepes.influence.warm import warm_steps
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.objectives import OBJECTIVES
from krepes.reproduce.retraining import MARGIN, PAIR, Study, mixed
from krepes.views import ViewStream

Scores = dict[str, Tensor]
"""By name of the outcome, ``(n, t)``, float64."""

RUNGS = ("surrogate", "lazy", "warm", "replay")
H, DRAWS, LANDMARKS, GRADIENT_DRAWS = 64, 16, 128, 4


@dataclass(frozen=True)
class Scored:
    """Scores of one method, with what it took."""

    scores: Scores = field(repr=False)
    seconds: float
    details: dict[str, Any]


def explained(study: Study) -> Callable[[Embed], Tensor]:
    """Return both outcomes of all test samples, side by side, as a function of what embeds samples."""

    def outcomes(embed: Embed) -> Tensor:
        found = study.measured(embed(study.test), embed(study.reference))
        return torch.cat([found[MARGIN], found[PAIR]])

    return outcomes


def both(dw: Tensor) -> Scores:
    """Return scores ``(n, 2t)`` by the name of their outcome."""
    return dict(zip((MARGIN, PAIR), dw.double().chunk(2, dim=1), strict=True))


def score_warm(study: Study, member: int = 0) -> Scored:
    """Return the warm replay of one member."""
    trained = study.record(member)
    stream = ViewStream(study.X, study.augment, seed=mixed(study.seed, 6))
    outcomes = explained(study)
    found = warm(trained.encoder, stream, study.loss, outcomes, progress=False)
    return Scored(both(found.dw), found.seconds, found.details)


def score_lazy(study: Study, member: int = 0) -> Scored:
    """Return the lazy replay of one member, with the first rows as landmarks."""
    encoder = study.record(member).encoder
    stream = ViewStream(study.X, study.augment, seed=mixed(study.seed, 6))
    began = time.monotonic()
    linearised = Linearised.of(encoder, EmpiricalNTK(encoder), study.X[:LANDMARKS])
    found = lazy(linearised, stream, study.loss, explained(study), draws=DRAWS // 2, progress=False)
    return Scored(both(found.dw), time.monotonic() - began, found.details)


def score_replay(study: Study, member: int = 0) -> Scored:
    """Return the replay of one member's whole training."""
    trained = study.record(member)
    assert trained.recording is not None
    outcomes = explained(study)
    found = replay(trained.encoder, study.stream(member), [trained.recording], outcomes, progress=False)
    return Scored(both(found.dw), found.seconds, found.details)


def score_surrogate(study: Study, member: int = 0) -> dict[str, Scored]:
    """Return counterfactual influence through the kernel surrogate, and the similarities that explain it."""
    encoder = study.record(member).encoder
    began = time.monotonic()
    model = fit(study, encoder)
    with torch.no_grad():
        Z, Z_test, Z_reference = (call(encoder, X) for X in (study.X, study.test, study.reference))
    attribution = attribute(model, study.test)
    found = counterfactual(study, model)
    seconds = time.monotonic() - began
    similar = {
        "influence score IS": attribution.scores,
        "directional": attribution.directional,
        "kernel similarity": kernel_similarity(attribution),
        "latent cosine": latent_cosine(Z_test, Z, mean=Z_reference.mean(0)),
    }
    others = {name: Scored(_of_samples(values), seconds, {}) for name, values in similar.items()}
    return {"surrogate": Scored(found, seconds, {"damping": model.solution_.damping}), **others}


def score_gradients(study: Study, member: int = 0, *, projector: bool) -> dict[str, Scored]:
    """Return the dot product of exact gradients, and TRAK at every ridge, on the embedding or on the projection."""
    trained = study.record(member)
    assert trained.recording is not None
    encoder = trained.encoder
    stream = ViewStream(study.X, study.augment, seed=mixed(study.seed, 6))
    began = time.monotonic()
    steps = warm_steps(encoder, stream, study.loss, lr=1.0, batch=len(study.X))
    state = steps.start()
    if projector:
        recorded = recorded_steps(trained.recording, encoder, study.stream(member))
        state = forward(recorded, recorded.start(), torch.ones(recorded.n), recorded.T)[-1]
        steps = replace(recorded, views=steps.views)
    measure = of_encoder(explained(study), encoder)
    found = row_gradients(steps, state, measure, range(GRADIENT_DRAWS))
    seconds = time.monotonic() - began
    where = ", projector" if projector else ""
    scored = {f"gradient dot product{where}": found.dot()}
    scored |= {f"TRAK{where}, ridge {ridge:g}": found.trak(ridge) for ridge in RIDGES}
    return {name: Scored(both(values), seconds, {}) for name, values in scored.items()}


def score_rest(study: Study) -> dict[str, Scored]:
    """Return random scores, and whether a row has the class of the test sample."""
    t, draw = len(study.test) // 2, torch.Generator().manual_seed(mixed(study.seed, 5))
    noise = torch.randn(len(study.X), 2 * t, generator=draw, dtype=torch.float64)
    same = (study.y[:, None] == study.y_test[:t]).double()
    return {
        "random": Scored(both(noise), 0.0, {}),
        "same-class count (uses labels)": Scored({MARGIN: same}, 0.0, {}),
    }


def fit(study: Study, encoder: nn.Module) -> Krepes:
    """Return a model of an encoder, fitted on all copies of the rows; every training row is a landmark."""
    objective = study.loss if study.loss in OBJECTIVES else "barlow_twins"
    first = range(min(len(study.X), 300))
    model = Krepes(encoder, objective=objective, h=H, landmarks=first, seed=study.seed, progress=False)
    return model.fit(study.copies(DRAWS))


def counterfactual(study: Study, model: Krepes) -> Scores:
    """Return the influence of every row, the sum over its copies, on both outcomes of the surrogate."""
    reference = inf.rows(model, study.reference)
    centre = reference.Kbar.mean(0)
    K_test, K_reference = inf.rows(model, study.test).Kbar - centre, reference.Kbar - centre
    one = [inf.AugmentedRows(k[None]) for k in K_test]
    groups = {
        c: tuple(inf.AugmentedRows(K_reference[chosen]) for chosen in (study.y_reference == c, study.y_reference != c))
        for c in study.y_test.unique().tolist()
    }
    t = len(one) // 2
    margins = [inf.pull(model, one[i], *groups[c]) for i, c in enumerate(study.y_test[:t].tolist())]
    pairs = [inf.similarity(model, one[i], one[t + i]) for i in range(t)]
    found = torch.from_numpy(inf.influence_of(model, margins + pairs, progress=False).values)
    copies = len(found) // len(study.X)
    return both(found.unflatten(0, (copies, len(study.X))).sum(0) / len(found))


def _of_samples(similarity: Tensor) -> Scores:
    """Return scores from similarities ``(2t, n)`` of test samples and rows: a pair has the product of its two."""
    first, second = similarity.double().T.chunk(2, dim=1)
    return {MARGIN: first, PAIR: first * second}
