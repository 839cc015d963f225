r"""The step size of a warm replay, chosen without labels: the largest that keeps the loss falling and the encoder near.

A replay speaks about the encoder only as long as it stays close to it. With ``C`` the cosines of the centred embeddings
of a batch and ``Z`` these embeddings, three things are asked of ``T`` steps of size ``η``: the loss of that batch never
rises by more than a fiftieth from look to look, for other batches have other views, and at every look

    |C_t - C_0| <= 0.15 |C_0|,      |Z_t - Z_0| <= 0.5 |Z_0|.

A size that is too large goes too far within a few steps, and its trial ends there: nearness is looked at early too.

On digits, replays that moved further predicted retraining less and less, although their loss was lower: Barlow Twins
0.47, 0.45 and 0.00 at steps of 0.01, 0.1 and 1; VICReg 0.40, 0.24 and 0.03 at 0.01, 0.03 and 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils import _pytree as pytree

from krepes import _autodiff
from krepes.batches import Batch
from krepes.encoders.call import call
from krepes.encoders.duplicate import duplicate
from krepes.encoders.functional import SGD, State, Steps
from krepes.errors import InvalidInputError
from krepes.influence.reverse import ones_like_state

SIZES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
NEAR, LOOKS, ROWS, RISE = (0.15, 0.5), 6, 512, 1.02
EARLY = frozenset({1, 3})
"""Steps after which nearness alone is looked at."""


@dataclass(frozen=True)
class StepSize:
    """The size that was taken.

    Attributes:
        lr: The step size.
        losses: On the batch of the first step, before the first step and at each look.
        moved: How far the cosines and the embeddings moved, as parts of their size.
        refused: Why larger sizes were not taken.
    """

    lr: float
    losses: tuple[float, ...]
    moved: tuple[float, float]
    refused: dict[str, str]


def near_step_size(steps: Steps, encoder: nn.Module, sizes: tuple[float, ...] = SIZES) -> StepSize:
    """Return the largest of ``sizes`` at which the loss falls and the embeddings stay near.

    Args:
        steps: A replay by `SGD` of any step size.
        encoder: Where it starts.
        sizes: To try, largest first.

    Returns:
        The step size, with what was refused.

    Raises:
        InvalidInputError: If none will do.
    """
    refused: dict[str, str] = {}
    for lr in sizes:
        losses, moved = _trial(replace(steps, rule=SGD(lr)), encoder)
        falls = all(_falls(before, after) for before, after in zip(losses, losses[1:], strict=False))
        if falls and _near(moved):
            return StepSize(lr, tuple(losses), moved, refused)
        refused[f"{lr:g}"] = (
            f"cosines moved by {moved[0]:.2g}, embeddings by {moved[1]:.2g}"
            if falls
            else f"loss {losses[0]:.4g} to {max(losses):.4g}"
        )
    last, why = list(refused.items())[-1]
    raise InvalidInputError(
        f"at none of {len(sizes)} step sizes does the loss fall while the embeddings stay near; at the smallest, "
        f"{last}: {why}. Check that the loss is the encoder's own and that the views fit it."
    )


def _trial(steps: Steps, encoder: nn.Module) -> tuple[list[float], tuple[float, float]]:
    """Return the losses at each look, and how far cosines and embeddings moved; a trial ends where it must fail."""
    state = steps.start()
    w = ones_like_state(state, steps.n)
    x = pytree.tree_map(lambda leaf: leaf[0, :ROWS], steps.views(0)[1])
    shell = duplicate(encoder).eval()
    before = embedded(shell, state, x)
    losses, moved = [_loss(steps, state, w)], (0.0, 0.0)
    looks = {round(steps.T * part / LOOKS) for part in range(1, LOOKS + 1)}
    for t in range(steps.T):
        state = steps(t, state, w)
        if t + 1 in looks:
            losses.append(_loss(steps, state, w))
        if t + 1 in looks | EARLY:
            after = embedded(shell, state, x)
            moved = _distance(cosines(after), cosines(before)), _distance(after, before)
            if not (_near(moved) and (len(losses) < 2 or _falls(*losses[-2:]))):
                break
    return losses, moved


def _falls(before: float, after: float) -> bool:
    """Return whether a loss, which may be negative, does not rise by more than noise of the batches."""
    return after <= before + (RISE - 1) * abs(before)


def _near(moved: tuple[float, float]) -> bool:
    return all(part <= most for part, most in zip(moved, NEAR, strict=True))


def _loss(steps: Steps, state: State, w: Tensor) -> float:
    with torch.no_grad():
        return float(steps.loss(0, state, w))


def embedded(shell: nn.Module, state: State, x: Batch) -> Tensor:
    """Return the centred embeddings of ``x``, ``(b, d)``."""
    own = {name.removeprefix("encoder."): t for name, t in state.items() if name.startswith("encoder.")}
    with torch.no_grad():
        Z = call(_autodiff.with_parameters(shell, own), x)
    return Z - Z.mean(0)


def cosines(Z: Tensor) -> Tensor:
    """Return the cosines ``(b, b)`` of embeddings."""
    U = normalize(Z, dim=1)
    return U @ U.T


def _distance(after: Tensor, before: Tensor) -> float:
    """Return how far a matrix moved as a part of its size; without end where it is not finite."""
    moved = float((after - before).norm() / before.norm())
    return moved if moved == moved else float("inf")
