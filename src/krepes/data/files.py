"""The door for files of others: what is opened at all, and how the errors of foreign parsers come out.

A parser that was not written for forged files may raise anything. `foreign` turns all of it into one error of ours that
names the file, so that no caller needs to list the exceptions of NumPy, pandas, Arrow, Pillow and torch.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from krepes.data.text import brief, printable
from krepes.errors import InvalidInputError, KrepesError


def require_file(path: str | Path, what: str) -> Path:
    """Return the path of a regular file that is not empty.

    Pipes, sockets and devices are refused before they are opened: reading one could wait for ever.

    Args:
        path: What the user named.
        what: What it should be, such as ``"a CSV or Parquet file"``.

    Returns:
        The path.

    Raises:
        InvalidInputError: If there is no such file, it is something else, or it is empty.
    """
    path = Path(path)
    try:
        size = path.stat().st_size if path.is_file() else None
        exists = size is not None or path.exists()
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{named(path)} cannot be opened: {brief(error)}. Pass the path of {what}.") from error
    if size is None:
        problem = "it is a folder, pipe or device" if exists else "there is no file of this name, or a broken link"
        raise InvalidInputError(f"{named(path)} is not a file: {problem}. Pass the path of {what}.")
    if size == 0:
        raise InvalidInputError(f"{named(path)} is empty (0 bytes). It must be {what}: copy or save it again.")
    return path


@contextmanager
def foreign(what: str, advice: str) -> Generator[None, None, None]:
    """Turn whatever the code inside raises into an `InvalidInputError`; ours pass as they are.

    Only the call of the foreign parser belongs inside, so that no mistake of ours hides behind it.

    Args:
        what: What could not be done, as the start of a sentence: ``"table.csv cannot be read as CSV"``.
        advice: What to do, a sentence.

    Yields:
        Nothing.

    Raises:
        KrepesError: Those of ours.
        InvalidInputError: In place of any other exception.
    """
    try:
        yield
    except KrepesError:
        raise
    except MemoryError as error:
        raise InvalidInputError(f"{what}: it asks for more memory than there is. {advice}") from error
    except Exception as error:
        raise InvalidInputError(f"{what} ({brief(error)}{_cause(error)}). {advice}") from error


def _cause(error: Exception) -> str:
    """Return what made an import fail: packages that import their parts late speak of the part alone."""
    first: BaseException = error
    while isinstance(error, ImportError) and first.__cause__ is not None:
        first = first.__cause__
    return "" if first is error else f"; {brief(first)}"


def named(path: str | Path) -> str:
    """Return a path as it may stand in a message."""
    return printable(path)
