"""Folders of models as Hugging Face lays them out: what may be read of one, and what its JSON files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from krepes.data.files import foreign, named, require_file
from krepes.data.values import shown
from krepes.encoders.adapters.adapted import Inputs
from krepes.errors import InvalidInputError

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")
LONGEST = 2**22


def require_folder(path: str | Path) -> Path:
    """Return the folder of a model.

    Args:
        path: What the user named.

    Returns:
        The folder.

    Raises:
        InvalidInputError: If it is none, holds no configuration, or is an adapter on another model.
    """
    folder = Path(path)
    with foreign(f"{named(folder)} cannot be opened", "Pass a local folder."):
        there = folder.is_dir()
    if not there:
        raise InvalidInputError(
            f"{named(folder)} is not a local folder, and nothing is looked for on the network. Pass the folder that "
            f"model.save_pretrained(folder) wrote, or a copy made where there is a network: hf download NAME "
            f"--local-dir FOLDER."
        )
    if (folder / "adapter_config.json").exists():
        raise InvalidInputError(
            f"{named(folder)} holds an adapter (adapter_config.json), whose base model lies elsewhere. Merge them "
            f"once, model.merge_and_unload().save_pretrained(folder), or pass the module itself to Krepes."
        )
    if not (folder / CONFIG).is_file():
        raise InvalidInputError(
            f"{named(folder)} holds no {CONFIG}, so its architecture is not known. Pass the folder that "
            f"model.save_pretrained(folder) wrote."
        )
    return folder


def read_json(path: Path, what: type = dict) -> Any:
    """Return a JSON file that must hold a dict, or a list where ``what`` says so."""
    path = require_file(path, "a JSON file")
    if path.stat().st_size > LONGEST:
        raise InvalidInputError(f"{named(path)} has {path.stat().st_size:,} bytes, more than the {LONGEST:,} of any.")
    with foreign(f"{named(path)} is no JSON file", "Copy or save the model again."):
        found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, what):
        raise InvalidInputError(f"{named(path)} holds a {type(found).__name__}, not a {what.__name__}. Save it again.")
    return found


def require_weights(folder: Path) -> None:
    """Refuse a folder whose weights are not safetensors: a pickle can run code, so none is read."""
    if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
        return
    pickles = sorted(file.name for pattern in PICKLES for file in folder.glob(pattern))
    found = f"only {', '.join(named(name) for name in pickles[:3])}, which is not read" if pickles else "no weights"
    raise InvalidInputError(
        f"{named(folder)} holds {found}: {WEIGHTS} is required. Where you trust the source, convert it once: "
        f"model.save_pretrained(folder, safe_serialization=True)."
    )


def image_inputs(folder: Path) -> Inputs:
    """Return size, mean and deviation that a folder's preprocessor_config.json tells; nothing where it is absent."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return Inputs()
    config = read_json(path)
    crop = config.get("crop_size") if config.get("do_center_crop", True) else None
    size = _side(crop) or _side(config.get("size"))
    if not config.get("do_normalize", True):
        return Inputs(size=size)
    mean, std = (_numbers(config.get(key), path, key) for key in ("image_mean", "image_std"))
    return Inputs(size=size, mean=mean, std=std) if len(mean) == len(std) else Inputs(size=size)


def _side(size: Any) -> int | None:
    """Return the side of a square, of the many ways in which configurations write it."""
    if isinstance(size, dict):
        sides = {size.get("height"), size.get("width")} if "height" in size else {size.get("shortest_edge")}
        size = sides.pop() if len(sides) == 1 else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _numbers(values: Any, path: Path, key: str) -> tuple[float, ...]:
    if values is None:
        return ()
    fits = isinstance(values, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in values)
    if not fits or (key.endswith("std") and not all(x > 0 for x in values)):
        raise InvalidInputError(f"{named(path)}: {key} is {shown(values)}. It must be one number for each channel.")
    return tuple(float(x) for x in values)
