r"""Warm replay: differentiate ``T`` plain gradient steps of the loss that start at the frozen encoder.

    θ_{t+1} = θ_t - η ∇L(θ_t ; batch_t, w),      θ_0 = the checkpoint

What it needs is the encoder, its loss and the data, not how the encoder was trained. The loss sees the embedding. Of a
table of tokens, rows that no batch looks up are no part of the state (`krepes.influence.tables`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import SGD, Steps
from krepes.encoders.losses import LOSSES, Loss
from krepes.encoders.pretrain import BYOL
from krepes.encoders.training import mix
from krepes.encoders.twins import Bootstrap, Twins
from krepes.errors import InvalidInputError
from krepes.influence.tables import narrowed
from krepes.views import ViewStream

LARGEST = 512
"""Samples of a step where none are asked for, at most."""


def warm_steps(
    encoder: nn.Module,
    stream: ViewStream,
    loss: str | Loss,
    *,
    lr: float,
    steps: int = 60,
    batch: int | None = None,
    seed: int = 0,
) -> Steps:
    """Return the steps of a warm replay.

    Args:
        encoder: Frozen, ``(b, ...) -> (b, d)``; a copy in eval mode is used, batch norms keep their statistics.
        stream: The training data.
        loss: A name, or a function ``(Z_a, Z_b, w)``.
        lr: Step size.
        steps: ``T``.
        batch: Samples of each step; by default all, up to 512.
        seed: Of order and views.

    Returns:
        The steps; their own encoder, ``steps.twins.encoder``, is the one that knows their states.
    """
    size = min(stream.n, batch or LARGEST)

    def views(t: int) -> tuple[Tensor, Batch]:
        generator = torch.Generator().manual_seed(mix(seed, 2, t))
        chosen = torch.randperm(stream.n, generator=generator)[:size].sort().values
        return chosen, stream.with_seed(mix(seed, 3, t)).views_of(chosen)

    own = narrowed(duplicate(encoder).eval(), views, range(steps))
    return Steps(_bare(own, loss), views, SGD(lr), steps, stream.n)


def _bare(encoder: nn.Module, loss: str | Loss) -> Twins:
    """Return the encoder with a loss on its embedding: for BYOL with itself, as it is now, as the target."""
    nothing = torch.empty(1, 1)
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    if loss == BYOL:
        twins = Bootstrap(encoder, nothing, (), 1.0)
        twins.predictor = nn.Sequential()
        return twins.eval()
    if isinstance(loss, str) and loss not in LOSSES:
        raise InvalidInputError(f"loss={loss!r} is unknown. Pass one of {', '.join([*LOSSES, BYOL])}, or a function.")
    return Twins(encoder, nothing, (), LOSSES[loss] if isinstance(loss, str) else loss).eval()
