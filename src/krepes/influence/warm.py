r"""Warm replay: differentiate ``T`` plain gradient steps of the loss that start at the frozen encoder.

    θ_{t+1} = θ_t - η ∇L(θ_t ; batch_t, w),      θ_0 = the checkpoint

What it needs is the encoder, its loss and the data, not how the encoder was trained. The loss sees the embedding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.encoders.functional import SGD, State, Steps
from krepes.encoders.losses import LOSSES, Loss
from krepes.encoders.pretrain import BYOL
from krepes.encoders.training import mix
from krepes.encoders.twins import Bootstrap, Twins
from krepes.errors import InvalidInputError
from krepes.views import ViewStream

FALL = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)


@dataclass(frozen=True)
class StepSize:
    """The largest step that keeps the loss falling.

    Attributes:
        lr: The step size.
        losses: The loss of each step at it.
        refused: Larger sizes that were tried, and at each the largest loss as a part of the first.
    """

    lr: float
    losses: tuple[float, ...]
    refused: dict[float, float]


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
        The steps.
    """
    size = min(stream.n, batch or 512)

    def views(t: int) -> tuple[Tensor, Batch]:
        generator = torch.Generator().manual_seed(mix(seed, 2, t))
        chosen = torch.randperm(stream.n, generator=generator)[:size].sort().values
        return chosen, stream.with_seed(mix(seed, 3, t)).views_of(chosen)

    return Steps(_bare(copy.deepcopy(encoder).eval(), loss), views, SGD(lr), steps, stream.n)


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


def falling_step_size(steps: Steps, sizes: tuple[float, ...] = FALL) -> StepSize:
    """Return the largest of ``sizes`` at which the loss falls over the whole replay.

    The loss is looked at on the batch of the first step, before the first and after every fifth part of the steps. It
    must fall each time. No label is used.

    Args:
        steps: A replay by `SGD` of any step size.
        sizes: To try, largest first.

    Returns:
        The step size, with what was refused.

    Raises:
        InvalidInputError: If the loss falls at none.
    """
    refused: dict[float, float] = {}
    for lr in sizes:
        losses = _losses(replace(steps, rule=SGD(lr)))
        if all(after < before for before, after in zip(losses, losses[1:], strict=False)):
            return StepSize(lr, tuple(losses), refused)
        refused[lr] = max(x if x == x else float("inf") for x in losses) / losses[0]
    raise InvalidInputError(
        f"the loss falls at no step size of {sizes}: at the smallest its largest value is "
        f"{refused[sizes[-1]]:.3g} of the first. Check that the loss is the encoder's own and the views fit it."
    )


def _losses(steps: Steps) -> list[float]:
    w = torch.ones(steps.n)
    state: State = steps.start()
    w = w.to(next(x.dtype for x in state.values() if x.is_floating_point()))
    with torch.no_grad():
        losses = [float(steps.loss(0, state, w))]
    looks = {round(steps.T * part / 5) for part in range(1, 6)}
    for t in range(steps.T):
        state = steps(t, state, w)
        if t + 1 in looks:
            with torch.no_grad():
                losses.append(float(steps.loss(0, state, w)))
    return losses
