"""Labels as they come (words, numbers, pandas columns) become numbers shared between landmarks and test samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.data.values import MISSING
from krepes.errors import InvalidInputError

Labels = Any
"""One label per sample, any plain values: a list, a numpy array, a pandas Series or a tensor, ``(n,)``."""


def shared_codes(**labels: Labels) -> tuple[list[Any], list[Tensor]]:
    """Number the distinct labels of several sets together; missing ones are a label of their own, ``(missing)``.

    Args:
        **labels: One set of labels each, under the name that an error message gives it.

    Returns:
        The distinct labels in sorted order, and for each set the numbers of its labels, int64.

    Example:
        >>> shared_codes(landmarks=["cat", "dog"], test=["dog", "emu"])
        (['cat', 'dog', 'emu'], [tensor([0, 1]), tensor([1, 2])])
    """
    arrays = [_objects(values, name) for name, values in labels.items()]
    codes, classes = pd.factorize(np.concatenate(arrays))
    order = sorted(range(len(classes)), key=lambda i: _sort_key(classes[i]))
    rank = np.empty(len(classes), dtype=np.int64)
    rank[order] = np.arange(len(classes))
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return [classes[i] for i in order], [torch.from_numpy(part) for part in np.split(rank[codes], ends)]


def as_text(names: Sequence[Any], codes: Tensor) -> list[str]:
    """Return labels as text, by their numbers ``(n,)``; a loop over the tensor itself would make n tensors of them.

    Example:
        >>> as_text(["cat", 7], torch.tensor([1, 0, 1]))
        ['7', 'cat', '7']
    """
    shown = [str(name) for name in names]
    return [shown[code] for code in codes.tolist()]


def require_count(labels: Tensor, n: int, what: str) -> None:
    """Raise `InvalidInputError` unless there are exactly ``n`` labels."""
    if len(labels) != n:
        raise InvalidInputError(f"{len(labels)} {what} were given for {n}: there must be one for each, in order.")


def _objects(values: Labels, name: str) -> np.ndarray[Any, Any]:
    """Return the labels as an array of plain objects, so that 1 and '1' stay two labels."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values, dtype=object)
    if array.ndim != 1:
        raise InvalidInputError(
            f"{name} labels must be one plain value per sample, got an array of shape {array.shape}."
        )
    return np.where(pd.isna(array), MISSING, array)


def _sort_key(label: Any) -> tuple[bool, Any]:
    """Sort numbers among themselves and everything else by its text."""
    is_number = isinstance(label, (int, float))
    return (not is_number, label if is_number else str(label))
