"""One repetition of a reproduction: its seed, and encoders trained for it, which targets share on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from krepes.encoders import ConvNet, ResNet, build_encoder
from krepes.model import Krepes
from krepes.preset import presets
from krepes.reproduce.recipes import explained, recipe
from krepes.reproduce.scale import Scale
from krepes.reproduce.stored import REPOSITORY, stored_encoder
from krepes.runs.augment import open_stream
from krepes.runs.columns import LABEL
from krepes.runs.dataset import Dataset, open_dataset, split
from krepes.runs.encoder import encoder_choice, train_encoder
from krepes.runs.settings import Settings
from krepes.views import ViewStream

ROW_OBJECTIVES = ("simclr", "byol")
ENCODER_SEED = 0
FEATURES = "2G"
"""What a repetition keeps of the features of samples, which many models of one encoder share."""
SETTINGS: dict[str, str | None] = {"ours": None, "paper": "paper"}
"""What a table shows side by side, and the preset of each; what both share is called `SHARED`."""
SHARED = "both"
READ = ("paper", "ours")
"""Settings in the order in which a claim is read: the paper's own first."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A trained encoder and its data.

    Attributes:
        settings: How it was trained.
        encoder: Frozen.
        source: All samples of the data set.
        rows: Places of the training and of the test samples in the source.
        stream: Views of the training samples.
        test: Test samples as the encoder takes them, ``(t, ...)``.
        labels: Classes of training and of test samples; they judge and never reach a fit.
    """

    settings: Settings
    encoder: nn.Module
    source: Dataset
    rows: tuple[Tensor, Tensor]
    stream: ViewStream
    test: Tensor
    labels: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

    def train(self, n: int) -> Tensor:
        """Return the first ``n`` training samples, un-augmented; they are in random order."""
        return self.stream.plain(torch.arange(min(n, self.stream.n)))

    def landmark_labels(self, model: Krepes) -> np.ndarray[Any, Any]:
        """Return the classes of a model's landmarks, ``(m,)``."""
        return self.labels[0][model.landmarks_.numpy()]


@dataclass(frozen=True)
class Trial:
    """What a target's function is given.

    Attributes:
        scale: How much.
        seed: Which repetition.
        data_dir: Folder of the data sets; ``None`` for KREPES_DATA.
        encoders: Folder of encoders trained here; those of the repository are used before any is trained.
        only: Data sets to look at, for targets whose data sets are studies of their own; all of them if empty.
        without: Methods to leave out, for targets that compare several and where one takes long.
        retrain: Do not use the encoders of the repository; ``encoders`` is then a folder of this call's own.
    """

    scale: Scale
    seed: int
    data_dir: str | None
    encoders: Path
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    retrain: bool = False

    def experiment(self, data: str, loss: str = "barlow_twins") -> Experiment:
        """Return an encoder trained by a recipe, read from disk if it was trained before.

        There is one encoder for each data set, loss and scale. The seed of the repetition draws the order of the
        training rows (a fit takes the first), the views, the landmarks and the test rows.

        Args:
            data: Name of the data set.
            loss: Of pre-training.

        Returns:
            The experiment.
        """
        settings = recipe(data, loss=loss, scale=self.scale.name, seed=ENCODER_SEED)
        return self.made(settings, f"{settings.data}-{settings.training_loss}-{self.scale.name}")

    def made(self, settings: Settings, name: str) -> Experiment:
        """Return an encoder trained by some settings, read from disk if it was trained before.

        Args:
            settings: Of the training.
            name: Of its files.

        Returns:
            The experiment.
        """
        source = _source(self.data_dir, settings)
        train, test = split(source.n, settings)
        encoder = self._encoder(settings, source, open_stream(settings, source, train), name)
        # Held-out rows come in the order of the file, and some files are ordered: by date, by place, by class.
        draw = torch.Generator().manual_seed(self.seed)
        test = test[torch.randperm(len(test), generator=draw)[: self.scale.test]]
        train = train[torch.randperm(len(train), generator=draw)]
        stream = open_stream(explained(settings, self.seed), source, train)
        classes = source.column(settings.label or LABEL)
        labels = classes[train.numpy()], classes[test.numpy()]
        samples = stream.augment.plain(source.take(test))
        return Experiment(settings, encoder, source, (train, test), stream, samples, labels)

    def untrained(self, made: Experiment) -> Experiment:
        """Return the same experiment with an encoder of fresh weights: what training adds shows by its absence."""
        name, options = encoder_choice(made.settings, made.source, made.stream)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return replace(made, encoder=build_encoder(name, **options).eval())

    def fit(self, made: Experiment, *, preset: str | None = None, rows: int | None = None, **changes: Any) -> Krepes:
        """Return a fitted model of an experiment's encoder.

        Args:
            made: The experiment.
            preset: Settings under one name, see `krepes.preset`; by default ours. Sizes remain those of the scale, and
                the kernel is sketched where that is cheaper, whatever the preset says.
            rows: Training rows to fit on, at most; by default the scale's number. Fewer are taken where a row is dear:
                for convolutional encoders, and for objectives without moments.
            **changes: Arguments of `Krepes` other than those of the scale.

        Returns:
            The model.
        """
        sizes: dict[str, Any] = {"m": self.scale.m, "h": self.scale.h, "seed": self.seed, "progress": False}
        objective = changes.pop("objective", "barlow_twins")
        chosen: dict[str, Any] = {**preset_arguments(preset, objective), **sizes, **changes}
        rows = min(made.stream.n, self.scale.rows if rows is None else rows)
        if isinstance(made.encoder, (ResNet, ConvNet)):
            rows = min(rows, self.scale.images)
        if objective in ROW_OBJECTIVES:
            rows = min(rows, self.scale.streamed)
        stream = made.stream
        if rows < stream.n:
            stream = ViewStream(stream.source.take(torch.arange(rows)), stream.augment, seed=stream.seed)
        return Krepes(made.encoder, **chosen).fit(stream)

    def _encoder(self, settings: Settings, source: Dataset, stream: ViewStream, name: str) -> nn.Module:
        def train(checkpoint: Path) -> nn.Module:
            return train_encoder(settings, source, stream, checkpoint=checkpoint, resume=True).encoder

        folders = [self.encoders] if self.retrain else [REPOSITORY, self.encoders]
        choice = encoder_choice(settings, source, stream)
        return stored_encoder(name, settings, choice, folders, train, again=self.retrain)


def objective_of(preset: str | None, name: str) -> Any:
    """Return an objective for a model or a refit: its name, or what a preset makes of it."""
    return name if preset is None else presets[preset].objective(name)


def preset_arguments(preset: str | None, objective: Any) -> dict[str, Any]:
    """Return arguments of `Krepes` other than sizes: ours, or those of a preset as far as the scale allows."""
    if preset is None:
        return {"objective": objective}
    scaled = {"m", "h", "candidates", "kernel_kind"}
    name = objective if isinstance(objective, str) else objective.name
    found = presets[preset].arguments(name) | ({} if name is objective else {"objective": objective})
    return {name: value for name, value in found.items() if name not in scaled}


def side_by_side(measure: Callable[[str | None], pd.DataFrame]) -> pd.DataFrame:
    """Return what is measured under our settings and under the paper's, told apart by the column ``setting``.

    Args:
        measure: From a preset, ``None`` for ours, to rows.

    Returns:
        The rows of both.
    """
    parts = [measure(preset).assign(setting=name) for name, preset in SETTINGS.items()]
    return pd.concat(parts, ignore_index=True)


@cache
def _open(settings: tuple[tuple[str, Any], ...]) -> Dataset:
    return open_dataset(Settings.from_dict(dict(settings)))


def _source(data_dir: str | None, settings: Settings) -> Dataset:
    """Return the samples of a data set; a table's encoding depends on which rows are for training."""
    deciding = ("data", "label", "max_rows", "holdout", "seed")
    return _open((("data_dir", data_dir), *((name, getattr(settings, name)) for name in deciding)))
