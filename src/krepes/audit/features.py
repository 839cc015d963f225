r"""Agreement of two rows of a table, column by column.

    numeric       v_ξ(x, z) = 1 - min(|x_ξ - z_ξ| / Δ_ξ, 1),      Δ_ξ = range in the training data; dates, durations,
                                                                  times of day and periods also
    ordered       the same of the places in their order
    categorical   v_ξ(x, z) = 1 if x_ξ = z_ξ, else 0

All are ``1 - min(|a - b|, 1)`` of one number per row: the place in the range, or the number of the category. Under
``agreement="codes"``, the paper's, every category is treated as ordered, by its integer code: "b" agrees with "c" more
than with "d".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import torch
from torch import Tensor

from krepes.audit.ticks import is_numeric, numbers
from krepes.data.kept import arrow_texts, one_by_one
from krepes.errors import InvalidInputError

Agreement = Literal["indicator", "codes"]
"""When two categories agree: if they are equal, or the more, the nearer their integer codes."""
AGREEMENTS: tuple[str, ...] = get_args(Agreement)
# Far from the range of training and from every category: a missing value agrees with a missing one only.
MISSING = 1e9
# A category that training never showed agrees with no landmark.
UNSEEN = -1e9


@dataclass(frozen=True)
class FeatureSpace:
    """The original columns of a table, as the training data shows them.

    Attributes:
        names: All columns.
        ranges: Smallest and largest value of the numeric columns; their difference is ``Δ_ξ``.
        categories: Known categories of the categorical columns.
        placed: Of these, columns whose categories have places in an order, at equal distances.
        undefined: Why a column has no agreement, for those that have none.
        agreement: When two categories agree.
    """

    names: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    categories: Mapping[str, pd.Index]
    undefined: Mapping[str, str]
    placed: frozenset[str] = frozenset()
    agreement: Agreement = "indicator"

    @classmethod
    def of(
        cls, train: pd.DataFrame, *, categorical: Sequence[str] | None = None, agreement: Agreement = "indicator"
    ) -> FeatureSpace:
        """Read kinds, ranges and categories from training data alone.

        Args:
            train: Training rows, original columns.
            categorical: The categorical columns; by default those that hold neither numbers nor dates.
            agreement: ``"indicator"``: unordered categories agree if they are equal. ``"codes"``: the more, the nearer
                their integer codes, given in the order of a categorical column, else in sorted order.

        Returns:
            The space; constant columns, on which all rows agree, are marked as undefined.

        Raises:
            InvalidInputError: If the table is empty, a numeric column holds infinity, a named column is absent, or the
                agreement is unknown.
        """
        if agreement not in AGREEMENTS:
            raise InvalidInputError(f"agreement={agreement!r} is unknown: choose one of {', '.join(AGREEMENTS)}.")
        if not len(train) or not set(categorical or ()) <= set(train.columns):
            raise InvalidInputError(
                f"a feature space needs training rows and known columns, got {len(train)} rows and columns "
                f"{list(train.columns)}; categorical={categorical}."
            )
        ranges, categories, undefined, placed = {}, {}, {}, set()
        for name, column in one_by_one(train):
            numeric = is_numeric(column) if categorical is None else name not in categorical
            if numeric:
                ranges[name] = _range(column, name)
            else:
                categories[name] = _in_order(column)
                if agreement == "codes" or _is_ordered(column):
                    placed.add(name)
            if column.nunique(dropna=numeric) < 2:
                undefined[name] = f"constant in the {len(train)} training rows"
        return cls(tuple(train.columns), ranges, categories, undefined, frozenset(placed), agreement)

    @property
    def defined(self) -> list[str]:
        """Columns with an agreement, in order: the columns of `encode`."""
        return [name for name in self.names if name not in self.undefined]

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Return the rows as numbers whose distance, cut at one, is the disagreement.

        Args:
            frame: Rows with at least the columns of the space.

        Returns:
            ``(n, c)``, float64, one column for each of `defined`.

        Raises:
            InvalidInputError: If a column is absent or infinite.
        """
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise InvalidInputError(f"the table lacks {absent}: it must have the columns of training, {self.names}.")
        columns = [self._encode(frame[name], name) for name in self.defined]
        return torch.from_numpy(np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0)))

    def _encode(self, column: pd.Series[Any], name: str) -> np.ndarray[Any, Any]:
        if name in self.ranges:
            _range(column, name)
            low, high = self.ranges[name]
            place = (numbers(column) / 2 - low / 2) / (high / 2 - low / 2)  # halves: the range itself may overflow
            return np.where(np.isnan(place), MISSING, place)
        codes = _places(self.categories[name], column).astype(np.float64)
        unseen = codes < 0
        if name in self.placed:
            codes /= max(len(self.categories[name]) - 1, 1)
        codes[unseen] = UNSEEN
        return np.where(column.isna().to_numpy(), MISSING, codes)


def agreement(x: Tensor, z: Tensor) -> Tensor:
    """Return ``v_ξ``, broadcast, of encoded rows ``x`` and ``z`` ``(..., c)``."""
    return 1 - (x - z).abs().clamp_max(1)


def fold_one_hot(
    X: Tensor, groups: Mapping[str, Sequence[int] | slice], *, names: Mapping[int, str] | None = None
) -> pd.DataFrame:
    """Fold encoded rows back to original columns: each one-hot group becomes one categorical column.

    Args:
        X: Encoded rows, ``(n, d)``.
        groups: Columns of each categorical column; a row without a positive entry is of category -1.
        names: Names of the other column numbers; by default ``column 7`` and so on.

    Returns:
        A DataFrame: groups first, in order, then the other columns; for `FeatureSpace.of` with
        ``categorical=list(groups)``.

    Example:
        >>> fold_one_hot(torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, 6.0]]), {"colour": [0, 1]}).to_dict("list")
        {'colour': [1, 0], 'column 2': [5.0, 6.0]}
    """
    folded: dict[str, np.ndarray[Any, Any]] = {}
    single = torch.ones(X.shape[1], dtype=torch.bool)
    for name, columns in groups.items():
        best = X[:, columns].max(1)
        folded[name] = torch.where(best.values > 0, best.indices, -1).cpu().numpy()
        single[columns] = False
    for column in single.nonzero().flatten().tolist():
        folded[(names or {}).get(column, f"column {column}")] = X[:, column].cpu().numpy()
    return pd.DataFrame(folded)


def _is_ordered(column: pd.Series[Any]) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype) and bool(column.dtype.ordered)


def _in_order(column: pd.Series[Any]) -> pd.Index[Any]:
    """Return the values that occur: in the column's own order of categories, else sorted, as text if nothing else."""
    texts = arrow_texts(column)
    if texts is not None:  # the same order, without an object for each text
        different = pc.unique(texts.drop_null())
        return pd.Index(type(column.array)(different.take(pc.array_sort_indices(different)), dtype=column.dtype))
    found = pd.Index(column.dropna().unique())
    if isinstance(column.dtype, pd.CategoricalDtype):
        return pd.Index([value for value in column.dtype.categories if value in found])
    try:
        return pd.Index(sorted(found))
    except TypeError:
        return pd.Index(sorted(found, key=str))


def _places(categories: pd.Index[Any], column: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """Return the place of each value among the categories, -1 for one that is none, ``(n,)``."""
    known, asked = arrow_texts(categories), arrow_texts(column)
    if known is None or asked is None:
        return categories.get_indexer(pd.Index(column))
    return pc.index_in(asked, value_set=known).fill_null(-1).to_numpy()


def _range(column: pd.Series[Any], name: str) -> tuple[float, float]:
    """Return the ends of a numeric column, after a check that they are finite."""
    known = numbers(column)
    known = known[~np.isnan(known)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (float("nan"), float("nan"))
    if np.isinf(low) or np.isinf(high):
        raise InvalidInputError(f"column {name!r} holds infinity: replace it by a number or by a missing value.")
    return low, high
