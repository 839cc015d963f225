"""Rows of a linearised encoder that are needed twice, for moments and for scores: made once, and kept in a file.

Through a network, a row costs hundreds of times what reading it again does. The file is a temporary one; where the disk
has no room for it the rows are made again, which gives the same numbers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from krepes.engine.together import Span
from krepes.influence.linearised import Linearised
from krepes.processes import current
from krepes.storage import mapped
from krepes.views import ViewStream

ROOM = 2
"""Rows are kept where the disk has so many times the room that they take."""


class KeptRows:
    """The rows of all samples of this process, in ``draws`` draws of their views.

    Args:
        linearised: The encoder.
        stream: The samples.
        draws: How often each is seen.
    """

    def __init__(self, linearised: Linearised, stream: ViewStream, draws: int) -> None:
        self.linearised, self.stream, self.draws = linearised, stream, draws
        self._file: np.ndarray[Any, Any] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of what is kept: rows of all draws, views, numbers."""
        return self.draws * Span.of(self.stream, current()).n, 2, self.linearised.width

    def made(self, progress: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield samples ``(b,)`` and rows ``(2, b, Q)`` through the network, and keep them as they pass."""
        dtype = torch.empty(0, dtype=self.linearised.dtype).numpy().dtype
        room = shutil.disk_usage(tempfile.gettempdir()).free
        size = int(np.prod(self.shape)) * dtype.itemsize
        file = mapped.scratch(self.shape, dtype) if size and ROOM * size <= room else None
        start = 0
        for chosen, rows in self._through(progress):
            if file is not None:
                mapped.write(file, start, rows.transpose(0, 1).numpy())
            start += len(chosen)
            yield chosen, rows
        self._file = file

    def again(self, progress: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same samples and rows, as `made` did."""
        if self._file is None:
            yield from self._through(progress)
            return
        part = Span.of(self.stream, current())
        start = 0
        with tqdm(total=self.shape[0], desc="scores", unit=" samples", disable=not progress) as bar:
            for chosen in chain.from_iterable(part.indices() for _ in range(self.draws)):
                rows = torch.from_numpy(mapped.read(self._file, slice(start, start + len(chosen))))
                start += len(chosen)
                yield chosen, rows.transpose(0, 1)
                bar.update(len(chosen))

    def _through(self, progress: bool) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen, rows in self.linearised.views(self.stream, self.draws, progress):
            yield chosen, rows.to(self.linearised.dtype)
