"""Encoders retrained on random halves of their data, and what became of test samples in each: the intervention.

Labels define one of the outcomes and nothing else: training, views and fits never see them.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from krepes.encoders import MLP, PretrainResult, pretrain
from krepes.encoders.call import call
from krepes.errors import InvalidInputError
from krepes.runs.augment import augmentation
from krepes.runs.dataset import open_dataset, split
from krepes.runs.settings import Settings
from krepes.storage.tensorfile import read_tensors, write_tensors
from krepes.views import Augmentation, ViewStream

TRAIN, TEST, REFERENCE = 300, 20, 1_000
"""Rows to train on, outcomes of each kind, and samples that outcomes are measured against."""
MARGIN, PAIR = "margin", "pair similarity"


@dataclass(frozen=True)
class Recipe:
    """How every encoder of a data set is trained.

    Attributes:
        augment: Of the views, as `Settings` name it.
        options: Strengths of the augmentation.
        projector: Widths of the head that the loss sees; none leaves the embedding itself.
        conv: Three convolutions with batch norm instead of one hidden layer.
        width: Of the one hidden layer.
        out: Embedding dimension.
        batch: Rows in a step; none for all of them.
        epochs: Passes over the rows.
        lr: Peak learning rate.
        momentum: Of BYOL's target.
    """

    augment: str
    options: dict[str, float] = field(default_factory=dict)
    projector: tuple[int, ...] = ()
    conv: bool = False
    width: int = 256
    out: int = 64
    batch: int | None = None
    epochs: int = 60
    lr: float = 2e-3
    momentum: float = 0.95

    def fresh(self, X: Tensor) -> nn.Module:
        """Return a fresh encoder of samples ``X`` ``(b, ...)``, by torch's generator."""
        return small_conv(X.shape[1], self.out) if self.conv else MLP(X[0].numel(), self.width, 1, self.out)


RECIPES = {
    "adult": Recipe("drop"),
    "cifar10": Recipe("images", {"flip": 0.5}, projector=(128,), conv=True, batch=75, epochs=30),
    "covertype": Recipe("drop"),
    "digits": Recipe("noise", {"noise": 0.4}, projector=(128,)),
    "mnist": Recipe("crops", projector=(128,)),
}


def small_conv(channels: int, out: int) -> nn.Sequential:
    """Return three convolutions of stride two with batch norm, a mean over pixels and a linear map."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((channels, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, 2, 1, bias=False), nn.BatchNorm2d(fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, out))


@dataclass(frozen=True, eq=False)
class Study:
    """The samples of one repetition on one data set.

    Attributes:
        X: Training rows, ``(n, ...)``.
        test: ``(2t, ...)``: the first ``t`` have a margin, and sample ``i`` is compared with sample ``t + i``.
        reference: ``(r, ...)``, whose mean embedding is the origin.
        y: Classes of the training rows, ``(n,)``, for the baseline that counts them.
        y_test: Classes, ``(2t,)``.
        y_reference: Classes, ``(r,)``.
        augment: Makes the views.
        recipe: How to train.
        loss: By what, as `pretrain` names it.
        seed: Of the repetition.
    """

    X: Tensor
    test: Tensor
    reference: Tensor
    y: Tensor
    y_test: Tensor
    y_reference: Tensor
    augment: Augmentation
    recipe: Recipe
    loss: str
    seed: int

    def copies(self, draws: int) -> ViewStream:
        """Return ``draws`` copies of the training rows, ``(draws n, ...)``, each with views of its own.

        Moments over them are averaged over the augmentation, as those that a training follows are: with one draw the
        moments of few rows are mostly noise of the views.
        """
        X = self.X.repeat(draws, *[1] * (self.X.ndim - 1))
        return ViewStream(X, self.augment, seed=mixed(self.seed, 1))

    def stream(self, member: int) -> ViewStream:
        """Return the views that a member trained on all rows sees."""
        batch = self.recipe.batch or len(self.X)
        return ViewStream(self.X, self.augment, seed=mixed(self.seed, 2, member), batch_size=batch)

    def record(self, member: int) -> PretrainResult:
        """Return an encoder trained on all rows and its recording; each ``member`` has weights and views of its own."""
        return train(self, self.X, seed=mixed(self.seed, 2, member), record=True)

    def outcomes(self, encoder: nn.Module) -> dict[str, Tensor]:
        """Return margins and pair similarities ``(t,)`` of the embeddings by ``encoder``."""
        return self.measured(call(encoder, self.test), call(encoder, self.reference))

    def measured(self, Z_test: Tensor, Z_reference: Tensor) -> dict[str, Tensor]:
        """Return margins and pair similarities ``(t,)`` of embeddings ``(2t, d)`` and ``(r, d)``."""
        return measure(Z_test, Z_reference, self.y_test, self.y_reference)


@dataclass(frozen=True, eq=False)
class Retrained:
    """What came of the halves.

    Attributes:
        member: Which rows each half holds, ``(halves, n)``, zeros and ones, float64.
        outcomes: By name, ``(halves, retrainings, t)``, float64.
    """

    member: Tensor
    outcomes: dict[str, Tensor]


def open_study(
    data: str, data_dir: str | None, seed: int, *, loss: str = "barlow_twins", train_rows: int = TRAIN
) -> Study:
    """Return the samples of a repetition; its ``seed`` draws them, and all that is drawn later."""
    held, recipe = 2 * TEST + REFERENCE, RECIPES[data]
    settings = Settings(
        data=data,
        data_dir=data_dir,
        label="label",
        max_rows=train_rows + held,
        holdout=held / (train_rows + held),
        augment=recipe.augment,
        augment_options=recipe.options,
        seed=seed,
    )
    source = open_dataset(settings)
    classes = torch.from_numpy(np.unique(source.column("label"), return_inverse=True)[1])
    chosen, rest = split(source.n, settings)
    rest = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))]
    places = chosen, rest[: 2 * TEST], rest[2 * TEST :]
    flat = recipe.augment == "noise"  # noise is added to rows of numbers, not to pictures
    X, test, reference = (source.take(rows).flatten(1) if flat else source.take(rows) for rows in places)
    y, y_test, y_reference = (classes[rows] for rows in places)
    augment = augmentation(settings, source, X)
    return Study(X, test, reference, y, y_test, y_reference, augment, recipe, loss, seed)


def train(study: Study, X: Tensor, *, seed: int, record: bool = False) -> PretrainResult:
    """Return an encoder trained on rows ``X`` ``(n, ...)``, in eval mode; ``seed`` is of weights, head and views."""
    recipe = study.recipe
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = recipe.fresh(X)
    return pretrain(
        encoder,
        ViewStream(X, study.augment, seed=seed, batch_size=recipe.batch or len(X)),
        loss=study.loss,
        projector=recipe.projector,
        epochs=recipe.epochs,
        lr=recipe.lr,
        momentum=recipe.momentum,
        seed=seed,
        record=record,
        progress=False,
    )


def retrain(
    study: Study, halves: int, retrainings: int, *, path: str | Path | None = None, seconds: float = float("inf")
) -> Retrained:
    """Train anew on random halves of the rows, each encoder with weights and views of its own.

    Args:
        study: The samples.
        halves: How many.
        retrainings: Encoders for each.
        path: A safetensors file that keeps every finished half; a later call goes on from there.
        seconds: No half is begun after so many; the halves finished by then are returned, at least one.

    Returns:
        The outcomes of all.
    """
    n, start = len(study.X), time.monotonic()
    member, outcomes = _finished(path, study, retrainings)
    while len(member) < halves and (not len(member) or time.monotonic() - start < seconds):
        number = len(member)
        draw = torch.Generator().manual_seed(mixed(study.seed, 3, number))
        half = torch.randperm(n, generator=draw)[: n // 2].sort().values
        found = [_outcomes(study, half, mixed(study.seed, 4, number, again)) for again in range(retrainings)]
        member = torch.cat([member, torch.zeros(1, n, dtype=torch.float64).index_fill(1, half, 1.0)])
        outcomes = {
            name: torch.cat([before, torch.stack([one[name] for one in found])[None]])
            for name, before in outcomes.items()
        }
        if path is not None:
            write_tensors(path, {"member": member, **outcomes}, _story(study, retrainings))
    return Retrained(member[:halves], {name: values[:halves] for name, values in outcomes.items()})


def _outcomes(study: Study, half: Tensor, seed: int) -> dict[str, Tensor]:
    encoder = train(study, study.X[half], seed=seed).encoder
    with torch.no_grad():
        return {name: values.double() for name, values in study.outcomes(encoder).items()}


def _story(study: Study, retrainings: int) -> dict[str, Any]:
    data = hashlib.sha256(study.X.contiguous().numpy().tobytes() + study.test.contiguous().numpy().tobytes())
    recipe = {**asdict(study.recipe), "projector": list(study.recipe.projector)}
    return {
        "recipe": recipe,
        "loss": study.loss,
        "seed": study.seed,
        "data": data.hexdigest(),
        "retrainings": retrainings,
    }


def _finished(path: str | Path | None, study: Study, retrainings: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what an earlier call finished: halves ``(h, n)`` and outcomes ``(h, retrainings, t)``; none at first."""
    t = len(study.test) // 2
    if path is None or not Path(path).exists():
        none = torch.zeros(0, len(study.X), dtype=torch.float64)
        return none, {name: torch.zeros(0, retrainings, t, dtype=torch.float64) for name in (MARGIN, PAIR)}
    tensors, details = read_tensors(path)
    if details != _story(study, retrainings):
        raise InvalidInputError(
            f"{path} holds halves of another study: {details} against {_story(study, retrainings)}. Use another file, "
            f"or delete this one if its retrainings are no longer wanted."
        )
    return tensors.pop("member"), tensors


def measure(Z_test: Tensor, Z_reference: Tensor, y_test: Tensor, y_reference: Tensor) -> dict[str, Tensor]:
    """Return both outcomes of embeddings; cosines are centred at the mean of the reference.

    Args:
        Z_test: ``(2t, d)``.
        Z_reference: ``(r, d)``.
        y_test: Classes, ``(2t,)``.
        y_reference: Classes, ``(r,)``.

    Returns:
        ``margin``: of each of the first ``t``, the mean cosine to the reference samples of its class minus that to the
        others; ``pair similarity``: the cosine of sample ``i`` and sample ``t + i``; ``(t,)`` each.
    """
    mean = Z_reference.mean(0)
    U, V = normalize(Z_test - mean, dim=1), normalize(Z_reference - mean, dim=1)
    first, second = U.chunk(2)
    same = (y_test.chunk(2)[0][:, None] == y_reference).to(U)
    weights = _shares(same) - _shares(1 - same)
    return {MARGIN: (first @ V.T * weights).sum(1), PAIR: (first * second).sum(1)}


def _shares(chosen: Tensor) -> Tensor:
    """Return zeros and ones ``(t, r)`` as weights that sum to one in each line, or to zero where none is chosen."""
    return chosen / chosen.sum(1, keepdim=True).clamp(min=1.0)


def mixed(*numbers: int) -> int:
    """Return a seed that is as good as independent for each tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
