"""One schema for every ``describe()``: ``{"name": ..., **settings}`` of plain JSON values.

Kernels, objectives, augmentations, streams and selectors are recorded by it in manifests and fingerprints, so it holds
what fixes a result and nothing else: a memory budget, which changes results at round-off only, is left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

Description = dict[str, Any]


def described(name: str, settings: Mapping[str, Any]) -> Description:
    """Return ``{"name": name, **settings}`` in plain JSON values.

    Args:
        name: Of the kind of thing.
        settings: What fixes it: numbers, text, things with a ``describe`` of their own, tensors (by shape and digest),
            functions (by qualified name), and dicts, tuples or lists of them.

    Returns:
        The description.

    Example:
        >>> described("shift", {"by": (1, 2), "dtype": torch.float32, "how": torch.nn.functional.relu})
        {'name': 'shift', 'by': [1, 2], 'dtype': 'torch.float32', 'how': 'torch.nn.functional.relu'}
    """
    return {"name": name, **{key: _plain(value) for key, value in settings.items() if key != "name"}}


def fields_of(thing: Any) -> dict[str, Any]:
    """Return the settings of a dataclass by name, without its memory budget."""
    return {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.name != "memory_budget"}


def digest(array: Tensor | np.ndarray) -> str:
    """Return a sha256 of type, shape and content."""
    values = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
    return digest_in_pieces(values.shape, [values])


def digest_in_pieces(shape: tuple[int, ...], pieces: Iterable[np.ndarray]) -> str:
    """Return `digest` of an array of some shape whose first axis is given piece by piece, at least one."""
    sha = None
    for piece in pieces:
        sha = sha or hashlib.sha256(f"{piece.dtype.str}{shape}".encode())
        sha.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    assert sha is not None
    return sha.hexdigest()


def qualified_name(function: Any) -> str:
    """Return ``module.name`` of a function, or of the class of something that can be called."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _plain(value: Any) -> Any:
    if hasattr(value, "describe"):
        return value.describe()
    if isinstance(value, (Tensor, np.ndarray)):
        return {"shape": list(value.shape), "sha256": digest(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.dtype):
        return str(value)
    return qualified_name(value) if callable(value) else value
