"""One safetensors file with a story in JSON: written whole or not at all, read without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
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


def tensor_bytes(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """Return what `write_tensors` would write, for a file that somebody else writes."""
    separate = {name: x.detach().cpu().clone().contiguous() for name, x in tensors.items()}
    return save(separate, metadata={STORY: json.dumps(about, sort_keys=True)})


def tensors_from_bytes(content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and what is known about them from the content of a file.

    Args:
        content: What `tensor_bytes` returned.

    Returns:
        The tensors, and the plain values beside them.

    Raises:
        InvalidInputError: If the content is damaged.
    """
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        about = json.loads(header.get("__metadata__", {}).get(STORY, "{}"))
        return load(content), about if isinstance(about, dict) else {}
    except (SafetensorError, ValueError, AttributeError, KeyError) as error:
        raise InvalidInputError(f"these {len(content)} bytes are no whole safetensors file ({error}).") from error
