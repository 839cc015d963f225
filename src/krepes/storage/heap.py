"""Memory that was freed and is still counted: what the C library keeps of it between two allocations.

Blocks of a few megabytes that come and go between small ones which stay, such as those of a connection to another
process, leave holes that fit nothing: a solve shared by two processes had 1.3 GB of them. They are given back here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def trim() -> None:
    """Give memory that was freed back to the system, or do nothing where the C library has no such call."""
    call = _malloc_trim()
    if call is not None:
        call(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # there is no C library to open by no name, as on Windows
        return None
    return found
