"""Ids of some rows of a data set, read when they are asked for: a list of a million numbers takes 36 MB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from torch import Tensor


class ChosenIds(Sequence[Any]):
    """The ids of chosen rows, in their order.

    Args:
        ids: Of all rows.
        rows: The chosen ones, ``(n,)``.

    Example:
        >>> import torch
        >>> found = ChosenIds(range(100, 200), torch.tensor([3, 7]))
        >>> list(found), found[1]
        ([103, 107], 107)
    """

    def __init__(self, ids: Sequence[Any], rows: Tensor) -> None:
        self._ids, self._rows = ids, rows.numpy()

    def __len__(self) -> int:
        """Return how many rows were chosen."""
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        """Return the id of a chosen row by its place among them, or the ids of several."""
        if isinstance(place, slice):
            return [self._ids[int(row)] for row in self._rows[place]]
        return self._ids[int(self._rows[place])]


def in_place(ids: Sequence[Any]) -> Sequence[Any]:
    """Return ids that are looked up by their place: a pandas column would look one up by its index label."""
    return ids if isinstance(ids, (range, ChosenIds)) else list(ids)
