"""The fixed studies of the intervention: rows of a data set, a recipe, and encoders trained by it on some of them."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from krepes.attribution import Attribution
from krepes.encoders import MLP, PretrainResult, pretrain
from krepes.encoders.call import call
from krepes.influence.lazy import LAZY
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.objectives import OBJECTIVES
from krepes.proof import scores
from krepes.proof.subject import Subject, mixed
from krepes.runs.augment import augmentation
from krepes.runs.dataset import open_dataset, split
from krepes.runs.settings import Settings
from krepes.views import Augmentation, ViewStream

TRAIN, TEST, REFERENCE = 300, 10, 1_000
"""Rows to train on, outcomes of each kind, and samples that outcomes are measured against."""
FEWER = {"cifar10": 8}
"""Outcomes of each kind where one takes long to replay: convolutions with batch norm."""


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
class Study(Subject):
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

    def train(self, places: Tensor, seed: int) -> nn.Module:
        """Return an encoder trained on the rows ``places`` ``(b,)``."""
        return train(self, self.X[places], seed=seed).encoder

    @property
    def n(self) -> int:
        """Number of training rows."""
        return len(self.X)

    @property
    def group(self) -> Tensor:
        """Which reference samples have the class of each test sample, ``(t, r)``."""
        return self.y_test.chunk(2)[0][:, None] == self.y_reference

    @property
    def same_class(self) -> Tensor:
        """Which rows have the class of each test sample, ``(n, t)``."""
        return self.y[:, None] == self.y_test.chunk(2)[0]

    def views(self) -> ViewStream:
        """Return the views of all rows that replays from the encoder see."""
        return ViewStream(self.X, self.augment, seed=mixed(self.seed, 6))

    def embedded(self, encoder: nn.Module) -> Tensor:
        """Return the embeddings of all rows, ``(n, d)``."""
        return call(encoder, self.X)

    def model(self, encoder: nn.Module) -> Krepes:
        """Return a model of an encoder, fitted on copies of the rows; the first 300 rows are landmarks.

        Losses that no moments can hold have two copies: their steps pass over all of them again and again.
        """
        objective = self.loss if self.loss in OBJECTIVES else "barlow_twins"
        draws = scores.DRAWS if self.loss in LAZY else 2
        first = range(min(len(self.X), 300))
        model = Krepes(encoder, objective=objective, h=scores.H, landmarks=first, seed=self.seed, progress=False)
        return model.fit(self.copies(draws))

    def kernel(self, model: Krepes, attribution: Attribution) -> Tensor:
        """Return the kernel of test samples and rows, ``(2t, n)``; rows without views where not all are landmarks."""
        if self.n == len(model.landmarks_):
            return super().kernel(model, attribution)
        return model.kernel_.rows(self.X, model.kernel_.prepare(self.test)).K.cpu().T

    def tangent(self, encoder: nn.Module, count: int) -> tuple[EmpiricalNTK, Tensor]:
        """Return the kernel that an encoder is linearised with, and the first rows as landmarks."""
        return EmpiricalNTK(encoder), self.X[:count]

    def details(self) -> dict[str, Any]:
        """Return plain values that tell one study from another."""
        data = hashlib.sha256(self.X.contiguous().numpy().tobytes() + self.test.contiguous().numpy().tobytes())
        recipe = {**asdict(self.recipe), "projector": list(self.recipe.projector)}
        return {"recipe": recipe, "loss": self.loss, "seed": self.seed, "data": data.hexdigest()}


def open_study(
    data: str, data_dir: str | None, seed: int, *, loss: str = "barlow_twins", train_rows: int = TRAIN
) -> Study:
    """Return the samples of a repetition; its ``seed`` draws them, and all that is drawn later."""
    outcomes, recipe = FEWER.get(data, TEST), RECIPES[data]
    held = 2 * outcomes + REFERENCE
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
    places = chosen, rest[: 2 * outcomes], rest[2 * outcomes :]
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
