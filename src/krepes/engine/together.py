"""A pass by several processes: each goes over its own batches, and what they found is put together in their order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krepes.batches import Batch
from krepes.budget import Budget
from krepes.engine.moments import Moments
from krepes.engine.rowstore import RowStore, join_stores
from krepes.processes import Processes
from krepes.views import ViewStream


@dataclass(frozen=True)
class Span:
    """The batches ``start`` to ``stop`` of a stream: what one process goes over.

    Attributes:
        stream: The whole of it.
        start: First batch.
        stop: The one after the last.
    """

    stream: ViewStream
    start: int
    stop: int

    @classmethod
    def of(cls, stream: ViewStream, us: Processes) -> Span:
        """Return the part of a process."""
        return cls(stream, *us.span(len(stream)))

    @property
    def n(self) -> int:
        """Number of samples."""
        size, n = self.stream.batch_size, self.stream.n
        return min(self.stop * size, n) - min(self.start * size, n)

    def indices(self) -> Iterator[Tensor]:
        """Yield the places ``(b,)`` of each batch's samples, without their views."""
        size = self.stream.batch_size
        for number in range(self.start, self.stop):
            yield torch.arange(number * size, min((number + 1) * size, self.stream.n))

    def __iter__(self) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches as a pass over all of the stream would."""
        for indices in self.indices():
            yield indices, self.stream.views_of(indices)


def spans_of(stream: ViewStream, us: Processes) -> dict[int, Span]:
    """Return what this process has to see to, by rank; parts without a batch are left out."""
    found = {rank: Span.of(stream, Processes(rank, us.count)) for rank in us.covered}
    return {rank: span for rank, span in found.items() if span.n}


def corner(folder: Path, rank: int, count: int) -> Path:
    """Return where finished shards of one part are kept below a folder; that of the only one is the folder itself."""
    return folder if count == 1 else folder / f"{rank + 1}-of-{count}"


def together(
    stream: ViewStream, folder: Path | None, us: Processes, collect: Callable[[Span, Path | None], Moments]
) -> Moments | None:
    """Return the moments of the samples of all processes, the same ones everywhere.

    Args:
        stream: The views.
        folder: Where finished shards are kept, or ``None``.
        us: The processes.
        collect: The moments of a span, whose shards are kept in a folder.

    Returns:
        Their moments, merged in the order of the processes; of a job that is apart its own, if it has a batch.
    """
    total: Moments | None = None
    for rank, span in spans_of(stream, us).items():
        total = _plus(total, collect(span, None if folder is None else corner(folder, rank, us.count)))
    return merged(us, total)


def merged(us: Processes, part: Moments | None) -> Moments | None:
    """Return the moments of all processes, merged in their order, from those of this one, if it has any."""
    if not us.talking:
        return part
    # Plain fields, not the object: what crosses between processes are numbers and arrays, one at a time.
    mine: dict[str, Any] = {} if part is None else {field.name: getattr(part, field.name) for field in fields(part)}
    total: Moments | None = None
    for source in range(us.count):
        numbers = us.share({key: x for key, x in mine.items() if not isinstance(x, Tensor)}, source)
        arrays: dict[str, Any] = us.share_tensors({key: x for key, x in mine.items() if isinstance(x, Tensor)}, source)
        total = _plus(total, Moments(**numbers, **arrays)) if arrays else total
    return total


def _plus(total: Moments | None, part: Moments) -> Moments:
    if total is None:
        return part
    total += part
    return total


def rows_together(
    stream: ViewStream, folder: Path, us: Processes, budget: Budget, store: Callable[[Span, Path], None]
) -> RowStore | None:
    """Return one store of the rows of all processes, in a folder that all of them see.

    Args:
        stream: The views.
        folder: Of the whole store.
        us: The processes.
        budget: What objectives may keep of the rows.
        store: Writes the rows of a span to a folder.

    Returns:
        The store; ``None`` for a job that is apart.
    """
    places = {rank: corner(folder, rank, us.count) for rank in range(us.count)}
    if us.count == 1 or not (folder / "store.json").exists():
        for rank, span in spans_of(stream, us).items():
            store(span, places[rank])
    if us.kind == "apart":
        return None
    us.wait()
    if us.count > 1 and us.first and not (folder / "store.json").exists():
        found = [path for path in places.values() if path.is_dir()]
        join_stores(found, folder)
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    us.wait()
    return RowStore.open(folder, memory_budget=budget)
