"""A table as numbers: in memory while that is small, else encoded piece by piece into a temporary file."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.budget import Budget
from krepes.data.tabular import TabularEncoder
from krepes.errors import InvalidInputError
from krepes.storage import mapped

PIECE = 32_768
"""Rows that are encoded at a time."""


def encoded_table(encoding: TabularEncoder, frame: pd.DataFrame, budget: Budget) -> Tensor | np.ndarray[Any, Any]:
    """Return the rows of a table as numbers.

    Args:
        encoding: How its columns become numbers.
        frame: The columns that it knows, ``n`` rows.
        budget: Up to an eighth of it the numbers are held in memory.

    Returns:
        ``(n, d)``, float32: a tensor, or an array mapped from a file that goes with its last use. A value that is not
        of its column's kind is refused, with its row.
    """
    shape = (len(frame), len(encoding.feature_names))
    if len(frame) <= PIECE:
        return encoding.transform(frame)
    held = budget.fits(4 * shape[0] * shape[1], share=1 / 8)
    found = np.empty(shape, np.float32) if held else mapped.scratch(shape, np.dtype(np.float32))
    said: dict[str, Warning] = {}
    for start in range(0, len(frame), PIECE):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            mapped.write(found, start, _piece(encoding, frame, start).numpy())
        for one in heard:  # of each column once, not once a piece
            assert isinstance(one.message, Warning)
            said.setdefault(str(one.message).partition(":")[0], one.message)
    for message in said.values():
        warnings.warn(message, stacklevel=2)
    return torch.from_numpy(found) if held else found


def _piece(encoding: TabularEncoder, frame: pd.DataFrame, start: int) -> Tensor:
    try:
        return encoding.transform(frame.iloc[start : start + PIECE])
    except InvalidInputError:
        encoding.transform(frame)  # says the same, with the row's number in the whole table
        raise
