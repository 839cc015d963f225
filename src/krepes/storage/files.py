"""Files that are there whole or not at all: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from krepes.errors import RunFolderError


def publish(path: str | Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a temporary neighbour of ``path``, and rename it once it is safely on disk.

    Args:
        path: The file; its folder is made, an earlier file is replaced.
        write: Fills the file it is given.

    Returns:
        The path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary)
    with temporary.open("rb+") as handle:
        os.fsync(handle.fileno())
    return temporary.replace(path)


def require_writable(path: str | Path, asked_by: str) -> Path:
    """Return a path that a file can be written to, after its folder was made; refuse it before any work otherwise.

    Args:
        path: The file.
        asked_by: The flag or argument that named it, for the message.

    Returns:
        The path.

    Raises:
        RunFolderError: If it is a folder, or cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise RunFolderError(f"{asked_by}: {path} is a folder. Name a file.")
    probe = path.with_name(f".{path.name}.{os.getpid()}.probe")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{asked_by}: {path} cannot be written: {error}. Choose another place.") from error
    return path
