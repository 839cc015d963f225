"""The one pass that an objective needs: second moments of the kernel rows, or the rows themselves."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.engine.known import KnownRows
from krepes.engine.moments import Moments
from krepes.engine.rows import collect_moments, input_size, samples_within
from krepes.engine.rowstore import RowStore, store_rows
from krepes.engine.together import Span, rows_together, together
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.objectives.base import MomentObjective, Objective
from krepes.processes import current
from krepes.views import ViewStream

MOMENTS, ROWS = "moments", "rows"
"""Folders below that of unfinished work."""


def collect(
    objective: Objective[Any],
    stream: ViewStream,
    kernel: Kernel,
    prepared: Any,
    K: Tensor,
    *,
    known: KnownRows | None = None,
    workdir: str | Path | None,
    budget: Budget,
    progress: bool,
) -> Moments | RowStore | None:
    """Pass over the data once, each process over its part, and keep what the objective needs of it.

    Args:
        objective: The loss.
        stream: The views.
        kernel: The kernel.
        prepared: What ``kernel.prepare`` returned for the ``q`` landmark points.
        K: Gram matrix of the landmark points, ``(q, q)``.
        known: Rows that need not be computed.
        workdir: A folder for finished shards, from which a killed pass resumes, and for the rows; without it rows go
            to a temporary folder that lives as long as they are used.
        budget: The memory budget.
        progress: Show a bar.

    Returns:
        Moments for a moment objective, else rows; what a job that is apart returns is of its part alone, if anything.
    """
    us = current()
    shared: dict[str, Any] = {"known": known, "memory_budget": budget, "progress": progress and us.first}
    if isinstance(objective, MomentObjective):
        needs: dict[str, Any] = {"inputs": objective.needs_inputs, "trace": objective.needs_trace}
        return together(
            stream,
            None if workdir is None else Path(workdir) / MOMENTS,
            us,
            lambda span, place: collect_moments(span, kernel, prepared, K, shards=place, **needs, **shared),
        )
    temporary = tempfile.TemporaryDirectory(prefix="krepes-rows-") if workdir is None and us.first else None
    folder = Path(us.share(str(workdir if temporary is None else temporary.name)))

    def store(span: Span, path: Path) -> None:
        store_rows(span, kernel, prepared, K, path, **shared)

    rows = rows_together(stream, folder / ROWS, us, budget, store)
    return None if rows is None else replace(rows, temporary=temporary)


def require_room(objective: Objective[Any], stream: ViewStream, m: int, budget: Budget, *, beside: int = 0) -> None:
    """Raise `InvalidInputError` if a pass does not fit a budget, before any work is done.

    Args:
        objective: The loss.
        stream: The views.
        m: Landmarks.
        budget: The memory budget.
        beside: Numbers of the embedding that stand beside a kernel row.
    """
    moments = isinstance(objective, MomentObjective)
    inputs = isinstance(objective, MomentObjective) and objective.needs_inputs
    d = input_size(stream.plain(torch.arange(1))) if inputs else 0
    samples_within(budget, p=stream.p, q=m * stream.p + beside, d=d, sums=moments)


def require_data(objective: Objective[Any], data: Moments | RowStore | None) -> None:
    """Raise unless a pass kept what an objective needs.

    Args:
        objective: The loss.
        data: What the pass kept.

    Raises:
        InvalidInputError: If it did not.
    """
    lacking = ""
    if isinstance(objective, MomentObjective) != isinstance(data, Moments):
        lacking = "moments" if isinstance(objective, MomentObjective) else "rows"
    elif isinstance(data, Moments) and isinstance(objective, MomentObjective):
        lacking = "inputs" if objective.needs_inputs and data.KX is None else lacking
        lacking = "traces" if objective.needs_trace and data.trace is None else lacking
    if lacking:
        raise InvalidInputError(
            f"objective '{objective.name}' needs {lacking}, and the pass kept {type(data).__name__} without: fit with "
            f"it first, and refit the others."
        )
