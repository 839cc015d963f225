"""Named tensors with a header in JSON as one safetensors file: same content, same bytes; reading runs nothing.

The header is in the same file as the tensors, so the two cannot disagree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.storage.files import publish
from krepes.storage.tensorstream import write_stream

HEADER = "krepes"
Tensors = dict[str, Tensor]
Header = dict[str, Any]


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], header: Header | None = None) -> None:
    """Write a safetensors file, whole or not at all.

    Args:
        path: The file; its folder is made, an earlier file is replaced.
        tensors: By name; tensors that share memory are written apart.
        header: Plain JSON values.
    """
    content, metadata = _separate(tensors), _metadata(header)

    def fill(temporary: Path) -> None:
        try:
            save_file(content, temporary, metadata=metadata)
        except SafetensorError as error:  # how the format's library reports a full disk
            raise OSError(str(error)) from error

    publish(path, fill)


def write_large(path: str | Path, tensors: Mapping[str, Tensor], header: Header | None = None) -> None:
    """Write what `write_tensors` writes, tensor by tensor, without a copy of all of them.

    Args:
        path: The file; its folder is made, an earlier file is replaced.
        tensors: By name, each in memory of its own.
        header: Plain JSON values.
    """

    def fill(temporary: Path) -> None:
        with temporary.open("wb") as file:
            write_stream(file.write, tensors, _metadata(header))

    publish(path, fill)


def read_tensors(path: str | Path) -> tuple[Tensors, Header]:
    """Read a safetensors file.

    Args:
        path: Written by `write_tensors`, or by anyone.

    Returns:
        The tensors on the CPU, and the header, empty if the file is not ours.

    Raises:
        InvalidInputError: If the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as handle:
            header = _header(handle.metadata())
            return {name: handle.get_tensor(name) for name in handle.keys()}, header
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {path}. Check the path.") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is not a whole safetensors file ({error}). Copy or save it again.") from error


def read_header(path: str | Path) -> Header:
    """Return the header of a safetensors file without its tensors; empty if it is none, or not ours."""
    try:
        with safe_open(path, framework="pt") as handle:
            return _header(handle.metadata())
    except (SafetensorError, OSError, ValueError):
        return {}


def tensor_bytes(tensors: Mapping[str, Tensor], header: Header | None = None) -> bytes:
    """Return what `write_tensors` would write, for a caller that hashes or sends it.

    Example:
        >>> content = tensor_bytes({"x": torch.ones(2)}, {"n": 2})
        >>> read_tensor_bytes(content)
        ({'x': tensor([1., 1.])}, {'n': 2})
    """
    return save(_separate(tensors), metadata=_metadata(header))


def read_tensor_bytes(content: bytes) -> tuple[Tensors, Header]:
    """Return the tensors and the header of what `tensor_bytes` returned.

    Args:
        content: A whole safetensors file.

    Returns:
        The tensors on the CPU, and the header, empty if the file is not ours.

    Raises:
        InvalidInputError: If it is no safetensors file, or not a whole one.
    """
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        return tensors, _header(json.loads(content[8 : 8 + size]).get("__metadata__"))
    except (SafetensorError, ValueError) as error:
        raise InvalidInputError(f"{len(content)} bytes are not a whole safetensors file ({error}).") from error


def _metadata(header: Header | None) -> dict[str, str] | None:
    # One entry: the format does not promise an order for several, and equal content should be equal bytes.
    return None if header is None else {HEADER: json.dumps(header, sort_keys=True)}


def _header(metadata: Mapping[str, str] | None) -> Header:
    found = json.loads((metadata or {}).get(HEADER, "{}"))
    return found if isinstance(found, dict) else {}


def _separate(tensors: Mapping[str, Tensor]) -> Tensors:
    """Return the tensors by sorted name on the CPU, each in memory of its own; only those that share are copied."""
    found, taken = Tensors(), set[int]()
    for name in sorted(tensors):
        x = tensors[name].detach().to("cpu").contiguous()
        storage = x.untyped_storage()
        if storage.data_ptr() in taken or storage.nbytes() != x.nbytes:
            x = x.clone(memory_format=torch.contiguous_format)
        taken.add(x.untyped_storage().data_ptr())
        found[name] = x
    return found
