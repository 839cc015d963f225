"""One safetensors file with a story in JSON: written whole or not at all, read without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.storage.files import publish

STORY = "krepes"


def write_tensors(path: str | Path, tensors: dict[str, Tensor], story: dict[str, Any]) -> None:
    """Write a temporary neighbour, flush it to disk, then rename it: ``path`` is never half written.

    Args:
        path: The file; its folder is made, an earlier file is replaced.
        tensors: By name; tensors that share memory are written apart.
        story: Plain JSON values, kept in the header. In the same file, it cannot disagree with the tensors.
    """
    separate = {name: x.detach().cpu().clone().contiguous() for name, x in tensors.items()}
    # One entry: the format does not promise an order for several, and equal weights should be equal bytes.
    metadata = {STORY: json.dumps(story, sort_keys=True)}
    publish(path, lambda temporary: save_file(separate, temporary, metadata=metadata))


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file.

    Args:
        path: Written by `write_tensors`, or by anyone.

    Returns:
        The tensors on the CPU, and the story, empty if the file is not ours.

    Raises:
        InvalidInputError: If the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as handle:
            story = json.loads((handle.metadata() or {}).get(STORY, "{}"))
            return {name: handle.get_tensor(name) for name in handle.keys()}, story if isinstance(story, dict) else {}
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {path}. Check the path.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is not a whole safetensors file ({error}). Copy or save it again.") from error
