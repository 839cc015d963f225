"""The place a run is written to: marked as ours, held by one writer at a time, with a corner for unfinished work."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from krepes.errors import RunFolderError
from krepes.processes import current
from krepes.runs.store import WORK, require_ours, require_place
from krepes.storage.files import publish

LOCK, BEGUN = ".lock", "begun.json"


def require_free(folder: str | Path) -> None:
    """Refuse a place that is not ours or cannot be written to, by what can be known without writing to it.

    Args:
        folder: Where a run shall go.

    Raises:
        RunFolderError: If it cannot go there.
    """
    require_ours(folder)
    whole = Path(os.path.realpath(folder))
    above = next(place for place in (whole, *whole.parents) if place.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise RunFolderError(
            f"{folder} cannot be written: {above} is no folder that you may write to. Choose another place."
        )


@contextmanager
def claimed(folder: str | Path, begun: dict[str, Any]) -> Generator[Path, None, None]:
    """Hold a run folder while it is written.

    What an interrupted call with the same settings had finished is found in the corner for work and used again; what
    another call left there is removed.

    Args:
        folder: Where the run goes; see `krepes.runs.store.require_place`.
        begun: The settings, as plain JSON values, that say whether unfinished work belongs to this call.

    Yields:
        The folder for unfinished work, removed when the block ends well, unless it is a part that a job leaves. Of
        several processes the first holds the folder, and all get the same place.

    Raises:
        RunFolderError: If the place is not ours, cannot be written to, or another process is writing there.
    """
    us = current()
    if not us.first:
        yield Path(us.share(""))
        us.wait()
        return
    folder = require_place(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise RunFolderError(
            f"another process is writing to {folder}. Wait until it has finished, or choose another place."
        ) from error
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be locked: {error.strerror or error}. Choose another place.") from error
    try:
        work = _corner(folder / WORK, begun)
        us.share(str(work.absolute()))
        yield work
        us.wait()
        if us.kind != "apart":
            shutil.rmtree(work, ignore_errors=True)
    finally:
        lock.release()


def _corner(work: Path, begun: dict[str, Any]) -> Path:
    note, text = work / BEGUN, json.dumps(begun, indent=2, sort_keys=True) + "\n"
    if not note.is_file() or note.read_text() != text:
        shutil.rmtree(work, ignore_errors=True)
        publish(note, lambda path: path.write_text(text))
    return work
