"""A run folder: ``arrays.safetensors`` and ``manifest.json``, written whole or not at all, never unpickled.

The manifest carries the sha256 of the arrays, so that a truncated, edited or foreign folder is recognised. It holds no
time and no path: the same fit gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from krepes.batches import Batch
from krepes.errors import InvalidInputError, RunFolderError
from krepes.storage.files import publish

FORMAT = 1
ARRAYS, MANIFEST = "arrays.safetensors", "manifest.json"


def versions() -> dict[str, str]:
    """Return the versions a result depends on."""
    packages = ("krepes", "torch", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def write_run(
    folder: str | Path, arrays: dict[str, Tensor], manifest: dict[str, Any], files: Mapping[str, bytes] | None = None
) -> None:
    """Write a run folder: into a temporary neighbour, flushed to disk, then renamed.

    Args:
        folder: Where to; an earlier run of ours there is replaced, anything else is left alone.
        arrays: Named tensors.
        manifest: Plain JSON values.
        files: Further files by name, such as the weights of the encoder; their sha256 enters the manifest.

    Raises:
        RunFolderError: If ``folder`` exists and is not a run folder.
    """
    folder = Path(folder)
    if folder.exists() and not (folder / MANIFEST).exists():
        raise RunFolderError(
            f"{folder} exists and is not a run folder (it has no {MANIFEST}). Choose another place, or remove it."
        )
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    content = save_safetensors({name: x.detach().cpu().contiguous() for name, x in sorted(arrays.items())})
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in (files or {}).items()}
    manifest = {"format": FORMAT, "arrays_sha256": hashlib.sha256(content).hexdigest(), "files": sums, **manifest}
    publish(temporary / ARRAYS, lambda path: path.write_bytes(content))
    for name, data in (files or {}).items():
        publish(temporary / name, partial(Path.write_bytes, data=data))
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    publish(temporary / MANIFEST, lambda path: path.write_text(text))
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_run(folder: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a run folder back.

    Args:
        folder: What `write_run` wrote.

    Returns:
        The arrays and the manifest.

    Raises:
        RunFolderError: If the folder is missing, truncated, altered, of another format, or not ours.
    """
    folder = Path(folder)
    for name in (MANIFEST, ARRAYS):
        if not (folder / name).is_file():
            raise RunFolderError(f"{folder} is not a complete run folder: it has no {name}. Save the run again.")
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        written, expected = manifest["format"], manifest["arrays_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder / MANIFEST} is not a manifest of ours ({error}). Save the run again.") from error
    if written != FORMAT:
        raise RunFolderError(f"{folder} has run format {written}, this version reads {FORMAT}. Use the other version.")
    content = (folder / ARRAYS).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise RunFolderError(
            f"{folder / ARRAYS} ({len(content)} bytes) has sha256 {found[:12]}, the manifest says {expected[:12]}: "
            f"it was truncated or altered. Restore it or save the run again."
        )
    for name, expected in manifest.get("files", {}).items():
        path = folder / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        if found != expected:
            raise RunFolderError(f"{path} has sha256 {found[:12]}, the manifest says {expected[:12]}. Restore it.")
    try:
        return load_safetensors(content), manifest
    except SafetensorError as error:
        raise RunFolderError(f"{folder / ARRAYS} cannot be read ({error}). Save the run again.") from error


def flatten_batch(prefix: str, X: Batch) -> dict[str, Tensor]:
    """Return a batch as named tensors: a tensor, or one dict, tuple or list of tensors.

    Args:
        prefix: Start of every name.
        X: The batch.

    Returns:
        ``prefix`` itself for a tensor, ``prefix.key`` for a dict, ``prefix/i`` for a tuple or list.

    Raises:
        InvalidInputError: If the batch is nested deeper.
    """
    named = {prefix: X} if isinstance(X, Tensor) else {}
    if isinstance(X, dict):
        named = {f"{prefix}.{key}": value for key, value in X.items()}
    elif isinstance(X, (tuple, list)):
        named = {f"{prefix}/{i}": value for i, value in enumerate(X)}
    if not named or not all(isinstance(value, Tensor) for value in named.values()):
        raise InvalidInputError("only tensors, and one dict, tuple or list of tensors, can be saved in a run folder.")
    return named


def unflatten_batch(prefix: str, arrays: dict[str, Tensor]) -> Batch:
    """Return the batch that `flatten_batch` named."""
    if prefix in arrays:
        return arrays[prefix]
    keyed = {name.removeprefix(f"{prefix}."): x for name, x in arrays.items() if name.startswith(f"{prefix}.")}
    if keyed:
        return keyed
    indexed = [name for name in arrays if name.startswith(f"{prefix}/")]
    return tuple(arrays[f"{prefix}/{i}"] for i in range(len(indexed)))
