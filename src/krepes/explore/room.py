"""Where the large arrays of the explorer are: in memory while the budget lasts, else in a file that goes with them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from krepes.budget import Budget

Array = np.ndarray[Any, Any]
SHARE = 0.5
"""Part of the budget that arrays may fill; the rest is for the work on them."""


class Room:
    """Arrays that live as long as the explorer.

    Args:
        budget: For all arrays together.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget, self.held, self.mapped = budget, 0, 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return an array of zeros; one that no longer fits is mapped from a temporary file."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size == 0 or self._budget.fits(self.held + size, share=SHARE):
            self.held += size
            return np.zeros(shape, dtype)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="krepes-explore-")
        self.mapped += 1
        path = Path(self._folder.name) / f"{self.mapped}.npy"
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
