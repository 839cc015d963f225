"""Serve the explorer on this machine: one socket on 127.0.0.1, one random token, until it is interrupted."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from krepes.errors import InvalidInputError
from krepes.explore.run import Run
from krepes.explore.state import State
from krepes.explore.subject import Subject

HOST = "127.0.0.1"
NEEDED = ("fastapi", "uvicorn")


def require_packages() -> None:
    """Refuse to begin without what serves the page.

    Raises:
        InvalidInputError: If a package is missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidInputError(f"the explorer needs {' and '.join(missing)}: pip install 'krepes[explore]'.")


@dataclass
class Server:
    """The explorer of one or two runs, bound but not yet serving.

    Attributes:
        application: What answers, behind its guard.
        bound: The socket.
        token: Random, in the address that is shown to the user and nowhere else.
    """

    application: Any = field(repr=False)
    bound: socket.socket = field(repr=False)
    token: str = field(repr=False)
    _uvicorn: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, subjects: Sequence[Subject], *, port: int = 0, framed: bool = False, progress: bool = True) -> Server:
        """Bind, then open the runs.

        Args:
            subjects: One or two.
            port: To listen on; 0 for any that is free.
            framed: Whether a notebook on this machine may show the page.
            progress: Show bars while runs are opened.

        Returns:
            The server.
        """
        require_packages()
        from krepes.explore.api import Api
        from krepes.explore.security import Guard

        bound = _bound(port)
        runs = [Run(State.of(subject, progress=progress)) for subject in subjects]
        token, number = secrets.token_urlsafe(32), bound.getsockname()[1]
        hosts = frozenset({f"{HOST}:{number}", f"localhost:{number}"})
        return cls(Guard(Api(runs).application(), token, hosts, framed), bound, token)

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://{HOST}:{self.bound.getsockname()[1]}/?token={self.token}"

    def run(self) -> None:
        """Serve until interrupted."""
        import uvicorn

        config = uvicorn.Config(
            self.application, log_level="error", access_log=False, server_header=False, lifespan="off", ws="none"
        )
        self._uvicorn = uvicorn.Server(config)
        with contextlib.closing(self.bound):
            self._uvicorn.run(sockets=[self.bound])

    def start(self) -> threading.Thread:
        """Serve in the background, and return once questions are answered."""
        thread = threading.Thread(target=self.run, name="krepes-explore", daemon=True)
        thread.start()
        while thread.is_alive() and not (self._uvicorn is not None and self._uvicorn.started):
            time.sleep(0.01)
        return thread

    def stop(self) -> None:
        """Stop serving."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True


def _bound(port: int) -> socket.socket:
    """Return a socket on this machine alone; refuse a port that is taken, before any work."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else answers wait for 40 ms
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen()  # who asks before the first answer can be given waits for it, instead of being refused
    except OSError as error:
        found.close()
        raise InvalidInputError(
            f"--port {port} cannot be used: {error.strerror}. Leave it out for a free one."
        ) from error
    return found
