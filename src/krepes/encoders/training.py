"""The state of a training, step by step: what a checkpoint holds, and nothing else.

Learning rate, order of the samples, views and dropout are functions of the seed and the number of the step, not states:
a training that is taken up at any step goes on as if it had never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes.batches import Batch
from krepes.encoders.teamwork import Team
from krepes.encoders.twins import Twins
from krepes.errors import InvalidInputError, KrepesError
from krepes.processes import Processes
from krepes.storage.tensorfile import read_tensors, write_tensors
from krepes.views import ViewStream

FORMAT = 1
WARM_UP = 0.1


class CollapsedEncoderError(KrepesError, RuntimeError):
    """Training whose loss is not finite or whose embeddings became one point."""


@dataclass(frozen=True)
class Epoch:
    """Means over the steps of an epoch: the loss, and the embeddings' deviation as a part of their size."""

    loss: float
    spread: float


@dataclass(frozen=True)
class TrainingRecipe:
    """What the outcome of a training depends on; two trainings that share a checkpoint must agree in all of it."""

    loss: str
    loss_options: dict[str, Any]
    projector: list[int]
    epochs: int
    lr: float
    weight_decay: float
    momentum: float
    seed: int
    batch_size: int
    stream: str | None
    output: Any = None
    precision: str | None = None


class Training:
    """Networks, optimiser, the number of finished steps and what they measured.

    Args:
        twins: What is trained.
        stream: Its first two views are compared.
        recipe: How.
        us: Processes that share each step, every one with its rows of the batch.
    """

    def __init__(self, twins: Twins, stream: ViewStream, recipe: TrainingRecipe, us: Processes | None = None) -> None:
        self.twins, self.stream, self.recipe = twins, stream, recipe
        self.batch_size = min(stream.batch_size, stream.n)
        self.team = Team(us, self.batch_size) if us is not None and us.talking else None
        if self.team is not None:
            object.__setattr__(twins, "compare", self.team.loss(twins.compare))  # even if it is a module
        self.epoch_steps = stream.n // self.batch_size
        self.steps = recipe.epochs * self.epoch_steps
        self.optimiser = torch.optim.AdamW(
            [parameter for parameter in twins.parameters() if parameter.requires_grad],
            lr=recipe.lr,
            weight_decay=recipe.weight_decay,
        )
        self.history: list[Epoch] = []
        self.measured: list[tuple[float, float]] = []  # loss and spread of each step since the last epoch's end

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return len(self.history) * self.epoch_steps + len(self.measured)

    def batch(self, step: int) -> tuple[Tensor, Batch]:
        """Return the samples ``(b,)`` of any step and their views: each epoch has an order and noise of its own."""
        chosen, stream = self._drawn(step)
        return chosen, stream.views_of(chosen)

    def _drawn(self, step: int) -> tuple[Tensor, ViewStream]:
        """Return the samples ``(b,)`` of a step, and the stream that makes their views."""
        epoch, k = divmod(step, self.epoch_steps)
        generator = torch.Generator().manual_seed(mix(self.recipe.seed, 0, epoch))
        stream = self.stream.with_seed(self.stream.seed + int(torch.randint(1, 2**62, (1,), generator=generator)))
        order = torch.randperm(self.stream.n, generator=generator)
        return order[k * self.batch_size : (k + 1) * self.batch_size], stream

    def batches(self) -> Iterator[Batch]:
        """Yield the views of the whole batches that are still to come, or of this process's rows of them."""
        for step in range(self.step, self.steps):
            chosen, stream = self._drawn(step)
            yield stream.views_of(chosen if self.team is None else self.team.own(chosen))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.recipe.lr * rate_at(step / self.steps)

    def advance(self, views: Batch, min_spread: float) -> tuple[float, float]:
        """Take one step on ``views`` ``(p, b, ...)``, unless they show a collapse; return their loss and spread."""
        team = self.team
        torch.manual_seed(mix(self.recipe.seed, 1, self.step, *([] if team is None else [team.us.rank])))
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(self.step)
        x_a, x_b = (pytree.tree_map(lambda leaf, u=u: leaf[u], views) for u in range(2))
        with nullcontext() if team is None else team.norms:
            loss, Y = self.twins(x_a, x_b)
        value, spread = loss.item(), _spread(Y.detach() if team is None else team.whole(Y.detach()))
        _require_alive(value, spread, self.step, min_spread)
        self.optimiser.zero_grad()
        loss.backward()
        if team is not None:
            team.add_up(self.twins.parameters())
        self.optimiser.step()
        self.twins.follow(self.step / self.steps)
        self.measured.append((value, spread))
        if len(self.measured) == self.epoch_steps:
            self.history.append(Epoch(*np.mean(self.measured, 0).tolist()))
            self.measured = []
        return value, spread

    def save(self, path: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        moments = {
            f"optimiser/{index}/{name}": value
            for index, state in self.optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        history = [asdict(epoch) for epoch in self.history]
        details = {"format": FORMAT, "training": asdict(self.recipe), "history": history, "measured": self.measured}
        write_tensors(path, {**self.twins.state_dict(), **moments}, details)

    def restore(self, path: Path) -> None:
        """Go back to a checkpoint.

        Args:
            path: Written by `save` of a training with the same recipe.

        Raises:
            InvalidInputError: If it is no checkpoint, or one of another training.
        """
        tensors, details = read_tensors(path)
        if details.get("format") != FORMAT or "training" not in details:
            raise InvalidInputError(f"{path} is not a checkpoint of this version's pretrain. Choose another file.")
        _require_same(asdict(self.recipe), details["training"], path)
        own = self.twins.state_dict()
        if {k: x.shape for k, x in own.items()} != {k: tensors[k].shape for k in tensors if "optimiser/" not in k}:
            raise InvalidInputError(f"{path} belongs to an encoder of other layers or sizes. Build the one it was for.")
        self.twins.load_state_dict({key: tensors[key] for key in own})
        state: dict[int, dict[str, Tensor]] = {}
        for key in tensors:
            if key.startswith("optimiser/"):
                _, index, name = key.split("/")
                state.setdefault(int(index), {})[name] = tensors[key]
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state, "param_groups": groups})
        self.history = [Epoch(**epoch) for epoch in details["history"]]
        self.measured = [(loss, spread) for loss, spread in details["measured"]]


def mix(*numbers: int) -> int:
    """Return a seed that is as good as independent for each tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def rate_at(progress: float) -> float:
    """Return the learning rate, as a part of its peak, when the part ``progress`` of a training is done.

    It rises linearly from a tenth, then falls along half a cosine to zero.
    """
    if progress < WARM_UP:
        return 0.1 + 0.9 * progress / WARM_UP
    return (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2


def _spread(Y: Tensor) -> float:
    """Return the standard deviation over the batch, averaged over coordinates, as a part of the root mean square."""
    size = float(Y.square().mean().sqrt())
    return float(Y.std(0).mean()) / size if size > 0 else 0.0


def _require_alive(value: float, spread: float, step: int, min_spread: float) -> None:
    if not math.isfinite(value):
        raise CollapsedEncoderError(f"the loss became {value} at step {step}. Lower lr, or check the views' scale.")
    if spread < min_spread:
        raise CollapsedEncoderError(
            f"the embeddings collapsed to a point at step {step}: their deviation over a batch is {spread:.1e} of "
            f"their size, at least {min_spread:.1e} is required. Lower lr, use larger batches, or another loss."
        )


def _require_same(now: dict[str, Any], then: dict[str, Any], path: Path) -> None:
    changed = [f"{key}={now.get(key)!r} (was {then.get(key)!r})" for key in now if now.get(key) != then.get(key)]
    if changed:
        raise InvalidInputError(
            f"{path} belongs to another training: {', '.join(changed)}. "
            f"Pass the settings it was started with, or another file."
        )
