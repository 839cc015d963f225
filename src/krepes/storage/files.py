"""Files that are there whole or not at all: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
