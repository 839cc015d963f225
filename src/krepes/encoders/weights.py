"""Weights from files of others and to files of ours, without running code from a file.

A torch checkpoint is a pickle: reading one freely runs whatever it says. Here only its tensors and plain containers
are read (``weights_only=True``), and a file that needs more is refused.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from krepes.errors import InvalidInputError
from krepes.storage.tensorfile import read_tensors, write_tensors

FORMAT = 1


class UnsafeCheckpointError(InvalidInputError):
    """A checkpoint that can only be read by running code it brings along."""


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read every tensor of a safetensors file or a torch checkpoint, wherever the checkpoint keeps it.

    Args:
        path: The file; its content, not its name, tells which of the two it is.

    Returns:
        Tensors by name, with their container before a slash, ``state_dict/conv1.bias``; the story of a file of ours.

    Raises:
        InvalidInputError: If the file is missing, damaged, or holds no tensor.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}. Check the path.")
    tensors, story = read_tensors(path) if _is_safetensors(path) else (_flatten(_read_checkpoint(path)), {})
    if not tensors:
        raise InvalidInputError(f"{path} holds no tensor. Save the state dict of the encoder: encoder.state_dict().")
    return tensors, story


def save_weights(encoder: nn.Module, path: str | Path) -> None:
    """Save an encoder's weights, and for an encoder of this package the settings that rebuild it.

    Args:
        encoder: Any module; one that is not from this package needs its factory again when it is loaded.
        path: A safetensors file, written whole or not at all.

    Example:
        >>> import tempfile
        >>> from krepes.encoders import MLP, load_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_weights(MLP(4, width=8, out=2), f"{folder}/mlp.safetensors")
        ...     load_encoder(weights=f"{folder}/mlp.safetensors").encoder(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """
    config = getattr(encoder, "config", None)
    story = {"format": FORMAT, "class": type(encoder).__qualname__, "encoder": config if _is_plain(config) else None}
    write_tensors(path, encoder.state_dict(), story)


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as handle:
        head = handle.read(9)
    # Eight bytes of length, then JSON. A zip starts with PK, a bare pickle with 0x80.
    return path.suffix == ".safetensors" or (head[8:] == b"{" and head[:2] != b"PK" and head[:1] != b"\x80")


def _is_plain(config: Any) -> bool:
    return isinstance(config, dict) and "name" in config and all(isinstance(v, (int, str)) for v in config.values())


def _read_checkpoint(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise UnsafeCheckpointError(_refusal(path, found.group(1) if found else None)) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = str(error).partition(". ")[0]
        raise InvalidInputError(
            f"{path} cannot be read as a checkpoint ({reason}). Pass a safetensors file or a saved state dict."
        ) from error


def _refusal(path: Path, name: str | None) -> str:
    needs = f"needs the Python object {name}" if name else "is no pickle of tensors and plain containers"
    return (
        f"{path} {needs}: reading it could run code that it brings along, so it was not read. Only tensors in plain "
        f"dicts are accepted. If you trust its source, convert it once where it was made: "
        f"checkpoint = torch.load(path, weights_only=False); "
        f"safetensors.torch.save_file(checkpoint['state_dict'], 'weights.safetensors')."
    )


def _flatten(node: Any, path: str = "") -> dict[str, Tensor]:
    """Return the tensors of nested dicts by name; lists and numbers, such as an optimiser's, are not weights."""
    if not isinstance(node, Mapping):
        return {}
    tensors: dict[str, Tensor] = {}
    for key, value in node.items():
        if isinstance(value, Tensor):
            tensors[f"{path}{key}"] = value
        else:
            tensors |= _flatten(value, f"{path}{key}/")
    return tensors
