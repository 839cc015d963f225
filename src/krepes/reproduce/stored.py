"""Trained encoders on disk: float16 weights, the recipe that made them and a hash, in the repository or in a result.

Those that take long, and small ones, lie in the folder ``encoders`` of the repository, outside the package: from a
checkout, tables are made again without the hours, and by the same weights on any kind of machine; from a wheel, or with
``--retrain``, encoders are trained anew. A call with ``--retrain`` has a folder of its own, ``encoders-retrained/1``
and so on: its targets, seeds and processes share what it trains there, and one that was interrupted goes on in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch import nn

from krepes.encoders import load_encoder, save_weights
from krepes.encoders.duplicate import duplicate
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings
from krepes.storage.files import publish, publish_bytes

REPOSITORY = Path(__file__).parents[3] / "encoders"
"""Of a checkout; there is no such folder beside an installed package."""
RETRAINED, UNFINISHED = "encoders-retrained", "unfinished"
"""Where calls that train anew keep their encoders, and the file that tells the one which has not ended."""


def open_retraining(results: Path, commit: str) -> Path:
    """Return the folder for the encoders of a call that trains all anew.

    Args:
        results: Of the reproductions.
        commit: Of the code: what another one left unfinished is not gone on with.

    Returns:
        That of the last such call if it has not ended, else a new one.
    """
    numbers = [int(one.name) for one in (results / RETRAINED).glob("*") if one.name.isdecimal()]
    last = results / RETRAINED / str(max(numbers, default=0))
    if (last / UNFINISHED).is_file() and (last / UNFINISHED).read_text() == commit:
        return last
    made = last.with_name(str(max(numbers, default=0) + 1))
    publish_bytes(made / UNFINISHED, commit.encode())
    return made


def end_retraining(results: Path) -> None:
    """Say that a call which trained all anew has ended: the next one begins in a folder of its own."""
    for mark in (results / RETRAINED).glob(f"*/{UNFINISHED}"):
        mark.unlink(missing_ok=True)


def stored_encoder(
    name: str,
    settings: Settings,
    choice: tuple[str, dict[str, Any]],
    folders: Sequence[Path],
    train: Callable[[Path], nn.Module],
    *,
    again: bool = False,
) -> nn.Module:
    """Return the encoder of a recipe, read from the first folder that has it, else trained and kept in the last.

    A trained encoder is used as it is stored, in float32 after rounding to float16: who reads it later sees the same.

    Args:
        name: Of its files.
        settings: The recipe; a file that was made by another is not the encoder that is asked for.
        choice: Name and arguments of the architecture.
        folders: Where to look; what is trained goes to the last.
        train: From the file for checkpoints to a trained encoder.
        again: Train an encoder again whose file was changed or damaged, instead of refusing it.

    Returns:
        The encoder, in eval mode.
    """
    path = _found(name, settings, folders, again)
    if path is None:
        path = folders[-1] / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # of processes that need it at the same time, one trains it
            if _found(name, settings, folders, again) is None:
                checkpoint = path.with_suffix(".checkpoint")
                store(train(checkpoint), settings, path)
                checkpoint.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
    _require_hash(path)
    architecture, options = choice
    return load_encoder(architecture, path, **options).encoder.float().eval()


def _found(name: str, settings: Settings, folders: Sequence[Path], whole: bool) -> Path | None:
    """Return the weights of the first folder that has them by this recipe; only ``whole`` ones, or damaged ones too."""
    paths = [folder / f"{name}.safetensors" for folder in folders]
    has = [path for path in paths if _recipe(path.with_suffix(".json")) == _plain(settings)]
    return next((path for path in has if not whole or _hash(path) == _wanted(path)), None)


def store(encoder: nn.Module, settings: Settings, path: Path) -> None:
    """Write an encoder in float16, and beside it the recipe and the hash of the file, which make it valid.

    Args:
        encoder: As trained.
        settings: The recipe.
        path: Of the weights, ending in ``.safetensors``.
    """
    save_weights(duplicate(encoder).half(), path)
    details = {"sha256": _hash(path), "settings": settings.to_dict()}
    text = json.dumps(details, indent=2, sort_keys=True) + "\n"
    publish(path.with_suffix(".json"), lambda temporary: temporary.write_text(text))


def _recipe(path: Path) -> Any:
    """Return the recipe beside stored weights, or nothing where there is none."""
    if not (path.is_file() and path.with_suffix(".safetensors").is_file()):
        return None
    return _plain(Settings.from_dict(json.loads(path.read_text())["settings"]))  # a setting added since has its default


def _plain(settings: Settings) -> Any:
    """Return settings as a file has them."""
    return json.loads(json.dumps(settings.to_dict()))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _wanted(path: Path) -> str:
    return str(json.loads(path.with_suffix(".json").read_text())["sha256"])


def _require_hash(path: Path) -> None:
    wanted, found = _wanted(path), _hash(path)
    if found != wanted:
        raise InvalidInputError(
            f"{path.name} has the hash {found[:12]}, its recipe says {wanted[:12]}: it was changed or damaged. Take it "
            f"from the repository again, or pass --retrain."
        )
