r"""Rewound replay: differentiate steps that learn again what the frozen encoder has learned.

    θ_0 = κ θ* + (1 - κ) Π θ*,      θ_{t+1} = AdamW_t(θ_t, ∇L(θ_t ; batch_t, w)),      κ = 0.3

A replay that starts at the encoder θ* only sees how it would go on. Rows act while features form, so the weights are
rewound first: Π shuffles the entries of every matrix, which keeps their sizes and forgets the rest, and ``T`` steps
with the warm-up and the cosine of a training lead back. Batch norms learn as in a training too: statistics of their
batches, and running ones that are carried along and differentiated. The learning rate is the one whose last encoder
is most like the frozen one, by the correlation of the cosines of a batch: no label is asked. Where no rate leads
back, there is no rewound replay. Steps that a training takes may magnify a change without end: a replay whose
derivative does not foretell its own end without some of the rows is left out. BYOL's target is the frozen encoder all
the time, which no training had: its warm replays have no rewound ones beside them unless they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import AdamW, State, Steps
from krepes.encoders.losses import Loss
from krepes.encoders.pretrain import BYOL
from krepes.encoders.training import mix, rate_at
from krepes.influence.reverse import Derivative, Measure, forward, ones_like_state
from krepes.influence.stepsize import ROWS, cosines, embedded

REWINDS, KEEP, ALIKE, WEIGHT_DECAY = 4, 0.3, 0.6, 1e-4
RATES = (8e-3, 2e-3, 5e-4, 1e-4)
REMOVED, DRAWS = 0.05, 2
"""Part of the rows that a replay is put to the test without, and how often."""
EPS = 1e-6
"""Of AdamW, above round-off: a bias that the loss does not feel has a gradient of round-off alone, and shall stay."""


@dataclass(frozen=True)
class Returned:
    """The learning rate of rewound replays.

    Attributes:
        rate: At its peak, or ``None`` if no rate leads back.
        start: How alike the rewound encoder is to the frozen one.
        alike: How alike the last one is, for each rate.
    """

    rate: float | None
    start: float
    alike: dict[str, float]


def rewound_steps(steps: Steps, rate: float, seed: int) -> Steps:
    """Return the steps of a rewound replay.

    Args:
        steps: A warm replay: its networks, batches and number of steps.
        rate: Learning rate at its peak.
        seed: Of the shuffles.

    Returns:
        The steps; their networks are their own.
    """
    twins = duplicate(steps.twins)
    _rewind(twins.encoder, seed)
    _train_norms(twins.encoder)
    return replace(steps, twins=twins, rule=_rule(rate, steps.T))


def returning_rate(steps: Steps, seed: int, rates: tuple[float, ...] = RATES) -> Returned:
    """Return the learning rate at which a rewound replay ends most like the frozen encoder.

    Args:
        steps: A warm replay, which starts at the frozen encoder.
        seed: Of the shuffles.
        rates: To try.

    Returns:
        The rate; none if the best end is no more like the frozen encoder than the start, or less than `ALIKE`.
    """
    shell = duplicate(steps.twins.encoder).eval()
    x = pytree.tree_map(lambda leaf: leaf[0, :ROWS], steps.views(0)[1])
    again = rewound_steps(steps, rates[0], seed)
    start, frozen = again.start(), cosines(embedded(shell, steps.start(), x))
    w = ones_like_state(start, steps.n)

    def likeness(state: State) -> float:
        return _correlation(cosines(embedded(shell, state, x)), frozen)

    found = {}
    for rate in rates:
        tried = replace(again, rule=_rule(rate, steps.T))
        found[rate] = likeness(forward(tried, start, w, steps.T)[-1])
    best, before = max(found, key=lambda rate: found[rate]), likeness(start)
    alike = {f"{rate:g}": value for rate, value in found.items()}
    return Returned(best if found[best] > max(before, ALIKE) else None, before, alike)


def _rule(rate: float, T: int) -> AdamW:
    return AdamW(lambda t: rate * rate_at(t / T), WEIGHT_DECAY, eps=EPS)


@torch.no_grad()
def _rewind(encoder: nn.Module, seed: int) -> None:
    """Move every matrix of weights most of the way to a shuffle of itself; vectors, such as biases, stay."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in encoder.parameters():
        if parameter.ndim > 1 and parameter.is_floating_point():
            order = torch.randperm(parameter.numel(), generator=draw).to(parameter.device)
            parameter.lerp_(parameter.flatten()[order].view_as(parameter), 1 - KEEP)


def _train_norms(encoder: nn.Module) -> None:
    """Give batch norms the statistics of their batches, as a training does: their own are of other weights."""
    for part in encoder.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train()


def _correlation(C: Tensor, D: Tensor) -> float:
    """Return the correlation of the cosines ``(b, b)`` of two encoders off the diagonal; -1 where it is not finite."""
    off = ~torch.eye(len(C), dtype=torch.bool, device=C.device)
    value = float(torch.corrcoef(torch.stack([C[off], D[off]]))[0, 1])
    return value if value == value else -1.0


@torch.no_grad()
def foretold(steps: Steps, measure: Measure, found: Derivative, seed: int) -> float:
    """Return how well a derivative foretells the end of its own replay without a few rows, for they can be taken away.

    Args:
        steps: The replay.
        measure: Its outcomes.
        found: Their values and derivatives.
        seed: Of the draws of the rows.

    Returns:
        ``1 - |foretold - changed|² / |changed|²`` over draws, the median over outcomes: one at best, and below zero
        where no change at all would have been the better guess.
    """
    draw, count = torch.Generator().manual_seed(seed), max(1, round(REMOVED * steps.n))
    errors, sizes = [], []
    for _ in range(DRAWS):
        w = ones_like_state(steps.start(), steps.n)
        w[torch.randperm(steps.n, generator=draw)[:count].to(w.device)] = 0.0
        changed = measure(forward(steps, steps.start(), w, steps.T)[-1]) - found.values
        errors.append(found.dw.T @ (w - 1) - changed)
        sizes.append(changed)
    size = torch.stack(sizes).square().sum(0)
    share = torch.stack(errors).square().sum(0)[size > 0] / size[size > 0]
    return 1 - float(share.median()) if len(share) else 1.0


def rewinds_of(loss: str | Loss) -> int:
    """Return how many rewound replays go with a warm one of a loss: four, none for BYOL."""
    return 0 if loss == BYOL else REWINDS


def member_seed(seed: int, member: int) -> int:
    """Return the seed of a rewind's batches, views and shuffles."""
    return mix(seed, 4, member)
