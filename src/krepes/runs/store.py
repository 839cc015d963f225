"""A run folder: data files under names that hold their hash, and a manifest that lists them all. Nothing is unpickled.

The manifest is replaced by one rename once everything it lists is on disk: killed at any moment, a folder holds the old
run or the new one. Files that the manifest does not list are not ours and stay where they are. The manifest carries no
time and no path, so the same fit gives the same bytes, and ``run_sha256`` covers all of them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from torch import Tensor

from krepes.batches import Batch
from krepes.errors import InvalidInputError, RunFolderError
from krepes.storage.files import make_folder, publish, publish_hashed, sha256_of
from krepes.storage.tensorstream import read_stream, write_stream

Array = Tensor | np.ndarray
Stays = Callable[[Mapping[str, Any], str, int], bool]

FORMAT = 2
MARKER, MANIFEST, SIGNATURE = "KREPES-RUN", "manifest.json", "signature.json"
ARRAYS = "arrays.safetensors"
ROWS = "rows"
WORK = ".work"
MARK = "A run folder of KREPES. Files here may be replaced by `krepes fit`; foreign files are left alone.\n"
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
OURS = re.compile(r"[a-z]+-[0-9a-f]{12}(\.[a-z]+)?")
LONGEST_MANIFEST = 1 << 28


def versions() -> dict[str, str]:
    """Return the versions a result depends on."""
    packages = ("krepes", "torch", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def is_run(folder: str | Path) -> bool:
    """Say whether a folder is a run folder of ours, finished or not."""
    return (Path(folder) / MARKER).is_file()


def require_place(folder: str | Path) -> Path:
    """Return a folder that a run may be written to: made and marked if it is new or empty, else marked by us before.

    Args:
        folder: Where the run goes; a link to a folder is followed.

    Returns:
        The folder.

    Raises:
        RunFolderError: If it holds something that is not ours, or cannot be written to.
    """
    folder = Path(folder)
    require_ours(folder)
    try:
        make_folder(folder)
        if not (folder / MARKER).is_file():
            publish(folder / MARKER, lambda path: path.write_text(MARK))
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be written: {error.strerror or error}. Choose another place.") from error
    return folder


def require_ours(folder: str | Path) -> None:
    """Refuse a file, and a folder that holds something and was not marked by us; nothing is written."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Choose another place for the run.")
    if folder.is_dir() and not (folder / MARKER).is_file() and any(folder.iterdir()):
        raise RunFolderError(
            f"{folder} exists, is not empty and is not a run folder of ours (it has no {MARKER}). Nothing in it was "
            f"touched: choose another place."
        )


def write_run(
    folder: str | Path,
    arrays: Mapping[str, Any],
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
    rows: Path | None = None,
) -> None:
    """Write a run: every file first, then the manifest by one rename, then remove what the run before had.

    Args:
        folder: Where to; see `require_place`.
        arrays: Named tensors, or arrays that are mapped from a file.
        manifest: Plain JSON values.
        files: Further files by name, such as the weights of the encoder.
        rows: A finished row store to move into the run.
    """
    folder = require_place(folder)
    listed = {ARRAYS: publish_hashed(folder, ARRAYS, partial(write_stream, tensors=arrays))}
    listed |= {name: _write(folder, name, data) for name, data in (files or {}).items()}
    if rows is not None:
        listed |= _move_rows(folder, rows)
    body = {"format": FORMAT, "files": listed, **manifest}
    text = json.dumps({**body, "run_sha256": _digest(body)}, indent=2, sort_keys=True, allow_nan=True) + "\n"
    publish(folder / MANIFEST, lambda path: path.write_text(text))
    _sweep(folder, {entry["file"] for entry in listed.values()})


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a run after its hash was checked.

    Args:
        folder: What `write_run` wrote.

    Returns:
        Plain JSON values.

    Raises:
        RunFolderError: If the folder is missing, not ours, of another format, or its manifest was altered.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        unfinished = (folder / MARKER).is_file()
        what = "an unfinished run: call the same fit again to go on" if unfinished else "not a complete run folder"
        why = f"it has no {MANIFEST}" if folder.is_dir() else "there is no folder of this name"
        raise RunFolderError(f"{folder} is {what} ({why}).")
    if (folder / MANIFEST).stat().st_size > LONGEST_MANIFEST:
        raise RunFolderError(
            f"{folder / MANIFEST} is larger than {LONGEST_MANIFEST >> 20} MiB: no manifest of ours is."
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        written, claimed, listed = manifest["format"], manifest.pop("run_sha256", None), manifest["files"]
        entries = {name: (entry["file"], entry["sha256"]) for name, entry in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(f"{folder / MANIFEST} is not a manifest of ours ({error}). Fit the run again.") from error
    if written != FORMAT:
        raise RunFolderError(f"{folder} has run format {written!r}, this version reads {FORMAT}. Fit it again.")
    if claimed != _digest(manifest):
        raise RunFolderError(f"{folder / MANIFEST} was altered: its hash is not the one it states. Restore it.")
    for name, (file, sha) in entries.items():
        _require_inside(folder, name, file, sha)
    return {**manifest, "run_sha256": claimed}


def read_run(folder: str | Path, stays: Stays | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the manifest of a run, after every hash but that of kernel rows was checked.

    Args:
        folder: What `write_run` wrote.
        stays: Says of the manifest, a name and a number of bytes whether they stay in the file.

    Returns:
        The arrays, those that stay in the file mapped from it, and the manifest.

    Raises:
        RunFolderError: If the folder is missing, truncated, altered, of another format, or not ours.
    """
    manifest = read_manifest(folder)
    for name in manifest["files"]:
        if not name.startswith(f"{ROWS}/"):
            require_file(folder, manifest, name)
    try:
        left = None if stays is None else partial(stays, manifest)
        return read_stream(file_path(folder, manifest, ARRAYS), left), manifest
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise RunFolderError(f"the arrays of {folder} cannot be read ({error}). Fit the run again.") from error


def read_file(folder: str | Path, manifest: Mapping[str, Any], name: str) -> bytes:
    """Return the content of a file that a manifest lists, after its hash was checked.

    Args:
        folder: The run.
        manifest: What `read_manifest` returned.
        name: Such as ``arrays.safetensors``.

    Returns:
        The content.

    """
    require_file(folder, manifest, name)
    return file_path(folder, manifest, name).read_bytes()


def require_file(folder: str | Path, manifest: Mapping[str, Any], name: str) -> None:
    """Raise `RunFolderError` unless a file that a manifest lists has the hash it states; it is read in pieces."""
    path = file_path(folder, manifest, name)
    try:
        found, size = sha256_of(path), path.stat().st_size
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror or error}. Restore it, or fit again.") from error
    expected = manifest["files"][name]["sha256"]
    if found != expected:
        raise RunFolderError(
            f"{path} ({size} bytes) has sha256 {found[:12]}, the manifest says {expected[:12]}: it was "
            f"truncated or altered. Restore it or fit again."
        )


def file_path(folder: str | Path, manifest: Mapping[str, Any], name: str) -> Path:
    """Return where a file that a manifest lists lies, or raise `RunFolderError` if it lists none of that name."""
    if name not in manifest["files"]:
        raise RunFolderError(f"{folder} has no {name}: it holds {', '.join(sorted(manifest['files']))}.")
    return Path(folder) / manifest["files"][name]["file"]


def rows_folder(folder: str | Path, manifest: Mapping[str, Any]) -> Path | None:
    """Return the folder of the kernel rows of a run after their hashes were checked, or ``None`` if it has none."""
    names = [name for name in manifest["files"] if name.startswith(f"{ROWS}/")]
    for name in names:
        require_file(folder, manifest, name)
    return file_path(folder, manifest, names[0]).parent if names else None


def _write(folder: Path, name: str, data: bytes) -> dict[str, str]:
    return publish_hashed(folder, name, lambda write: write(data))


def _move_rows(folder: Path, rows: Path) -> dict[str, dict[str, str]]:
    shas = {path.name: sha256_of(path) for path in sorted(rows.iterdir()) if path.is_file()}
    target = folder / f"{ROWS}-{_digest(shas)[:12]}"
    if target.exists():
        shutil.rmtree(target)
    rows.rename(target)
    return {f"{ROWS}/{name}": {"file": f"{target.name}/{name}", "sha256": sha} for name, sha in shas.items()}


def _sweep(folder: Path, kept: set[str]) -> None:
    """Remove what an earlier run of ours left: files and row stores under names with a hash, and its signature."""
    tops = {file.split("/")[0] for file in kept}
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in tops and not path.is_symlink():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / SIGNATURE).unlink(missing_ok=True)


def _require_inside(folder: Path, name: str, file: Any, sha: Any) -> None:
    """Refuse a manifest that names a place outside its folder, or no hash."""
    good = all(isinstance(text, str) for text in (name, file, sha)) and SAFE.fullmatch(file) and SAFE.fullmatch(name)
    if not good or not re.fullmatch(r"[0-9a-f]{64}", sha):
        raise RunFolderError(f"{folder / MANIFEST} lists {file!r}, which is no file of a run. Do not trust the folder.")
    if not (folder / file).resolve().is_relative_to(folder.resolve()):
        raise RunFolderError(f"{folder / file} leads outside the run folder. Do not trust this folder.")


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def flatten_batch(prefix: str, X: Batch) -> dict[str, Any]:
    """Return a batch as named tensors or arrays: one, or one dict, tuple or list of them.

    Args:
        prefix: Start of every name.
        X: The batch.

    Returns:
        ``prefix`` itself for a tensor, ``prefix.key`` for a dict, ``prefix/i`` for a tuple or list.

    Raises:
        InvalidInputError: If the batch is nested deeper.
    """
    named = {prefix: X} if isinstance(X, Array) else {}
    if isinstance(X, dict):
        named = {f"{prefix}.{key}": value for key, value in X.items()}
    elif isinstance(X, (tuple, list)):
        named = {f"{prefix}/{i}": value for i, value in enumerate(X)}
    if not named or not all(isinstance(value, Array) for value in named.values()):
        raise InvalidInputError("only tensors, and one dict, tuple or list of tensors, can be saved in a run folder.")
    return named


def unflatten_batch(prefix: str, arrays: Mapping[str, Any]) -> Batch:
    """Return the batch that `flatten_batch` named."""
    if prefix in arrays:
        return arrays[prefix]
    keyed = {name.removeprefix(f"{prefix}."): x for name, x in arrays.items() if name.startswith(f"{prefix}.")}
    if keyed:
        return keyed
    indexed = [name for name in arrays if name.startswith(f"{prefix}/")]
    return tuple(arrays[f"{prefix}/{i}"] for i in range(len(indexed)))
