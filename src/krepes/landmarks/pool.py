"""The candidates among which landmarks are chosen: read once, held in memory or in a file, whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.views.holding import in_file


@contextmanager
def open_pool(
    read: Callable[[Tensor], Batch], indices: Tensor, budget: Budget, *, raw: int, kept: int
) -> Generator[Batch, None, None]:
    """Lend the samples ``indices`` as one batch for the passes of a selector.

    Up to a quarter of the budget they are read at once and held in memory. Beyond, they are read in pieces; what is
    kept of them goes to a temporary file if it takes more than a quarter of the budget itself, so that the budget never
    decides which landmarks are chosen. Batches of tokens may differ in length from piece to piece.

    Args:
        read: Returns the samples of some indices ``(b,)`` as the selector shall see them.
        indices: The candidates, ``(c,)``.
        budget: The memory budget.
        raw: Bytes per sample while it is read.
        kept: Bytes per sample of what ``read`` returns.

    Yields:
        A batch of ``c`` samples, in memory or mapped from a temporary file that goes with its last use; of a mapped
        one `batches.take` keeps no page in memory.
    """
    c = len(indices)
    if budget.fits(c * max(raw, kept), share=1 / 4):
        yield read(indices)
        return
    parts = indices.split(budget.rows(raw + kept, what="a candidate", share=1 / 8))
    if budget.fits(c * kept, share=1 / 4):
        yield batches.concatenate([read(part) for part in parts])
        return
    yield in_file(read, parts)
