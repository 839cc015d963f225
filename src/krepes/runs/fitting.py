"""From settings to a run folder: everything that can be checked is checked, then the work is done."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from krepes import registry
from krepes.budget import Budget
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.weights import weight_bytes
from krepes.engine.residual import require_residual
from krepes.engine.rowstore import RowStore
from krepes.errors import InvalidInputError
from krepes.kernels import Kernel
from krepes.model import Krepes
from krepes.objectives import Objective, make_objective
from krepes.processes import current
from krepes.runs.adapting import completed, has_weights
from krepes.runs.augment import open_stream
from krepes.runs.dataset import Dataset, open_dataset, split
from krepes.runs.encoder import fresh_encoder, open_encoder, output_of
from krepes.runs.fingerprint import Fingerprint
from krepes.runs.losses import require_loss
from krepes.runs.place import claimed, require_free
from krepes.runs.recipe import RECIPE, Recipe, on_the_spot, recipe_of
from krepes.runs.settings import Settings, flag
from krepes.runs.store import ROWS, read_manifest, rows_folder
from krepes.runs.suiting import suited_to_kind, suited_to_number
from krepes.runs.uses import say_what_is_lost
from krepes.runs.within import beside_held, within_budget
from krepes.runs.workspace import Workspace, column_and_value, require_group
from krepes.storage.tensorfile import tensor_bytes
from krepes.views import ViewStream

ENCODER, SETTINGS, ENCODING, DATA = "encoder.safetensors", "settings.json", "encoding.json", "data.safetensors"
TRAINING = "training.safetensors"
"""State of training on the spot, in the corner for unfinished work."""


def fit(
    settings: Settings,
    folder: str | Path,
    *,
    groups: Sequence[str] = (),
    concepts: Sequence[str] = (),
    predictions: str | None = None,
    progress: bool = True,
    bring: Callable[[Path], None] | None = None,
) -> Workspace:
    """Open the data, load or train the encoder, fit, and save a run folder that holds all of it.

    Args:
        settings: What to do.
        folder: Where the run goes; what an interrupted fit had finished lies inside and is used again.
        groups: Columns that later audits will group by: checked now, not used.
        concepts: ``column=value`` that later audits will look for: checked now, not used.
        predictions: Column with a classifier's classes, for later audits: checked now, not used.
        progress: Show progress bars.
        bring: Puts finished shards of others into the folder of unfinished work.

    Returns:
        The workspace.
    """
    us, settings = current(), completed(settings)
    progress = progress and us.first
    if us.first:
        require_free(folder)
    dataset = open_dataset(settings)
    settings = suited_to_kind(settings, dataset)
    train, test = split(dataset.n, settings)
    _require_asked(dataset, train, groups, concepts, predictions)
    say_what_is_lost(dataset, settings)
    stream = open_stream(settings, dataset, train)
    settings = suited_to_number(settings, stream)
    objective = require_sizes(settings, stream)
    require_encoder(settings, dataset, stream)
    recipe = recipe_of(settings)
    encoder = None if on_the_spot(settings) else _encoder_of_all(settings, dataset, stream)
    with claimed(folder, settings.to_dict()) as work:
        if bring is not None:
            bring(work)
        if encoder is None:
            encoder = _encoder_of_all(settings, dataset, stream, checkpoint=work / TRAINING, progress=progress)
        stream = within_budget(stream, Budget.of(settings.memory))
        model = make_model(settings, encoder, objective, stream.n, progress=progress)
        model.memory_budget = beside_held(model, dataset, stream)
        workspace = Workspace(settings, dataset, train, dataset, test, stream, model, (), recipe, Path(folder))
        model.fit(stream, ids=workspace.train_ids, workdir=work)
        if not us.first or us.kind == "apart":
            return workspace
        files = run_files(settings, dataset, encoder, {"train": train, "test": test}, recipe)
        rows = work / ROWS
        model.save(folder, files=files, rows=rows if rows.is_dir() else None)
        _reopen_rows(model, folder)
    return workspace


def _encoder_of_all(
    settings: Settings, dataset: Dataset, stream: ViewStream, *, checkpoint: Path | None = None, progress: bool = False
) -> nn.Module | Kernel:
    """Return the encoder, which takes the samples; trained on the spot, all processes end with the same weights."""
    us = current()
    encoder = open_encoder(settings, dataset, stream, checkpoint=checkpoint, progress=progress)
    if us.talking and isinstance(encoder, nn.Module):
        encoder.load_state_dict(us.share(encoder.state_dict()))
    require_taken(settings, encoder, stream)
    return encoder


def _require_asked(
    dataset: Dataset, train: Tensor, groups: Sequence[str], concepts: Sequence[str], predictions: str | None
) -> None:
    """Refuse what later audits could not find in the data, before any work."""
    for name in groups:
        dataset.column(name, "--group")
    if predictions is not None:
        dataset.column(predictions, "--predictions")
    for column, value in map(column_and_value, concepts):
        require_group(dataset.column(column, "--concept")[train.numpy()], column, value, "--concept")


def model_sizes(settings: Settings, n: int) -> tuple[int, int | None]:
    """Return ``m`` and ``h``: as told, or what suits ``n`` training samples; ``None`` is the encoder's own ``h``."""
    m = n if settings.landmarks == "all" else settings.m or min(200, max(1, n // 2))
    return m, None if settings.init == "encoder" else settings.h or min(32, max(1, m // 4))


def require_sizes(settings: Settings, stream: ViewStream) -> Objective[Any]:
    """Refuse sizes that cannot work with the data, and options that the objective or the loss do not take.

    Args:
        settings: What was asked for.
        stream: Views of the training samples.

    Returns:
        The objective.

    Raises:
        InvalidInputError: If a size or an option does not fit.
    """
    objective = _objective(settings)
    require_loss(settings)
    m, h = model_sizes(settings, stream.n)
    if m > min(stream.n, settings.candidates) and settings.landmarks != "all":
        raise InvalidInputError(
            f"{flag('m')}: {m} landmarks cannot be chosen among {min(stream.n, settings.candidates)} samples (there "
            f"are {stream.n} for training, {flag('candidates')} is {settings.candidates}). Lower {flag('m')}."
        )
    _require_start(settings, objective)
    points = m * max(stream.p, 1)
    if h is not None and h > points:
        raise InvalidInputError(f"{flag('h')}: {h} dimensions are more than the {points} landmark points. Lower it.")
    if objective.views > stream.p:
        raise InvalidInputError(
            f"{flag('objective')}: {settings.objective} compares {objective.views} views, and {flag('augment')} makes "
            f"{stream.p}. Choose another augmentation."
        )
    return objective


def _require_start(settings: Settings, objective: Objective[Any]) -> None:
    """Refuse a start at the encoder that cannot be."""
    if settings.init != "encoder":
        return
    if settings.kernel in registry.KERNELS:
        raise InvalidInputError(
            f"{flag('init')} encoder starts at the embeddings of an encoder, and {flag('kernel')} {settings.kernel} "
            f"has none. Leave {flag('kernel')} out, or start at pca."
        )
    if settings.h is not None:
        raise InvalidInputError(
            f"{flag('h')}: {settings.h} dimensions were asked for, and with {flag('init')} encoder the model has those "
            f"of the encoder's embedding. Leave {flag('h')} out."
        )
    try:
        require_residual(objective)
    except InvalidInputError as error:
        raise InvalidInputError(f"{flag('objective')}: {error}".replace("init='pca'", f"{flag('init')} pca")) from error


def require_encoder(settings: Settings, dataset: Dataset, stream: ViewStream) -> None:
    """Refuse an encoder that cannot be built, or cannot take the samples, before any training."""
    if settings.kernel not in registry.KERNELS and not has_weights(settings):
        require_taken(settings, fresh_encoder(settings, dataset, stream), stream)


def require_taken(settings: Settings, encoder: nn.Module | Kernel, stream: ViewStream) -> None:
    """Refuse an encoder that cannot take the samples."""
    if not isinstance(encoder, nn.Module):
        return
    X = stream.plain(torch.arange(min(2, stream.n)))
    try:
        FrozenEncoder(encoder, output=output_of(settings)).encode(X)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        shape = tuple(X.shape[1:]) if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInputError(
            f"{flag('encoder')}: the encoder does not take samples of shape {shape}: {error}. Check its "
            f"{flag('encoder_options')}, {flag('output')}, or {flag('size')} of images."
        ) from error


def make_model(
    settings: Settings, encoder: nn.Module | Kernel, objective: Objective[Any], n: int, *, progress: bool
) -> Krepes:
    """Return the unfitted model of some settings, for ``n`` training samples."""
    m, h = model_sizes(settings, n)
    own: dict[str, Any] = {}
    if isinstance(encoder, nn.Module):
        own = {
            "kernel_kind": settings.kernel,
            "q": settings.features,
            "heads": settings.heads,
            "parameters": list(settings.parameters),
            "output": output_of(settings),
        }
    given: dict[str, Any] = dict(
        objective=objective,
        m=m,
        h=h,
        landmarks=settings.landmarks,
        candidates=settings.candidates,
        centre=settings.centre,
        cosine=settings.cosine,
        reference=settings.reference,
        init=settings.init,
        damping=settings.damping,
        relative=settings.damping_unit == "relative",
        steps=settings.steps,
        tol=settings.tol,
        seed=settings.seed,
        memory_budget=settings.memory,
        progress=progress,
        **own,
    )
    return Krepes(encoder, **given)


def run_files(
    settings: Settings, dataset: Dataset, encoder: nn.Module | Kernel, rows: dict[str, Tensor], recipe: Recipe | None
) -> dict[str, bytes]:
    """Return what a run folder keeps beside the model: settings, encoding, weights, recipe, split and fingerprint."""
    print_of = Fingerprint.of(dataset)
    files = {
        SETTINGS: _json(settings.to_dict()),
        DATA: tensor_bytes(
            {**rows, **{f"hash_{name}": x for name, x in print_of.to_tensors().items()}},
            {"columns": print_of.columns, "n": dataset.n},
        ),
    }
    if dataset.encoding is not None:
        files[ENCODING] = _json(dataset.encoding.to_dict())
    if isinstance(encoder, nn.Module):
        files[ENCODER] = weight_bytes(encoder)
    if recipe is not None and recipe.settings != settings:
        files[RECIPE] = _json(recipe.to_dict())
    return files


def _objective(settings: Settings) -> Objective[Any]:
    make = registry.load(registry.OBJECTIVES[settings.objective])
    known = [entry.name for entry in dataclasses.fields(make)]
    sampled = {} if settings.curvature_rows is None else {"curvature_rows": settings.curvature_rows}
    if sampled and "curvature_rows" not in known:
        raise InvalidInputError(
            f"{flag('curvature_rows')}: {settings.objective} takes its curvature of the second moments of all "
            f"rows, which costs nothing. Leave it out."
        )
    unknown = sorted(set(settings.objective_options) - set(known))
    if unknown:
        raise InvalidInputError(
            f"{flag('objective_options')}: {unknown} do not fit objective={settings.objective!r}, which takes {known}."
            f"{registry.suggestion(unknown[0], known)}"
        )
    try:
        return make_objective({"name": settings.objective, **settings.objective_options, **sampled})
    except TypeError as error:
        raise InvalidInputError(f"{flag('objective_options')}: {error}.") from error


def _reopen_rows(model: Krepes, folder: str | Path) -> None:
    rows = rows_folder(folder, read_manifest(folder))
    if rows is not None:
        model.data_ = RowStore.open(rows, memory_budget=model.memory_budget)


def _json(values: Any) -> bytes:
    return json.dumps(values, indent=2, sort_keys=True).encode() + b"\n"
