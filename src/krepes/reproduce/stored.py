"""Trained encoders on disk: float16 weights, the recipe that made them and a hash, in the repository or in a result.

Those that take long lie in the folder ``encoders`` of the repository, outside the package: from a checkout, tables are
made again without training; from a wheel, or with ``--retrain``, encoders are trained anew.
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
from krepes.storage.files import publish

REPOSITORY = Path(__file__).parents[3] / "encoders"
"""Of a checkout; there is no such folder beside an installed package."""


def stored_encoder(
    name: str,
    settings: Settings,
    choice: tuple[str, dict[str, Any]],
    folders: Sequence[Path],
    train: Callable[[Path], nn.Module],
) -> nn.Module:
    """Return the encoder of a recipe, read from the first folder that has it, else trained and kept in the last.

    A trained encoder is used as it is stored, in float32 after rounding to float16: who reads it later sees the same.

    Args:
        name: Of its files.
        settings: The recipe; a file that was made by another is not the encoder that is asked for.
        choice: Name and arguments of the architecture.
        folders: Where to look; what is trained goes to the last.
        train: From the file for checkpoints to a trained encoder.

    Returns:
        The encoder, in eval mode.
    """
    path = _found(name, settings, folders)
    if path is None:
        path = folders[-1] / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # of processes that need it at the same time, one trains it
            if _found(name, settings, folders) is None:
                checkpoint = path.with_suffix(".checkpoint")
                store(train(checkpoint), settings, path)
                checkpoint.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
    _require_hash(path)
    architecture, options = choice
    return load_encoder(architecture, path, **options).encoder.float().eval()


def _found(name: str, settings: Settings, folders: Sequence[Path]) -> Path | None:
    """Return the weights of the first folder that has them by this recipe."""
    has = [folder for folder in folders if _recipe(folder / f"{name}.json") == _plain(settings)]
    return has[0] / f"{name}.safetensors" if has else None


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


def _require_hash(path: Path) -> None:
    wanted, found = json.loads(path.with_suffix(".json").read_text())["sha256"], _hash(path)
    if found != wanted:
        raise InvalidInputError(
            f"{path.name} has the hash {found[:12]}, its recipe says {wanted[:12]}: it was changed or damaged. Take it "
            f"from the repository again, or pass --retrain."
        )
