"""Other models without another pass: of the moments of the rows that a model kept, for moments are sums over rows."""

from __future__ import annotations

import copy
from typing import Any

from krepes.engine.moments import MomentSum
from krepes.engine.rowstore import RowStore
from krepes.model import Krepes

PIECE, EXACT = 512, 1e-8
"""Samples whose rows are added at once, and the relative residual of a step over moments, which costs no pass."""


def of_moments(model: Krepes, objective: Any) -> Krepes:
    """Return a model of an objective of moments over the rows that a model of a row objective kept.

    Args:
        model: Fitted, with its rows.
        objective: A name or an objective.

    Returns:
        The model that a pass of its own would give, to the round-off of rows in float32, and solved to ``EXACT``
        however loosely the other was.
    """
    assert isinstance(model.data_, RowStore)
    sums = MomentSum(model.data_.K)
    for Kbar in model.data_.batches(PIECE):
        sums.add(Kbar)
    summed = copy.copy(model)
    summed.data_ = sums.moments()
    return summed.refit(objective=objective, tol=EXACT)
