"""Encoders retrained on random halves of their data, and what became of test samples in each: the intervention.

Labels define one of the outcomes and nothing else: training, views and fits never see them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from krepes.encoders import MLP, pretrain
from krepes.encoders.call import call
from krepes.runs.augment import augmentation
from krepes.runs.dataset import open_dataset, split
from krepes.runs.settings import Settings
from krepes.views import Augmentation, ViewStream

TRAIN, TEST, REFERENCE = 300, 60, 1_000
"""Rows to train on, outcomes of each kind, and samples that outcomes are measured against."""
MARGIN, PAIR = "margin", "pair similarity"


@dataclass(frozen=True)
class Recipe:
    """How every encoder of a data set is trained by Barlow Twins, an epoch being one batch of all rows.

    Attributes:
        augment: Of the views, as `Settings` name it.
        projector: Widths of the head that the loss sees; none leaves the embedding itself.
        width: Of the one hidden layer.
        out: Embedding dimension.
        epochs: Steps.
        lr: Peak learning rate.
    """

    augment: str
    projector: tuple[int, ...] = ()
    width: int = 256
    out: int = 64
    epochs: int = 60
    lr: float = 2e-3


RECIPES = {"adult": Recipe("drop"), "covertype": Recipe("drop"), "mnist": Recipe("crops", projector=(128,))}


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
    seed: int

    def copies(self, draws: int) -> ViewStream:
        """Return ``draws`` copies of the training rows, ``(draws n, ...)``, each with views of its own.

        Moments over them are averaged over the augmentation, as those that a training follows are: with one draw the
        moments of few rows are mostly noise of the views.
        """
        X = self.X.repeat(draws, *[1] * (self.X.ndim - 1))
        return ViewStream(X, self.augment, seed=mixed(self.seed, 1))

    def train(self, member: int) -> nn.Module:
        """Return an encoder trained on all rows; each ``member`` has weights and views of its own."""
        return train(self.X, self.augment, self.recipe, seed=mixed(self.seed, 2, member))

    def outcomes(self, encoder: nn.Module) -> dict[str, Tensor]:
        """Return margins and pair similarities ``(t,)`` of the embeddings by ``encoder``."""
        return measure(call(encoder, self.test), call(encoder, self.reference), self.y_test, self.y_reference)


@dataclass(frozen=True, eq=False)
class Retrained:
    """What came of the halves.

    Attributes:
        member: Which rows each half holds, ``(halves, n)``, zeros and ones, float64.
        outcomes: By name, ``(halves, retrainings, t)``, float64.
    """

    member: Tensor
    outcomes: dict[str, Tensor]


def open_study(data: str, data_dir: str | None, seed: int) -> Study:
    """Return the samples of a repetition; its ``seed`` draws them, and all that is drawn later."""
    held, recipe = 2 * TEST + REFERENCE, RECIPES[data]
    settings = Settings(
        data=data,
        data_dir=data_dir,
        label="label",
        max_rows=TRAIN + held,
        holdout=held / (TRAIN + held),
        augment=recipe.augment,
        seed=seed,
    )
    source = open_dataset(settings)
    classes = torch.from_numpy(np.unique(source.column("label"), return_inverse=True)[1])
    train_rows, rest = split(source.n, settings)
    rest = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed))]
    places = train_rows, rest[: 2 * TEST], rest[2 * TEST :]
    X, test, reference = (source.take(rows) for rows in places)
    y, y_test, y_reference = (classes[rows] for rows in places)
    augment = augmentation(settings, source, X)
    return Study(X, test, reference, y, y_test, y_reference, augment, recipe, seed)


def train(X: Tensor, augment: Augmentation, recipe: Recipe, *, seed: int) -> nn.Module:
    """Return an encoder trained on rows ``X`` ``(n, ...)``, in eval mode; ``seed`` is of weights, head and views."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = MLP(X[0].numel(), width=recipe.width, depth=1, out=recipe.out)
    stream = ViewStream(X, augment, seed=seed, batch_size=len(X))
    return pretrain(
        encoder, stream, projector=recipe.projector, epochs=recipe.epochs, lr=recipe.lr, seed=seed, progress=False
    ).encoder


def retrain(study: Study, halves: int, retrainings: int) -> Retrained:
    """Train anew on random halves of the rows, each encoder with weights and views of its own.

    Args:
        study: The samples.
        halves: How many.
        retrainings: Encoders for each.

    Returns:
        The outcomes of all.
    """
    n, draw = len(study.X), torch.Generator().manual_seed(mixed(study.seed, 3))
    member = torch.zeros(halves, n, dtype=torch.float64)
    found: dict[str, list[Tensor]] = {MARGIN: [], PAIR: []}
    for number in range(halves):
        half = torch.randperm(n, generator=draw)[: n // 2].sort().values
        member[number, half] = 1.0
        for again in range(retrainings):
            seed = mixed(study.seed, 4, number, again)
            encoder = train(study.X[half], study.augment, study.recipe, seed=seed)
            with torch.no_grad():
                for name, values in study.outcomes(encoder).items():
                    found[name].append(values.double())
    return Retrained(member, {name: torch.stack(v).unflatten(0, (halves, retrainings)) for name, v in found.items()})


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
