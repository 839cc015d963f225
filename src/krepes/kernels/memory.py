"""Features of samples that were seen before, kept as long as a block of work lasts.

A sketched feature depends on the sample and the kernel alone, whatever the landmarks, the transforms and the objective
are. Where many models of one encoder look at the same samples, each is sketched once:

    with features_kept("2G"):
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
from torch import Tensor

from krepes.batches import Batch
from krepes.budget import Budget, MemoryBudget

Seen = tuple[Tensor, Tensor]
"""Features ``(n, q)`` and embeddings ``(n, d)`` of ``n`` samples."""


@dataclass(eq=False)
class Memory:
    """What is kept of samples: features and embedding, by the kernel and the bytes of a sample.

    Attributes:
        room: Bytes that are left; a sample that finds none is sketched anew each time.
        known: Feature ``(q,)`` and embedding ``(d,)``, by digest.
    """

    room: float
    known: dict[bytes, Seen] = field(default_factory=dict)

    def look_up(self, kernel: str, X: Tensor, make: Callable[[Tensor], Seen]) -> Seen:
        """Return features and embeddings of samples ``(n, ...)``, made now for those that were not seen before.

        Args:
            kernel: A text that differs where features would.
            X: The samples.
            make: From samples to what is kept of them.

        Returns:
            Those of all samples, in order.
        """
        start = f"{kernel}{X.dtype}{tuple(X.shape[1:])}".encode()
        bytes_of = X.detach().cpu().reshape(len(X), -1).contiguous().view(torch.uint8).numpy()
        marks = [blake2b(start + x.tobytes(), digest_size=16).digest() for x in bytes_of]
        new = list({mark: i for i, mark in enumerate(marks) if mark not in self.known}.values())
        made: dict[bytes, Seen] = {}
        if new:
            phi, Z = make(X[torch.tensor(new, device=X.device)])
            made = {marks[i]: (phi[place], Z[place]) for place, i in enumerate(new)}
            size = phi.nbytes + Z.nbytes
            if size <= self.room:  # rows of one piece share its memory, so a piece is kept whole or not at all
                self.room -= size
                self.known |= made
        found = [made[mark] if mark in made else self.known[mark] for mark in marks]
        return torch.stack([one for one, _ in found]), torch.stack([one for _, one in found])


_memory: ContextVar[Memory | None] = ContextVar("_memory", default=None)


@contextmanager
def features_kept(budget: MemoryBudget) -> Generator[Memory, None, None]:
    """Keep sketched features of all samples that are tensors, as long as the block lasts.

    Args:
        budget: Bytes that may be kept, or text such as ``"2G"``.

    Yields:
        What is kept.
    """
    token = _memory.set(Memory(Budget.of(budget).bytes))
    try:
        yield _memory.get()  # type: ignore[misc]
    finally:
        _memory.reset(token)


def seen(kernel: Callable[[], str], X: Batch, make: Callable[[Batch], Seen]) -> Seen:
    """Return what ``make`` returns for samples ``X``; within `features_kept` it is given only those that are new.

    Args:
        kernel: Returns a text that differs where features would; asked only where something is kept.
        X: The samples.
        make: From samples to their features and embeddings.

    Returns:
        Features and embeddings.
    """
    memory = _memory.get()
    if memory is None or not isinstance(X, Tensor):
        return make(X)
    return memory.look_up(kernel(), X, make)
