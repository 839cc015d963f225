"""Many outcomes of a lazy replay at once: the form of each in a row, and the scores of all rows in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.influence.keeping import KeptRows
from krepes.influence.lazy import LazySteps, scores
from krepes.influence.reverse import Measure, differentiate
from krepes.influence.squares import EXACT_WORK, few_squares
from krepes.processes import current
from krepes.storage import mapped

Form = Callable[[Tensor], Tensor]
"""From rows ``(p, b, Q)`` to the scores of some outcomes, ``(b, o)``, float64."""
TOGETHER = 4
"""Outcomes whose cotangents of the moments, which are large, go through a step together."""
COPIES = 4
"""Matrices of an outcome that are held at a time while its form is made."""


def forms_of(
    steps: LazySteps, measure: Measure, dtype: torch.dtype, memory_budget: int, progress: bool
) -> tuple[list[Form], Tensor]:
    """Return the forms of all outcomes, and the outcomes ``(O,)`` after the steps.

    Few outcomes are written out; of many each is a sum of few squares, made in groups that fit the budget. Of several
    processes each makes the forms of some groups.

    Args:
        steps: The replay, with its moments.
        measure: The outcomes of its last state.
        dtype: Of the rows.
        memory_budget: Bytes for states, cotangents and forms.
        progress: Show a bar.

    Returns:
        Forms, of the outcomes in their order.
    """
    us, moments = current(), steps.moments
    w, count = moments.M.reshape(-1), len(measure(steps.start()))
    side = moments.p * moments.M.shape[2]
    written_out = count * side**2 <= EXACT_WORK
    size = count if written_out else Budget(memory_budget).rows(8 * COPIES * side**2, what="an outcome", share=1 / 4)
    how = {"memory_budget": memory_budget, "group": TOGETHER, "what": "lazy steps", "progress": progress and us.first}
    forms: list[Form] = []
    values = []
    for number, low in enumerate(range(0, count, size)):
        source = number % us.count if us.talking else 0
        made: tuple[Form, Tensor] | None = None
        if not us.talking or us.rank == source:
            found = differentiate(steps, partial(_some, measure, slice(low, low + size)), w=w, **how)  # type: ignore[arg-type]
            G = found.dw.T.reshape(-1, *moments.M.shape)
            made = partial(scores, G, moments) if written_out else few_squares(G, moments, dtype=dtype), found.values
        # One process's rounding is not mixed with another's.
        form, value = us.share(made, source)  # type: ignore[misc]
        forms.append(form)
        values.append(value)
    return forms, torch.cat(values)


def _some(measure: Measure, chosen: slice, state: dict[str, Tensor]) -> Tensor:
    return measure(state)[chosen]


def score_all(kept: KeptRows, forms: Sequence[Form], count: int, memory_budget: int, progress: bool) -> Tensor:
    """Return what weighting each row up does to each outcome, ``(n, O)``, averaged over the draws of its views.

    Args:
        kept: The rows.
        forms: Of all outcomes.
        count: Outcomes, ``O``.
        memory_budget: Of which the result may take half; a larger one lies in a temporary file.
        progress: Show a bar.

    Returns:
        The derivatives, of the rows of all processes.
    """
    us, n = current(), kept.stream.n
    shape = (n, count)
    small = Budget(memory_budget).fits(8 * n * count, share=1 / 2)
    table = np.zeros(shape) if small else mapped.scratch(shape, np.dtype(np.float64))
    for chosen, rows in kept.again(progress and us.first):
        found = torch.cat([form(rows) for form in forms], dim=1) / (kept.draws * n)
        table[int(chosen[0]) : int(chosen[-1]) + 1] += found.numpy()
        mapped.release(table)
    for part in mapped.spans(n if us.talking else 0, 8 * count):  # a few megabytes of each process at a time
        table[part] = us.summed(torch.from_numpy(table[part])).numpy()
        mapped.release(table)
    return torch.from_numpy(table)
