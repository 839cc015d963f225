"""Ctrl-C between two steps, never in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Generator[Callable[[], bool], None, None]:
    """Let Ctrl-C wait for a moment when the state is whole; a second one does not wait.

    Yields:
        A function that says whether Ctrl-C was pressed; outside the main thread, where it cannot be, never.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def remember(signum: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)
