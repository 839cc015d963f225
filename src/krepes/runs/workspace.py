"""A run from settings to folder and back: data, encoder, views, model."""

from __future__ import annotations

import inspect
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from krepes.batches import Batch, take
from krepes.data.tabular import TabularEncoder
from krepes.encoders import PretrainResult, load_encoder, pretrain, save_weights
from krepes.errors import InvalidInputError, RunFolderError
from krepes.kernels.base import Kernel
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.objectives import make_objective
from krepes.engine.rowstore import RowStore
from krepes.runs.store import read_run
from krepes.runs.settings import Settings
from krepes.runs.dataset import Source, open_source, split
from krepes.views import (
    Augmentation,
    ColourJitter,
    Compose,
    FeatureDrop,
    GaussianNoise,
    Grey,
    HorizontalFlip,
    Normalise,
    RandomResizedCrop,
    Scarf,
    ViewStream,
)

logger = logging.getLogger("krepes")
ENCODER, SETTINGS, ENCODING, ROWS = "encoder.safetensors", "settings.json", "encoding.json", "rows"


@dataclass(frozen=True, eq=False)
class Workspace:
    """A fitted model with the data it was fitted on and those it was not.

    Attributes:
        settings: What decided it.
        source: All samples.
        train: Rows of the source that were fitted, in the order of the stream.
        test: Rows that were held out, sorted.
        stream: The views of the training rows.
        model: The fitted model.
    """

    settings: Settings
    source: Source
    train: Tensor
    test: Tensor
    stream: ViewStream
    model: Krepes

    @property
    def train_ids(self) -> list[Any]:
        """Row ids of the training rows."""
        return [self.source.ids[i] for i in self.train.tolist()]

    @property
    def test_ids(self) -> list[Any]:
        """Row ids of the held-out rows."""
        return [self.source.ids[i] for i in self.test.tolist()]

    def samples(self, rows: Tensor) -> Batch:
        """Return the samples at ``rows`` of the source ``(b,)`` as the encoder wants them, un-augmented."""
        return self.stream.augment.plain(self.source.take(rows))

    @property
    def columns(self) -> pd.DataFrame | None:
        """The table without row ids and labels: what an audit may compare, seen by the encoder or not."""
        if self.source.table is None:
            return None
        hidden = [name for name in (self.settings.id_column, self.settings.label) if name in self.source.table]
        return self.source.table.drop(columns=hidden)

    def pair(self, column: str) -> tuple[Any, Any]:
        """Return a column's values at the training and at the held-out rows."""
        values = self.source.column(column)
        return values[self.train.numpy()], values[self.test.numpy()]


def open_stream(settings: Settings, source: Source, rows: Tensor) -> ViewStream:
    """Return the views of some rows of a source."""
    data: Any = Subset(source.data, rows.tolist()) if isinstance(source.data, Dataset) else take(source.data, rows)
    sample = source.take(rows[:512])
    return ViewStream(data, augmentation(settings, source, sample), seed=settings.seed, batch_size=settings.batch_size)


def augmentation(settings: Settings, source: Source, sample: Batch) -> Augmentation:
    """Return the augmentation that settings name, or what suits the data.

    Args:
        settings: Their ``augment``, ``mean`` and ``std``.
        source: The data; a table's columns are dropped or replaced together with all that encodes them.
        sample: Some samples, for scales and marginals.

    Returns:
        The augmentation.

    Raises:
        InvalidInputError: If the name is unknown.
    """
    groups = () if source.encoding is None else tuple(tuple(columns) for columns in source.encoding.groups.values())

    def noise(noise: float = 0.1) -> Augmentation:
        return GaussianNoise(noise * float(sample.std()))

    def drop(drop: float = 0.2, noise: float = 0.1) -> Augmentation:
        return Compose(FeatureDrop(drop, groups=groups), GaussianNoise(noise))

    def scarf(rate: float = 0.6) -> Augmentation:
        return Scarf(sample, rate, groups=groups)

    def crops(crop: float = 0.5) -> Augmentation:
        return RandomResizedCrop(scale=(crop, 1.0))

    def images(crop: float = 0.4, jitter: float = 0.3, flip: float = 0.0, grey: float = 0.0) -> Augmentation:
        colours = ColourJitter(jitter, jitter, jitter * 2 / 3, jitter / 6)
        return Compose(RandomResizedCrop(scale=(crop, 1.0)), HorizontalFlip(flip), colours, Grey(grey))

    makers: dict[str, Callable[..., Augmentation]] = {f.__name__: f for f in (noise, drop, scarf, crops, images)}
    default = {"table": "drop", "image": "images", "other": "noise"}[source.kind]
    name = settings.augment or default
    if name not in makers:
        raise InvalidInputError(f"augment={name!r} is unknown: choose one of {sorted(makers)}.")
    known = sorted(inspect.signature(makers[name]).parameters)
    if not settings.augment_options.keys() <= set(known):
        raise InvalidInputError(
            f"augment_options {sorted(settings.augment_options)} do not fit augment={name!r}, which takes {known}."
        )
    made = makers[name](**settings.augment_options)
    return Compose(made, Normalise(settings.mean, settings.std)) if settings.mean else made


def encoder_choice(settings: Settings, source: Source, stream: ViewStream) -> tuple[str, dict[str, Any]]:
    """Return the name of the encoder and its arguments, sizes filled in from the data."""
    sample = stream.plain(torch.arange(1))
    name = settings.encoder or ("resnet18" if source.kind == "image" and min(sample.shape[2:]) >= 16 else "mlp")
    sizes: dict[str, Any] = {}
    if name in {"mlp", "resmlp"}:
        sizes = {"d": int(sample[0].numel())}
    elif name.startswith("resnet"):
        sizes = {"in_channels": int(sample.shape[1]), "width": 16}
    return name, sizes | settings.encoder_options


def open_encoder(settings: Settings, source: Source, stream: ViewStream, *, progress: bool) -> nn.Module | Kernel:
    """Return the encoder of some settings: loaded, or trained on the spot where no weights are named."""
    if settings.encoder == "rbf":
        sample = stream.plain(torch.arange(min(1000, stream.n)))
        return RBF.median(sample, generator=torch.Generator().manual_seed(settings.seed))
    if settings.weights is not None:
        name, options = encoder_choice(settings, source, stream)
        return load_encoder(name, settings.weights, **options).encoder
    logger.info("no weights were given: training by %s for %d epochs", settings.pretrain, settings.epochs)
    return train_encoder(settings, source, stream, progress=progress).encoder


def train_encoder(
    settings: Settings,
    source: Source,
    stream: ViewStream,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> PretrainResult:
    """Train the encoder of some settings on views of their training rows.

    Args:
        settings: Which encoder, loss and schedule.
        source: The data.
        stream: Views of the training rows.
        checkpoint: As in `krepes.encoders.pretrain`.
        resume: Go on from the checkpoint; one that is finished is read and not trained again.
        progress: Show a bar.

    Returns:
        The encoder and its history.
    """
    name, options = encoder_choice(settings, source, stream)
    torch.manual_seed(settings.seed)
    return pretrain(
        load_encoder(name, **options).encoder,
        stream,
        loss=settings.pretrain,
        projector=settings.projector,
        epochs=settings.epochs,
        lr=settings.lr,
        seed=settings.seed,
        checkpoint=checkpoint,
        resume=resume,
        progress=progress,
    )


def fit(settings: Settings, folder: str | Path, *, progress: bool = True) -> Workspace:
    """Open the data, load or train the encoder, fit, and save a run folder that holds all of it.

    Args:
        settings: What to do.
        folder: Where the run goes; finished shards of an interrupted fit are kept beside it and used again.
        progress: Show progress bars.

    Returns:
        The workspace.
    """
    source = open_source(settings)
    train, test = split(source.n, settings)
    stream = open_stream(settings, source, train)
    encoder = open_encoder(settings, source, stream, progress=progress)
    m = settings.m or min(200, max(1, stream.n // 2))
    model = Krepes(
        encoder,
        objective=make_objective({"name": settings.objective, **settings.objective_options}),
        m=m,
        h=settings.h or min(32, max(1, m // 4)),
        landmarks=settings.landmarks,
        damping=settings.damping,  # type: ignore[arg-type]
        steps=settings.steps,
        seed=settings.seed,
        progress=progress,
    )
    folder = Path(folder)
    workspace = Workspace(settings, source, train, test, stream, model)
    work = folder.with_name(f".{folder.name}.work")
    model.fit(stream, ids=workspace.train_ids, workdir=work)
    model.save(folder, files=_files(settings, source, encoder))
    if (work / ROWS).is_dir():
        (work / ROWS).rename(folder / ROWS)
        model.data_ = RowStore.open(folder / ROWS)
    shutil.rmtree(work)
    return workspace


def open_run(folder: str | Path, **changed: Any) -> Workspace:
    """Return the workspace of a run folder.

    Args:
        folder: What `fit` wrote.
        **changed: Settings to change, such as ``data`` where the file has moved.

    Returns:
        The workspace.

    Raises:
        RunFolderError: If the folder was not written by `fit`.
    """
    folder = Path(folder)
    _, manifest = read_run(folder)
    if not (folder / SETTINGS).is_file():
        raise RunFolderError(f"{folder} holds a model but no {SETTINGS}: it was not written by `krepes fit`.")
    settings = Settings.from_dict(json.loads((folder / SETTINGS).read_text()))
    settings = replace(settings, **{name: value for name, value in changed.items() if value is not None})
    stored = folder / ENCODING
    encoding = TabularEncoder.from_dict(json.loads(stored.read_text())) if stored.is_file() else None
    source = open_source(settings, encoding)
    train, test = split(source.n, settings)
    stream = open_stream(settings, source, train)
    kernel: nn.Module | Kernel
    if (folder / ENCODER).is_file():
        own = None if settings.encoder is None or ":" not in settings.encoder else settings.encoder
        if own:
            logger.info("the run names its encoder %s: importing it runs that module's code", own)
        kernel = load_encoder(own, folder / ENCODER, **(settings.encoder_options if own else {})).encoder
    else:
        kernel = RBF(manifest["kernel"]["width"])
    model = Krepes.load(folder, kernel)
    model.stream_ = stream
    if (folder / ROWS).is_dir():
        model.data_ = RowStore.open(folder / ROWS)
    return Workspace(settings, source, train, test, stream, model)


def _files(settings: Settings, source: Source, encoder: nn.Module | Kernel) -> dict[str, bytes]:
    """Return what a run folder keeps beside the model: settings, encoding, weights."""
    files = {SETTINGS: json.dumps(settings.to_dict(), indent=2, sort_keys=True).encode() + b"\n"}
    if source.encoding is not None:
        files[ENCODING] = json.dumps(source.encoding.to_dict(), indent=2, sort_keys=True).encode() + b"\n"
    if isinstance(encoder, nn.Module):
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / ENCODER
            save_weights(encoder, path)
            files[ENCODER] = path.read_bytes()
    return files
