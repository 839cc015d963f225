"""Rows that several processes go over together: the first leads the solve, the others add up what it asks for.

Only the first process decides anything, so that another machine's rounding cannot lead two of them apart. Sums are
added in the order of the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from torch import Tensor

from krepes.budget import Budget
from krepes.engine.moments import Moments
from krepes.objectives.base import RowSource
from krepes.objectives.parts import Batched, Part, Sums
from krepes.processes import Processes
from krepes.storage.heap import trim

T = TypeVar("T")


@dataclass(frozen=True)
class SharedRows:
    """Rows of which each process adds up its own batches; a `RowSource` for the process that leads.

    Attributes:
        rows: All of them, which every process can read.
        us: The processes.
        own: The objective that every process has already, which need not be sent.
    """

    rows: RowSource
    us: Processes
    own: Any
    part: Part = field(repr=False)

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.rows.n

    @property
    def K(self) -> Tensor:
        """Gram matrix of the landmark points, ``(q, q)``."""
        return self.rows.K

    @property
    def budget(self) -> Budget:
        """What an objective may keep in memory."""
        return self.rows.budget

    def batches(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield augmented rows, ``(p, b, q + 1)``, to this process alone."""
        return self.rows.batches(size, chosen)

    def do(self, work: str, objective: Batched, *given: Any) -> Sums:
        """Let every process do a piece of work on its part, and return the sums over all of them."""
        self.us.share((work, None if objective is self.own else objective, given))
        return _together(self.us, self.part.do(work, objective, *given))


def led(objective: Any, data: Any, us: Processes, solve: Callable[[Any], T]) -> T:
    """Let the first process solve, with the others adding up their parts of the rows, or waiting where there are none.

    Args:
        objective: The same for all.
        data: Moments, or rows that all can read.
        us: The processes.
        solve: From data to a solution.

    Returns:
        The solution, the same everywhere.
    """
    if not us.talking:
        return solve(data)
    if isinstance(data, Moments):
        return cast(T, us.share(solve(data) if us.first else None))
    part = Part(data, us)
    if us.first:
        found = solve(SharedRows(data, us, objective, part))
        us.share(None)
        return us.share(found)
    while (asked := us.share(None)) is not None:
        work, sent, given = asked
        _together(us, part.do(work, objective if sent is None else sent, *given))
    return cast(T, us.share(None))


def _together(us: Processes, mine: Sums) -> Sums:
    """Return the sums of all processes, added in their order."""
    total: Sums = {}
    for found in us.parts(mine):
        for key, term in found.items():
            total[key] = total[key] + term if key in total else term
    trim()  # what a connection keeps lies between the blocks of a product, thousands of times
    return total
