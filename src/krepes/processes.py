"""Several processes that share one piece of work: which part is mine, and how the parts meet.

``torchrun`` starts them, torch.distributed connects them: gloo for what lies on the CPU, nccl on GPUs. A single process
goes the same way, with nothing to wait for. Parts are merged in the order of the processes, so that a result depends
on their number and on nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from krepes.errors import InvalidInputError

T = TypeVar("T")
PATIENCE = timedelta(days=7)
"""How long a process waits for another, which may train or solve meanwhile; a lost one is noticed by torchrun."""


@dataclass(frozen=True)
class Processes:
    """This process among its like.

    Attributes:
        rank: Its number, from zero.
        count: How many there are.
        kind: ``"connected"`` by torch.distributed; ``"apart"``, one job of a queue, which does its part of a pass and
            knows nothing of the others; or ``"merging"``, the one that puts their parts together afterwards.
    """

    rank: int = 0
    count: int = 1
    kind: Literal["connected", "apart", "merging"] = "connected"

    @property
    def covered(self) -> range:
        """Ranks whose parts this process has to see to: its own, or all of them when it merges what others found."""
        return range(self.count) if self.kind == "merging" else range(self.rank, self.rank + 1)

    @property
    def talking(self) -> bool:
        """Whether there are others to exchange something with."""
        return self.count > 1 and self.kind == "connected"

    @property
    def first(self) -> bool:
        """Whether it is the one that writes and speaks."""
        return self.rank == 0 or not self.talking

    def span(self, total: int) -> tuple[int, int]:
        """Return where this process's part of ``total`` things begins and ends: parts differ by one at most."""
        return self.rank * total // self.count, (self.rank + 1) * total // self.count

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.talking:
            dist.barrier()

    def share(self, value: T, source: int = 0) -> T:
        """Return the value that one process has, everywhere; the others may pass anything.

        Args:
            value: What pickle can carry, for processes of one job trust each other.
            source: Whose value.

        Returns:
            That of ``source``.
        """
        if not self.talking:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=source)
        return box[0]

    def share_tensors(self, tensors: dict[str, Tensor], source: int = 0) -> dict[str, Tensor]:
        """Return the tensors that one process has, everywhere, without a second copy of them.

        Args:
            tensors: On the CPU, by name; those of the others are left as they are.
            source: Whose tensors.

        Returns:
            Those of ``source``; there they are its own.
        """
        about = self.share({name: (x.shape, x.dtype) for name, x in tensors.items()}, source)
        if not self.talking:
            return tensors
        mine = self.rank == source
        found = {
            name: tensors[name].contiguous() if mine else torch.empty(shape, dtype=dtype)
            for name, (shape, dtype) in about.items()
        }
        for x in found.values():
            dist.broadcast(x, src=source)
        return found

    def parts(self, value: T) -> Iterator[T]:
        """Yield the value of each process, in their order, everywhere; one is held at a time."""
        for source in range(self.count if self.talking else 1):
            yield self.share(value, source)

    def summed(self, x: Tensor) -> Tensor:
        """Return the sum of ``x`` over processes, the same bytes everywhere; it is as fast as the network allows."""
        total = x.detach().clone(memory_format=torch.contiguous_format)
        if self.talking:
            dist.all_reduce(total)
        return total

    def any(self, asked: bool) -> bool:
        """Return whether any process says so."""
        return bool(self.summed(torch.tensor(int(asked)))) if self.talking else asked

    def rows(self, indices: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what ``make`` returns for ``indices`` ``(b,)``, ``(b, ...)``, each process making its part.

        Args:
            indices: The same ones everywhere.
            make: From some of them to one row for each.

        Returns:
            All rows, in order.
        """
        if not self.talking or len(indices) < self.count:
            return make(indices)
        low, high = self.span(len(indices))
        return torch.cat(list(self.parts(make(indices[low:high]))))


def require_alone(what: str) -> None:
    """Refuse work that processes would only repeat.

    Args:
        what: It, as the user asked for it.

    Raises:
        InvalidInputError: If several processes are connected.
    """
    if current().talking:
        raise InvalidInputError(
            f"{what} runs in one process, and torchrun started {current().count}. Call it without torchrun."
        )


_alone: ContextVar[Processes | None] = ContextVar("_alone", default=None)


@contextmanager
def acting_as(us: Processes) -> Generator[None, None, None]:
    """Let this process be one job of a queue, or the one that merges, as long as the block lasts."""
    token = _alone.set(us)
    try:
        yield
    finally:
        _alone.reset(token)


def current() -> Processes:
    """Return this process among those that torch.distributed connects, or alone."""
    acting = _alone.get()
    if acting is not None:
        return acting
    if not (dist.is_available() and dist.is_initialized()):
        return Processes()
    return Processes(dist.get_rank(), dist.get_world_size())


def started_by_torchrun() -> int:
    """Return how many processes ``torchrun`` started, 1 if it did not start this one."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def _meeting_place() -> tuple[Any, int, int]:
    """Return the store where processes find each other, this one's rank, and how many there are.

    On one machine torchrun gives processes that it starts again the store of those before them, in which a fast one
    would find the address of a lost one and wait for it: so every start has names of its own. On several machines each
    start has a store of its own, and the count of starts is not the same on all of them.
    """
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        store = dist.PrefixStore(f"krepes/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)  # type: ignore[attr-defined]
    return store, rank, count


@contextmanager
def connected() -> Generator[Processes, None, None]:
    """Connect the processes that ``torchrun`` started, as long as the block lasts; alone, do nothing."""
    if started_by_torchrun() == 1 or dist.is_initialized():
        yield current()
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, count = _meeting_place()
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    try:
        yield current()
    finally:
        dist.destroy_process_group()
