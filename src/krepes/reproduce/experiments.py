"""An encoder trained here on a public data set, with rows to explain: the start of every reproduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from krepes.data import DATASETS, NamedTable, Schema, TabularEncoder
from krepes.encoders import MLP, ResMLP, pretrain
from krepes.reproduce.base import Scale
from krepes.views import Augmentation, Compose, FeatureDrop, GaussianNoise, RandomResizedCrop, ViewStream


@dataclass(frozen=True, eq=False)
class Experiment:
    """A trained encoder and its data.

    Attributes:
        encoder: Frozen.
        stream: Views of the training rows.
        train: Un-augmented training rows, ``(n, ...)``.
        test: Un-augmented test rows, ``(t, ...)``.
        labels: Classes of training and of test rows; they judge and never reach a fit.
    """

    encoder: nn.Module
    stream: ViewStream
    train: Tensor
    test: Tensor
    labels: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@cache
def experiment(name: str, scale: Scale, data_dir: str | None, seed: int, loss: str = "barlow_twins") -> Experiment:
    """Draw rows of a data set and train its encoder: a ResMLP for tables, a three-layer MLP for pictures.

    Args:
        name: Of the data set.
        scale: How many rows, how long, how wide.
        data_dir: Folder of the data sets.
        seed: Of rows, weights and views.
        loss: Of pre-training.

    Returns:
        The experiment, kept for targets that share it.
    """
    X, labels, augment = _rows(name, scale, data_dir, seed)
    n = len(X) - min(scale.test, len(X) // 5)
    train, test = X[:n], X[n:]
    stream = ViewStream(train, augment, seed=seed)
    torch.manual_seed(seed)
    width = scale.width
    encoder: nn.Module = MLP(train[0].numel(), width=2 * width, depth=2, out=128)
    if train.ndim == 2:
        encoder = ResMLP(train.shape[1], out=128, width=width - width % 4)
    trained = pretrain(encoder, stream, loss=loss, epochs=scale.epochs, seed=seed).encoder
    return Experiment(trained, stream, train, test, (labels[:n], labels[n:]))


def _rows(
    name: str, scale: Scale, data_dir: str | None, seed: int
) -> tuple[Tensor, np.ndarray[Any, Any], Augmentation]:
    """Return shuffled rows, their classes and the augmentation."""
    found = DATASETS[name](data_dir)
    order = np.random.default_rng(seed).permutation(len(found.labels))[: scale.train + scale.test]
    if isinstance(found, NamedTable):
        frame = found.frame.iloc[order].reset_index(drop=True)
        encoder = TabularEncoder(Schema.infer(frame)).fit(frame)
        groups = tuple(tuple(columns) for columns in encoder.groups.values())
        drop: Augmentation = Compose(FeatureDrop(0.2, groups=groups), GaussianNoise(0.1))
        return encoder.transform(frame), found.labels[order], drop
    pixels = found.pixels[torch.from_numpy(order)] / 255.0
    return pixels, found.labels[order], RandomResizedCrop(scale=(0.5, 1.0))
