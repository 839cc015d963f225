"""From a run folder back to a workspace. Opening executes nothing that the folder names: the caller names code."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from krepes import registry
from krepes.budget import Budget
from krepes.data.tabular import TabularEncoder
from krepes.data.tokens import TokenizedTexts
from krepes.encoders import load_encoder
from krepes.engine.rowstore import RowStore
from krepes.errors import InvalidInputError, KrepesError, RunFolderError
from krepes.kernels import Kernel
from krepes.model import Krepes
from krepes.runs.adapting import adapter_options
from krepes.runs.augment import open_stream
from krepes.runs.dataset import Dataset, open_dataset
from krepes.runs.encoder import output_of
from krepes.runs.fingerprint import Fingerprint
from krepes.runs.fitting import DATA, ENCODER, ENCODING, SETTINGS
from krepes.runs.losses import is_own_loss
from krepes.runs.recipe import RECIPE, Recipe, known_loss, on_the_spot
from krepes.runs.settings import Settings
from krepes.runs.store import file_path, read_file, read_manifest, rows_folder
from krepes.runs.texts import imports_code
from krepes.runs.within import within_budget
from krepes.runs.workspace import Workspace
from krepes.storage.tensorfile import read_tensor_bytes

logger = logging.getLogger("krepes")


def open_run(
    folder: str | Path,
    *,
    data: str | None = None,
    data_dir: str | None = None,
    encoder: str | nn.Module | None = None,
    trust_code: bool = False,
    allow_changed_data: bool = False,
) -> Workspace:
    """Return the workspace of a run folder.

    Args:
        folder: What `fit` wrote.
        data: Where the data are now; or a new file, whose samples are then the ones to explain.
        data_dir: Folder of the named data sets.
        encoder: The encoder itself, or ``module:factory``, where the run was fitted with one of the user's own.
        trust_code: Import the encoder, loss or tokenizer ``module:name`` that the run names. Importing runs code: only
            for runs you trust.
        allow_changed_data: Answer although the data are not those of the fit; the workspace notes it.

    Returns:
        The workspace.

    Raises:
        InvalidInputError: If the run names code that was not trusted, or the data are others.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    settings = _settings(folder, manifest)
    if imports_code(settings) and not trust_code:
        raise InvalidInputError(
            f"{folder} was fitted with a tokenizer of its user's own, {settings.tokenizer!r}. Opening a run imports "
            f"nothing: to import and run that module's code, pass --trust-code (in Python: trust_code=True)."
        )
    if is_own_loss(settings) and not trust_code:
        raise InvalidInputError(
            f"{folder} was fitted with a loss of its user's own, {settings.loss!r}. Opening a run imports nothing: to "
            f"import and run that module's code, pass --trust-code (in Python: trust_code=True)."
        )
    stored = _stored_data(folder, manifest)
    encoding = _encoding(folder, manifest)
    dataset, asked, notes = _datasets(settings, encoding, stored, data, data_dir, allow_changed_data)
    train, test = stored[0]["train"], stored[0]["test"]
    stream = within_budget(open_stream(settings, dataset, train), Budget.of(settings.memory))
    kernel = _kernel(folder, manifest, settings, encoder, trust_code)
    model = Krepes.load(folder, kernel, output=output_of(settings))
    model.stream_ = stream
    rows = rows_folder(folder, manifest)
    if rows is not None:
        model.data_ = RowStore.open(rows, memory_budget=model.memory_budget)
    test = test if asked is dataset else torch.arange(asked.n)
    recipe = _recipe(folder, manifest, settings, encoder)
    return Workspace(settings, dataset, train, asked, test, stream, model, notes, recipe, folder)


def _settings(folder: Path, manifest: dict[str, Any]) -> Settings:
    if SETTINGS not in manifest["files"]:
        raise RunFolderError(f"{folder} holds a model but no {SETTINGS}: it was not written by `krepes fit`.")
    try:
        values = json.loads(read_file(folder, manifest, SETTINGS))
    except ValueError as error:
        raise RunFolderError(f"the settings of {folder} cannot be read ({error}).") from error
    return Settings.from_dict(values, f"{folder}/{SETTINGS}")


def _recipe(
    folder: Path, manifest: dict[str, Any], settings: Settings, encoder: str | nn.Module | None
) -> Recipe | None:
    """Return how the encoder was trained, by the factory of the fit or the caller's, or ``None`` if nobody knows."""
    if isinstance(encoder, nn.Module):
        return None
    found = Recipe(settings) if on_the_spot(settings) else None
    if RECIPE in manifest["files"]:
        try:
            found = Recipe.from_dict(json.loads(read_file(folder, manifest, RECIPE)), f"{folder}/{RECIPE}")
        except (ValueError, AttributeError) as error:
            raise RunFolderError(f"{RECIPE} of {folder} cannot be used: {error}. Fit the run again.") from error
    if found is None:
        return None
    # Only a factory that `_kernel` was allowed to import is named again, and only a loss that the caller trusted.
    named = settings.encoder if encoder is None else encoder
    return known_loss(replace(found, settings=replace(found.settings, encoder=named)), settings)


def _stored_data(folder: Path, manifest: dict[str, Any]) -> tuple[dict[str, Tensor], Fingerprint]:
    """Return split and fingerprint of the data of the fit, after a check that they belong together."""
    try:
        tensors, about = read_tensor_bytes(read_file(folder, manifest, DATA))
        n, train, test = int(about["n"]), tensors["train"], tensors["test"]
        found = Fingerprint.from_tensors({"rows": tensors["hash_rows"]}, about["columns"])
        both = torch.cat([train, test])
        whole = train.dtype == test.dtype == torch.int64 and len(both) and 0 <= int(both.min()) <= int(both.max()) < n
        if not whole or len(both.unique()) != len(both) or len(found.rows) != n:
            raise ValueError("its split does not fit its samples")
    except (KeyError, TypeError, ValueError, RuntimeError, InvalidInputError) as error:
        raise RunFolderError(f"{DATA} of {folder} cannot be used: {error}. Fit the run again.") from error
    return tensors, found


def _encoding(folder: Path, manifest: dict[str, Any]) -> TabularEncoder | None:
    if ENCODING not in manifest["files"]:
        return None
    try:
        return TabularEncoder.from_dict(json.loads(read_file(folder, manifest, ENCODING)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, KrepesError):
            raise
        raise RunFolderError(f"{ENCODING} of {folder} cannot be used: {error!r}. Fit the run again.") from error


def _datasets(
    settings: Settings,
    encoding: TabularEncoder | None,
    stored: tuple[dict[str, Tensor], Fingerprint],
    data: str | None,
    data_dir: str | None,
    allow_changed_data: bool,
) -> tuple[Dataset, Dataset, tuple[str, ...]]:
    """Return the data of the fit, the data that are asked about, and what must be said of them."""
    here = replace(settings, data_dir=data_dir or settings.data_dir)
    if data is not None:
        given = open_dataset(replace(here, data=data, label=None, exclude=()), encoding)
        difference = stored[1].difference(Fingerprint.of(given), given.ids)
        if difference is None:
            return given, given, ()
        note = f"the samples explained are those of {given.name}, which is not the data of the fit: {difference}"
        original, _, notes = _datasets(settings, encoding, stored, None, data_dir, allow_changed_data)
        if isinstance(given.arrays, TokenizedTexts):  # as long as the texts of the fit, and no longer
            given = replace(given, arrays=replace(given.arrays, width=original.arrays.width))
        return original, given, (note, *notes)
    dataset = open_dataset(here, encoding)
    difference = stored[1].difference(Fingerprint.of(dataset), dataset.ids)
    if difference is None:
        return dataset, dataset, ()
    message = f"{settings.data} is not what the run was fitted on: {difference}"
    if not allow_changed_data:
        raise InvalidInputError(
            f"{message}. Restore the data or fit again; --data FILE names them where they have moved, or new samples "
            f"to explain; --allow-changed-data answers all the same, and says so."
        )
    if dataset.n != len(stored[1].rows):
        raise InvalidInputError(f"{message}. With another number of samples the split of the run has no meaning.")
    return dataset, dataset, (f"THE DATA WERE CHANGED after the fit: {difference}",)


def _kernel(
    folder: Path, manifest: dict[str, Any], settings: Settings, encoder: str | nn.Module | None, trust_code: bool
) -> nn.Module | Kernel:
    """Return the encoder of the run with its weights, or its kernel; code is imported only if the caller named it."""
    if ENCODER not in manifest["files"]:
        return _classic(folder, manifest)
    read_file(folder, manifest, ENCODER)
    weights = file_path(folder, manifest, ENCODER)
    if isinstance(encoder, nn.Module):
        return load_encoder(encoder, weights).encoder.to(settings.device)
    if registry.adapter(encoder or settings.encoder) is not None:  # an installed package, and no code of the run's
        again = replace(settings, encoder=encoder or settings.encoder)
        return load_encoder(again.encoder, weights, **adapter_options(again)).encoder.to(settings.device)
    named = settings.encoder if settings.encoder and ":" in settings.encoder else None
    if encoder is None and named is not None and not trust_code:
        raise InvalidInputError(
            f"{folder} was fitted with an encoder of its user's own, {named!r}. Opening a run imports nothing: to "
            f"import and run that module's code, pass --encoder {named} or --trust-code (in Python: encoder=, the "
            f"module itself, or trust_code=True)."
        )
    own = encoder if encoder is not None else named
    if own is not None:
        logger.info("importing %s, which runs that module's code", own)
        options: dict[str, Any] = dict(settings.encoder_options)
        return load_encoder(own, weights, **options).encoder.to(settings.device)
    return load_encoder(None, weights).encoder.to(settings.device)


def _classic(folder: Path, manifest: dict[str, Any]) -> Kernel:
    """Return the kernel without a network that a manifest describes."""
    try:
        about = dict(manifest["kernel"])
        make = registry.load(registry.KERNELS[about.pop("name")])
        return make(**about)
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"the kernel of {folder} is not one of this package ({error}).") from error
