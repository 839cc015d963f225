"""An ``(n, m)`` factor, filled block by block: in memory while it fits the budget, in a temporary file when not."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from krepes.budget import Budget


@dataclass(frozen=True)
class Factor:
    """Rows of ``F``, ``(n, m)``, on the CPU.

    Attributes:
        shape: ``(n, m)``.
        dtype: float32 or float64.
        file: Where the rows are kept, or ``None`` for memory.
        array: The rows in memory, or ``None`` for a file.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    file: Path | None
    array: Tensor | None

    def read(self, rows: slice | Tensor, k: int) -> Tensor:
        """Return the first ``k`` columns of the chosen rows, ``(b, k)``."""
        if self.array is not None:
            return self.array[rows, :k]
        return torch.from_numpy(np.array(self._mapped()[rows if isinstance(rows, slice) else rows.numpy(), :k]))

    def write(self, rows: slice, k: int, values: Tensor) -> None:
        """Put ``values`` ``(b, a)`` into the columns from ``k`` on."""
        columns = slice(k, k + values.shape[1])
        if self.array is not None:
            self.array[rows, columns] = values.cpu()
        else:
            self._mapped()[rows, columns] = values.cpu().numpy()

    def _mapped(self) -> np.memmap[tuple[int, int], np.dtype[np.float32]]:
        # Mapped anew each time: pages of a mapping that stays open would count as this process's memory.
        assert self.file is not None
        numpy_type = torch.empty(0, dtype=self.dtype).numpy().dtype
        return np.memmap(self.file, mode="r+", dtype=numpy_type, shape=self.shape)


@contextmanager
def open_factor(n: int, m: int, *, dtype: torch.dtype, budget: Budget) -> Generator[Factor, None, None]:
    """Lend a `Factor`, and remove its file on leaving, also after an error.

    Args:
        n: Rows.
        m: Columns.
        dtype: float32 or float64.
        budget: A factor above a quarter of it goes to a file; the rest is left to candidates and pieces.

    Yields:
        The factor, of unspecified content.
    """
    if budget.fits(n * m * dtype.itemsize, share=1 / 4):
        yield Factor((n, m), dtype, file=None, array=torch.empty(n, m, dtype=dtype))
        return
    with tempfile.TemporaryDirectory(prefix="krepes-") as folder:
        file = Path(folder) / "factor"
        with file.open("wb") as handle:
            handle.truncate(n * m * dtype.itemsize)
        yield Factor((n, m), dtype, file=file, array=None)
