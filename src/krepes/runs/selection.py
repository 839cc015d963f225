"""Choose a setting without labels: an encoder and a kernel model for each value, kept as they are finished."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from krepes import registry
from krepes.audit.probes import probe
from krepes.audit.selection import (
    CRITERIA,
    OF_ENCODER,
    RECOMMENDED,
    Selection,
    choose,
    encoder_criteria,
    require_criterion,
)
from krepes.audit.spectrum import spectrum_of
from krepes.data.export import write_csv
from krepes.encoders import CollapsedEncoderError, FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.figures import render, spectral_curves
from krepes.model import Krepes
from krepes.runs.adapting import completed, has_weights
from krepes.runs.augment import open_stream
from krepes.runs.dataset import Dataset, open_dataset, split
from krepes.runs.encoder import open_encoder, output_of
from krepes.runs.fitting import fit, model_sizes, require_encoder, require_sizes, require_taken
from krepes.runs.grid import Variant, is_trained, make_grid
from krepes.runs.settings import Settings, flag, panel
from krepes.runs.shelf import Shelf
from krepes.runs.suiting import suited_to_kind, suited_to_number
from krepes.runs.training import pretrain_run
from krepes.storage.files import publish_bytes
from krepes.views import ViewStream
from krepes.views.source import evenly_spaced

logger = logging.getLogger("krepes")
COLUMNS = ("value", *CRITERIA, "spread", "probe", "collapsed")
WITHOUT_ENCODER, WITHOUT_VIEWS = "entropy_kernel", "encoder_rankme"
"""What chooses among kernels without a network, and among encoders that have no views in common."""
VIEWS = ("augment", "second_augment")
"""Settings whose values prepare samples in their own way, so that encoders cannot be asked about the same views."""
EMBEDDED, LABELLED, JUDGED, CLASSES = 2_000, 10_000, 5_000, 100
"""Samples for RankMe of objectives without moments; of a probe: training and test samples, and classes, at most."""


def select(
    settings: Settings,
    name: str,
    values: Sequence[Any],
    folder: str | Path,
    *,
    by: str | None = None,
    progress: bool = True,
) -> Selection:
    """Train one encoder per value (or read given ones), fit a kernel model of each, and choose without labels.

    Every encoder is asked about the same samples and views, those of the settings, also where their strengths vary.
    Everything that can be checked is checked before anything is trained. Finished values are kept in the folder and not
    trained again, an interrupted training goes on, and further values may be added in another call. A training that
    collapses is a row of the curve and no error.

    Args:
        settings: What all values share.
        name: What varies; see `krepes.runs.grid.make_grid`. ``"weights"`` compares given encoders, and trains none.
        values: Its values.
        folder: Where encoders (``.safetensors``), runs (folders), the curve (``curve.csv``), the choice
            (``selection.json``) and the figure (``criteria.png``) go.
        by: The criterion that chooses, one of `krepes.audit.selection.CRITERIA`; by default the recommended one.
        progress: Show bars, and say which value of how many is under way.

    Returns:
        The selection. If the settings name a label, the curve has the accuracy of a ``probe``, which judges only.
    """
    by, settings = _criterion(settings, name, by), completed(settings)
    grid = make_grid(settings, name, values)
    dataset = open_dataset(settings)
    train, test = split(dataset.n, settings)
    settings = suited_to_kind(settings, dataset)
    settings = suited_to_number(settings, open_stream(settings, dataset, train))
    grid = make_grid(settings, name, values)  # again, with what a preset gave up
    for variant in grid:
        _require_variant(variant, dataset, train, name)
    judged = open_stream(settings, dataset, train)
    shelf = Shelf.open(folder, settings, name, judged.fingerprint())
    rows = []
    for place, variant in enumerate(grid, start=1):
        row = shelf.finished(variant)
        if progress:
            state = "was finished before" if row is not None else "begins"
            logger.info("%s=%s (%d of %d) %s", name, variant.value, place, len(grid), state)
        if row is None:
            own = open_stream(variant.settings, dataset, train) if name in VIEWS else judged
            row = _measured(variant, shelf, dataset, own, (train, test), progress)
            row |= {"retrieval": math.nan} if name in VIEWS else {}
            shelf.keep(variant, row)
        rows.append({"value": variant.value, **row})
    known = {key for row in rows for key in row}
    curve = pd.DataFrame(rows, columns=[column for column in COLUMNS if column in known])
    return _published(choose(curve, by), name, shelf.folder)


def _criterion(settings: Settings, name: str, by: str | None) -> str:
    """Return the criterion, after it was found to be one that this selection has."""
    kernel = settings.kernel in registry.KERNELS
    by = by or (WITHOUT_ENCODER if kernel else WITHOUT_VIEWS if name in VIEWS else RECOMMENDED)
    require_criterion(by, "--by")
    if kernel and by in OF_ENCODER:
        raise InvalidInputError(
            f"--by {by} judges an encoder, and {flag('kernel')} {settings.kernel} has none. Choose {WITHOUT_ENCODER}."
        )
    if name in VIEWS and by == "retrieval":
        raise InvalidInputError(
            f"--by {by} must ask every encoder about the same views, and --over {name} changes them. Choose "
            f"{WITHOUT_VIEWS}."
        )
    return by


def _require_variant(variant: Variant, dataset: Dataset, train: torch.Tensor, name: str) -> None:
    """Refuse a value with which a training, the reading of weights or a fit would fail, before any work."""
    settings = variant.settings
    try:
        stream = open_stream(settings, dataset, train)
        require_sizes(settings, stream)
        require_encoder(settings, dataset, stream)
        if has_weights(settings):
            require_taken(settings, open_encoder(settings, dataset, stream), stream)
        h = model_sizes(settings, stream.n)[1]
        if h is not None and h < 2:
            raise InvalidInputError(f"{flag('h')}: {h} dimension has no spectrum to judge. Take two or more.")
    except InvalidInputError as error:
        raise InvalidInputError(f"--over {name}={variant.value}: {error}") from error


def _measured(
    variant: Variant,
    shelf: Shelf,
    dataset: Dataset,
    stream: ViewStream,
    rows: tuple[torch.Tensor, torch.Tensor],
    progress: bool,
) -> dict[str, Any]:
    """Return the criteria of one value; its encoder is trained if it is not given."""
    settings, row = variant.settings, dict[str, Any](collapsed="")
    if is_trained(settings):
        path = shelf.weights(variant, training_of(settings))
        try:
            pretrain_run(settings, path, progress=progress)
        except CollapsedEncoderError as error:
            return {"collapsed": f"training stopped: {error}"}
        settings = replace(settings, weights=str(path))
    embed: Any = None
    if has_weights(settings):
        encoder = open_encoder(settings, dataset, stream)
        assert isinstance(encoder, nn.Module)
        frozen = FrozenEncoder(encoder, output=output_of(settings))
        row |= encoder_criteria(frozen, stream)
        embed = frozen.encode
    if not row["collapsed"]:
        model = fit(settings, shelf.folder / variant.slug, progress=progress).model
        row |= spectrum_of(model, _samples(model, stream))
        embed = model.embed if embed is None else embed
    if settings.label is not None and embed is not None:
        row["probe"] = _probe(embed, settings.label, dataset, stream, rows)
    return row


def _samples(model: Krepes, stream: ViewStream) -> Any:
    """Return samples to take RankMe from where an objective keeps no moments."""
    return None if model.moments_ is not None else stream.plain(evenly_spaced(stream.n, EMBEDDED))


def training_of(settings: Settings) -> dict[str, Any]:
    """Return what decides a training: values that differ in nothing of it share one encoder."""
    apart = {"Kernel", "Model"}
    kept = {name: value for name, value in settings.to_dict().items() if panel(name) not in apart}
    return {**kept, "loss": settings.training_loss}


def _probe(
    embed: Any, label: str, dataset: Dataset, stream: ViewStream, rows: tuple[torch.Tensor, torch.Tensor]
) -> float:
    """Return the accuracy of a linear probe on held-out samples; not a number where there are no classes to tell."""
    train, test = rows
    classes, seen = dataset.column(label), torch.arange(min(LABELLED, stream.n))
    y = classes[train[seen].numpy()]
    if not 2 <= len(set(y)) <= CLASSES:
        return math.nan
    held = test[evenly_spaced(len(test), JUDGED)]
    Z = embed(stream.plain(seen)).numpy()
    return probe(Z, y, embed(stream.augment.plain(dataset.take(held))).numpy(), classes[held.numpy()])


def _published(selection: Selection, name: str, folder: Path) -> Selection:
    """Write the curve, the choice and the figure."""
    write_csv(selection.curve, folder / "curve.csv")
    choice = {"over": name, "by": selection.by, "winner": selection.winner, "winners": selection.winners}
    publish_bytes(folder / "selection.json", json.dumps(choice, indent=2, sort_keys=True, default=str).encode() + b"\n")
    publish_bytes(folder / "criteria.png", render(spectral_curves(selection, name=name)))
    return selection
