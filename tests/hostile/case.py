"""One hostile case: what lies in its folder, what is done with it, and what may come of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Expect = Literal["read", "refused", "either"]


@dataclass(frozen=True)
class Case:
    """One hostile case.

    Attributes:
        kind: What is hostile about it.
        name: Says what, for the reader of a failure.
        files: Writes the files into the folder it is given.
        run: Does something with the folder and returns the answer; or the arguments of a command, run in the folder.
        expect: ``"read"``, ``"refused"``, or ``"either"`` where damage may go unseen.
        check: Raises if the answer is not the right one: what must never happen is a silent change.
        where: What the message of a refusal must contain, such as the name of the file.
        heavy: Takes seconds to set up: left to ``make slow``.
    """

    kind: str
    name: str
    files: Callable[[Path], Any]
    run: Callable[[Path], Any] | tuple[str, ...]
    expect: Expect = "either"
    check: Callable[[Any], Any] | None = None
    where: str = ""
    heavy: bool = False


def writes(name: str, content: bytes | str) -> Callable[[Path], Any]:
    """Return what writes one file into the folder."""
    data = content.encode() if isinstance(content, str) else content

    def write(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return write
