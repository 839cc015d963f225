"""Weights from files of others and to files of ours, without running code from a file.

A torch checkpoint is a pickle: reading one freely runs whatever it says. Here only its tensors and plain containers
are read (``weights_only=True``), with the options of a command line that DINO and MAE keep beside them, and a file that
needs more is refused. What a file claims (the length of its header, the size of its parts, the depth of its containers)
is compared with what it holds before it is believed.
"""

from __future__ import annotations

import argparse
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from krepes.data.files import foreign, named, require_file
from krepes.data.text import brief
from krepes.data.values import shown
from krepes.errors import InvalidInputError
from krepes.storage.tensorfile import read_tensors, tensor_bytes, write_tensors

FORMAT = 1
LONGEST_HEADER = 2**25
LONGEST_NAME = 1000
DEEPEST = 50
MOST_ENTRIES = 1_000_000
HARMLESS = (argparse.Namespace,)
"""Objects that may be read beside tensors: this one does nothing but keep its attributes."""
AGAIN = "Copy or save it again."


class UnsafeCheckpointError(InvalidInputError):
    """A checkpoint that can only be read by running code it brings along."""


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read every tensor of a safetensors file or a torch checkpoint, wherever the checkpoint keeps it.

    Args:
        path: The file; its content, not its name, tells which of the two it is.

    Returns:
        Tensors by name, with their container before a slash, ``state_dict/conv1.bias``; the details of a file of ours.

    Raises:
        InvalidInputError: If the file is missing, damaged, or holds no tensor.
    """
    path = require_file(path, "a safetensors file or a torch checkpoint")
    if _is_safetensors(path):
        _require_header(path)
        with foreign(f"{named(path)} is not a whole safetensors file", AGAIN):
            tensors, details = read_tensors(path)
    else:
        _require_stored(path)
        tensors, details = dict(_flatten(_read_checkpoint(path), path)), {}
    if not tensors:
        raise InvalidInputError(
            f"{named(path)} holds no tensor. Save the state dict of the encoder: encoder.state_dict()."
        )
    longest = max(tensors, key=len)
    if len(longest) > LONGEST_NAME:
        raise InvalidInputError(
            f"{named(path)} names a tensor by {len(longest):,} characters. At most {LONGEST_NAME:,} are read: {AGAIN}"
        )
    return tensors, details


def save_weights(encoder: nn.Module, path: str | Path, *, recipe: Mapping[str, Any] | None = None) -> None:
    """Save an encoder's weights, and for an encoder of this package the settings that rebuild it.

    Args:
        encoder: Any module; one that is not from this package needs its factory again when it is loaded.
        path: A safetensors file, written whole or not at all.
        recipe: Plain values that say how the encoder was trained, kept in the header.

    Example:
        >>> import tempfile
        >>> from krepes.encoders import MLP, load_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_weights(MLP(4, width=8, out=2), f"{folder}/mlp.safetensors")
        ...     load_encoder(weights=f"{folder}/mlp.safetensors").encoder(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """
    about = _about(encoder)
    write_tensors(path, encoder.state_dict(), about if recipe is None else {**about, "recipe": dict(recipe)})


def weight_bytes(encoder: nn.Module) -> bytes:
    """Return what `save_weights` would write."""
    return tensor_bytes(encoder.state_dict(), _about(encoder))


def _about(encoder: nn.Module) -> dict[str, Any]:
    config = getattr(encoder, "config", None)
    return {"format": FORMAT, "class": type(encoder).__qualname__, "encoder": config if _is_plain(config) else None}


def _is_safetensors(path: Path) -> bool:
    with foreign(f"{named(path)} cannot be opened", "Check its permissions."), path.open("rb") as handle:
        head = handle.read(9)
    # Eight bytes of length, then JSON. A zip starts with PK, a bare pickle with 0x80.
    return path.suffix == ".safetensors" or (head[8:] == b"{" and head[:2] != b"PK" and head[:1] != b"\x80")


def _require_header(path: Path) -> None:
    """Refuse a safetensors file whose header is longer than the file, or than any header of weights."""
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
    size = path.stat().st_size
    if length + 8 > size or length > LONGEST_HEADER:
        raise InvalidInputError(
            f"{named(path)} is not a whole safetensors file: it has {size:,} bytes and claims a header of {length:,} "
            f"(at most {LONGEST_HEADER:,} are read). {AGAIN}"
        )


def _require_stored(path: Path) -> None:
    """Refuse a checkpoint whose parts are packed or overlap: torch writes neither, and they may fill the memory."""
    with foreign(f"{named(path)} cannot be read as a checkpoint", AGAIN):
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    claimed, size = sum(part.file_size for part in parts), path.stat().st_size
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts) or claimed > size:
        raise InvalidInputError(
            f"{named(path)} cannot be read as a checkpoint: its {len(parts)} parts claim {claimed:,} bytes, the file "
            f"has {size:,}, and parts must not be packed. Save it with torch.save."
        )


def _is_plain(config: Any) -> bool:
    return isinstance(config, dict) and "name" in config and all(isinstance(v, (int, str)) for v in config.values())


def _read_checkpoint(path: Path) -> Any:
    try:
        with torch.serialization.safe_globals(list(HARMLESS)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise UnsafeCheckpointError(_refusal(path, shown(found.group(1)).strip("'") if found else None)) from error
    except Exception as error:  # a forged pickle can make the reader raise anything
        reason = brief(error).partition(". ")[0]
        raise InvalidInputError(
            f"{named(path)} cannot be read as a checkpoint ({reason}). Pass a safetensors file or a saved state dict."
        ) from error


def _refusal(path: Path, name: str | None) -> str:
    needs = f"needs the Python object {name}" if name else "is no pickle of tensors and plain containers"
    return (
        f"{named(path)} {needs}: reading it could run code that it brings along, so it was not read. Only tensors in "
        f"plain dicts are accepted. If you trust its source, convert it once where it was made: "
        f"checkpoint = torch.load(path, weights_only=False); "
        f"safetensors.torch.save_file(checkpoint['state_dict'], 'weights.safetensors')."
    )


def _flatten(node: Any, path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested dicts by name; lists and numbers, such as an optimiser's, are not weights.

    Args:
        node: What a checkpoint holds. Its dicts may hold one another many times over, or themselves.
        path: The file, for messages.

    Yields:
        Names with their containers, ``state_dict/conv1.bias``, and tensors.

    Raises:
        InvalidInputError: If dicts are nested without end, or in too many ways.
    """
    waiting, seen = [("", node, 0)] if isinstance(node, Mapping) else [], 0
    while waiting:
        prefix, mapping, depth = waiting.pop()
        seen += len(mapping)
        if depth > DEEPEST or seen > MOST_ENTRIES or len(prefix) > LONGEST_NAME:
            raise InvalidInputError(
                f"{named(path)} nests dicts more than {DEEPEST} deep, or holds more than {MOST_ENTRIES:,} entries: it "
                f"is no state dict. Save encoder.state_dict() alone."
            )
        inner = []
        for key, value in mapping.items():
            if isinstance(value, Tensor):
                yield f"{prefix}{_key(key)}", value
            elif isinstance(value, Mapping):
                inner.append((f"{prefix}{_key(key)}/", value, depth + 1))
        waiting += reversed(inner)


def _key(key: Any) -> str:
    """Return a key as text; Python refuses to write out integers of thousands of digits."""
    return "?" if isinstance(key, int) and key.bit_length() > LONGEST_NAME else str(key)
