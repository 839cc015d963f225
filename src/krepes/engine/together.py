"""A pass by several processes: each goes over its own batches, and what they found is put together in their order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

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

    def __iter__(self) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches as a pass over all of the stream would."""
        size = self.stream.batch_size
        for number in range(self.start, self.stop):
            indices = torch.arange(number * size, min((number + 1) * size, self.stream.n))
            yield indices, self.stream.views_of(indices)


def corner(folder: str | Path | None, us: Processes) -> Path | None:
    """Return where a process keeps its finished shards below a folder; alone it is the folder itself."""
    if folder is None or us.count == 1:
        return None if folder is None else Path(folder)
    return Path(folder) / f"{us.rank + 1}-of-{us.count}"


def together(mine: Span, us: Processes, collect: Callable[[Span], Moments]) -> Moments:
    """Return the moments of the samples of all processes, the same ones everywhere.

    Args:
        mine: What this process goes over; it may be empty.
        us: The processes.
        collect: The moments of a span that is not.

    Returns:
        Their moments, merged in the order of the processes.
    """
    part = collect(mine) if mine.n else None
    total: Moments | None = None
    for found in _moments_of_each(part, us):
        if found is not None:
            total = found if total is None else total + found
    assert total is not None
    return total


def _moments_of_each(part: Moments | None, us: Processes) -> Iterator[Moments | None]:
    if us.count == 1:
        yield part
        return
    # Plain fields, not the object: what crosses between processes are numbers and arrays.
    mine = None if part is None else {field.name: getattr(part, field.name) for field in fields(part)}
    for found in us.parts(mine):
        yield None if found is None else Moments(**found)


def rows_together(
    mine: Span, folder: Path, us: Processes, budget: Budget, store: Callable[[Span, Path], None]
) -> RowStore:
    """Return one store of the rows of all processes, in a folder that all of them see.

    Args:
        mine: What this process goes over; it may be empty.
        folder: Of the whole store.
        us: The processes.
        budget: What objectives may keep of the rows.
        store: Writes the rows of a span to a folder.

    Returns:
        The store.
    """
    if us.count == 1:
        store(mine, folder)
        return RowStore.open(folder, memory_budget=budget)
    place = corner(folder, us)
    assert place is not None
    if mine.n and not (folder / "store.json").exists():
        store(mine, place)
    us.wait()
    if us.first and not (folder / "store.json").exists():
        places = [corner(folder, Processes(rank, us.count)) for rank in range(us.count)]
        found = [path for path in places if path is not None and path.is_dir()]
        join_stores(found, folder)
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
    us.wait()
    return RowStore.open(folder, memory_budget=budget)
