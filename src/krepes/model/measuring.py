"""Kernel values of candidates for landmarks, measured by all processes for the one that chooses.

A selector asks about the same candidates again and again, each time against the landmarks that it has just found. The
first process runs it. Whatever it asks of many samples goes to all processes: each measures its part, and the first
puts the parts together. So one process alone decides, and rounding on other machines has no say in how often it asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes._describe import Description
from krepes.batches import Batch
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.kernels.entk import EmpiricalNTK
from krepes.processes import Processes

FEWEST = 16
"""Samples for each process from which on sharing is worth the way."""


@dataclass(frozen=True)
class Points:
    """Points that every process has prepared: the first one's own handle, and the number by which others know it."""

    own: Any
    number: int


@dataclass(frozen=True)
class Led(Kernel):
    """The kernel of the first process, which lets the others measure their parts.

    Attributes:
        kernel: What measures.
        us: The processes.
        known: Points that were prepared so far.
    """

    kernel: Kernel
    us: Processes
    known: list[Any] = field(default_factory=list)

    def prepare(self, Y: Batch) -> Points:
        """Let every process prepare ``Y`` ``(m, ...)``."""
        self.us.share(("prepare", Y))
        self.known.append(None)
        return Points(self.kernel.prepare(Y), len(self.known) - 1)

    def enter(
        self, Y: Batch, *, gram: bool = False, diagonal: bool = False, mean: MeanFeature | None = None
    ) -> tuple[Any, Rows]:
        """Look at few points alone: they are proposals, of which some are prepared later."""
        return self.kernel.enter(Y, gram=gram, diagonal=diagonal, mean=mean)

    def rows(self, X: Batch, prepared: Any, *, diagonal: bool = False, mean: MeanFeature | None = None) -> Rows:
        """Return the kernel rows of ``X`` ``(n, ...)``, each process having made some of them."""
        if not isinstance(prepared, Points):
            return self.kernel.rows(X, prepared, diagonal=diagonal, mean=mean)
        if mean is not None or batches.count(X) < FEWEST * self.us.count:
            return self.kernel.rows(X, prepared.own, diagonal=diagonal, mean=mean)
        self.us.share(("rows", X, prepared.number, diagonal))
        return _measured(self.kernel, self.us, X, prepared.own, diagonal)

    def diagonal(self, X: Batch) -> Tensor:
        """Return ``k(x, x)``, ``(n,)``, each process having made some of them."""
        if batches.count(X) < FEWEST * self.us.count:
            return self.kernel.diagonal(X)
        self.us.share(("diagonal", X))
        return _diagonal(self.kernel, self.us, X)

    def describe(self) -> Description:
        """Return the kernel."""
        return self.kernel.describe()


def led(kernel: Kernel, us: Processes, choose: Callable[[Kernel], Tensor]) -> Tensor:
    """Return what the first process chooses by a kernel that all of them measure with.

    Args:
        kernel: The kernel, of every process.
        us: The processes.
        choose: Asks the kernel whatever it wants; the first process alone calls it.

    Returns:
        The choice, everywhere.
    """
    if not us.talking:
        return choose(kernel)
    found = torch.empty(0)
    if us.first:
        try:
            found = choose(Led(kernel, us))
        finally:
            us.share(None)
    else:
        _serve(kernel, us)
    return us.share(found)


def _serve(kernel: Kernel, us: Processes) -> None:
    """Measure what the first process asks for, until it has chosen."""
    known: list[Any] = []
    order: tuple[Any, ...] | None
    while (order := us.share(None)) is not None:
        what, X, *details = order
        if what == "prepare":
            known.append(kernel.prepare(X))
        elif what == "rows":
            _measured(kernel, us, X, known[details[0]], details[1])
        else:
            _diagonal(kernel, us, X)


def shared_mean(kernel: EmpiricalNTK, us: Processes, X: Batch) -> MeanFeature:
    """Return the mean feature of ``X`` ``(n, ...)``, of which each process looks at some samples."""
    n = batches.count(X)
    if not us.talking or n < FEWEST * us.count:
        return kernel.mean_feature(X)
    low, high = us.span(n)
    part = kernel.mean_feature(batches.take(X, slice(low, high)), torch.full((high - low,), 1 / n))
    sums = [us.summed(v) for v in part.content]
    return replace(part, content=sums, square=float(sum(v.square().sum() for v in sums)))


def _mine(us: Processes, X: Batch) -> Batch:
    return batches.take(X, slice(*us.span(batches.count(X))))


def _measured(kernel: Kernel, us: Processes, X: Batch, prepared: Any, diagonal: bool) -> Rows:
    """Return the rows of all processes, in order."""
    own = kernel.rows(_mine(us, X), prepared, diagonal=diagonal)
    K = torch.cat(list(us.parts(own.K.cpu())))
    if own.diagonal is None or not diagonal:
        return Rows(K)
    return Rows(K, torch.cat(list(us.parts(own.diagonal.cpu()))))


def _diagonal(kernel: Kernel, us: Processes, X: Batch) -> Tensor:
    return torch.cat(list(us.parts(kernel.diagonal(_mine(us, X)).cpu())))
