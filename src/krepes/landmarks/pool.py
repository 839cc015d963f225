"""The candidates among which landmarks are chosen: read once, held in memory or in a file, whatever their number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import batches
from krepes.batches import Batch
from krepes.budget import Budget


@contextmanager
def open_pool(
    read: Callable[[Tensor], Batch], indices: Tensor, budget: Budget, *, raw: int, kept: int
) -> Generator[Batch, None, None]:
    """Lend the samples ``indices`` as one batch for the passes of a selector.

    Up to half of the budget they are read at once and held in memory. Beyond, they are read in pieces; what is kept of
    them goes to a temporary file if it takes more than half of the budget itself, so that the budget never decides
    which landmarks are chosen.

    Args:
        read: Returns the samples of some indices ``(b,)`` as the selector shall see them.
        indices: The candidates, ``(c,)``.
        budget: The memory budget.
        raw: Bytes per sample while it is read.
        kept: Bytes per sample of what ``read`` returns.

    Yields:
        A batch of ``c`` samples, in memory or mapped from a file that is removed on leaving, also after an error.
    """
    c = len(indices)
    if budget.fits(c * max(raw, kept), share=1 / 2):
        yield read(indices)
        return
    parts = indices.split(budget.rows(raw + kept, what="a candidate", share=1 / 4))
    if budget.fits(c * kept, share=1 / 2):
        yield batches.concatenate([read(part) for part in parts])
        return
    with tempfile.TemporaryDirectory(prefix="krepes-") as folder:
        files: list[Tensor] = []
        start = 0
        for part in parts:
            leaves, nesting = pytree.tree_flatten(read(part))
            files = files or [_new_file(Path(folder) / str(i), c, leaf) for i, leaf in enumerate(leaves)]
            for file, leaf in zip(files, leaves, strict=True):
                file[start : start + len(part)] = leaf
            start += len(part)
        yield pytree.tree_unflatten(files, nesting)


def _new_file(path: Path, c: int, like: Tensor) -> Tensor:
    """Return a tensor of ``c`` samples in a new file."""
    shape = torch.Size((c, *like.shape[1:]))
    return torch.from_file(str(path), shared=True, size=shape.numel(), dtype=like.dtype).reshape(shape)
