"""Files that are there whole or not at all: written to a temporary name, flushed to disk, renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from krepes.errors import KrepesError, RunFolderError


def publish(path: str | Path, write: Callable[[Path], Any]) -> Path:
    """Let ``write`` fill a temporary neighbour of ``path``, and rename it once it is safely on disk.

    The temporary name is new for each call, so that two writers never fill one file: the last to finish wins, whole. A
    link is followed, and the file that it leads to is replaced. After an error or an interrupt nothing is left behind.

    Args:
        path: The file; its folder is made, an earlier file is replaced.
        write: Fills the file it is given.

    Returns:
        The path. If the file system refuses (no permission, no room, a folder in the way), `RunFolderError` says so.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with _refusals(path):
        make_folder(target.parent)
        try:
            write(temporary)
            _flush(temporary)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _flush(target.parent)
    return Path(path)


def make_folder(folder: str | Path) -> None:
    """Make a folder and those above it, all of them or, where one cannot be made, none."""
    whole = Path(os.path.realpath(folder))
    missing = [place for place in (whole, *whole.parents) if not place.is_dir()]
    if missing and missing[-1].exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing[-1]))
    made: list[Path] = []
    try:
        for place in reversed(missing):
            place.mkdir(exist_ok=True)
            made.append(place)
    except OSError:
        for place in reversed(made):
            with suppress(OSError):  # somebody else uses it by now
                place.rmdir()
        raise


def publish_bytes(path: str | Path, content: bytes) -> Path:
    """Publish a file of this content; see `publish`."""
    return publish(path, lambda temporary: temporary.write_bytes(content))


def publish_hashed(folder: Path, name: str, fill: Callable[[Callable[[Any], Any]], Any]) -> dict[str, str]:
    """Publish a file under a name that holds its hash.

    Args:
        folder: Where to.
        name: Such as ``arrays.safetensors``.
        fill: Is given what takes the bytes, one piece after the other. It is called twice, so that nobody has to hold
            all of them.

    Returns:
        The name of the ``file`` and its ``sha256``.
    """
    sha = hashlib.sha256()
    fill(sha.update)
    stem, dot, suffix = name.partition(".")
    file = f"{stem}-{sha.hexdigest()[:12]}{dot}{suffix}"

    def write(path: Path) -> None:
        with path.open("wb") as handle:
            fill(handle.write)

    publish(folder / file, write)
    return {"file": file, "sha256": sha.hexdigest()}


def sha256_of(path: Path) -> str:
    """Return the hash of a file, which is read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def _refusals(path: str | Path) -> Generator[None, None, None]:
    """Turn an error of the file system into `RunFolderError` with the path, the reason and what to do."""
    try:
        yield
    except KrepesError:  # what the writer had to say is said already
        raise
    except OSError as error:
        raise RunFolderError(
            f"{path} could not be written: {error.strerror or error}. Check that its folder may be written to and that "
            f"the disk has room, or choose another place."
        ) from error


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # a system where a folder cannot be opened
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot flush a folder; its file was flushed, which is all that they offer.
        if not (path.is_dir() and error.errno in {errno.EINVAL, errno.ENOTSUP}):
            raise
    finally:
        os.close(handle)


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
        make_folder(path.parent)
        probe.write_bytes(b"")
        probe.unlink()
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{asked_by}: {path} cannot be written: {error}. Choose another place.") from error
    return path
