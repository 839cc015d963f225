"""What must not happen while a case runs: writing outside its folder, starting a program, opening a connection.

Python reports these to an audit hook, also where a library asks for them. What compiled code does on its own is caught
by looking at the folder outside before and after.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STARTED = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "subprocess.Popen",
    "pty.spawn",
}
CONNECTED = {"socket.connect", "socket.getaddrinfo", "socket.bind", "urllib.Request", "webbrowser.open"}
CHANGED = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "shutil.rmtree", "shutil.copyfile", "shutil.move",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """Collects what happened that must not; `during` says when, and inside of which folders writing is allowed."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextmanager
    def during(self, *allowed: Path) -> Generator[list[str], None, None]:
        """Watch while the body runs."""
        self.seen = []
        self.allowed = tuple(os.path.realpath(folder) + os.sep for folder in allowed)
        try:
            yield self.seen
        finally:
            self.allowed = None

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None:
            return
        if event in STARTED or event in CONNECTED:
            self.seen.append(f"{event} {arguments[:2]!r}"[:200])
        elif event in CHANGED or (event == "open" and self._writes(arguments)):
            for path in arguments[:2] if event in {"os.rename", "os.link", "shutil.move"} else arguments[:1]:
                if not self._inside(path):
                    self.seen.append(f"{event} {path!r}"[:200])

    @staticmethod
    def _writes(arguments: tuple[Any, ...]) -> bool:
        _, mode, flags = arguments
        return any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITING)

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return True
        text = os.fsdecode(path)
        # Python and torch keep what they compiled, whatever they were asked to read.
        compiled = text.endswith(".pyc") or "__pycache__" in text or "torchinductor" in text
        inside = (os.path.realpath(text) + os.sep).startswith(self.allowed or ())
        return compiled or inside or text == os.devnull


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything below a folder."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in found}
