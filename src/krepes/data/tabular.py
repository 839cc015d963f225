"""Rows of a table become rows of numbers ``(n, d)``, by what the training rows showed and nothing else.

numeric, date   (x - mean) / scale; the median where missing, and a 0/1 indicator if training rows missed any
boolean         0 or 1; the more frequent where missing, and an indicator likewise
categorical     one 0/1 column for each category of training, "(missing)" among them if training rows missed any
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.data.schema import Kind, Schema
from krepes.errors import InvalidInputError, NotFittedError

UNKNOWN = "(unknown)"
Unknown = Literal["error", "bucket"]


@dataclass(frozen=True)
class NumberColumn:
    """How a numeric, date or boolean column is encoded.

    Attributes:
        name: Of the original column.
        mean: Subtracted, after missing values were filled in.
        scale: Then divided by.
        median: Stands in for a missing value.
        low: Smallest value in training.
        high: Largest.
        indicator: Whether a second column says where a value was missing.
    """

    name: str
    mean: float
    scale: float
    median: float
    low: float
    high: float
    indicator: bool

    @classmethod
    def fit(cls, values: pd.Series[float], kind: Kind) -> NumberColumn:
        """Read the statistics of training ``values``, ``(n,)``, with NaN where one is missing."""
        if values.isna().all():
            raise InvalidInputError(
                f"column {values.name!r} is {kind}, but all {len(values)} training values are missing. "
                f"Give it the kind 'ignored', or fit on rows that have it."
            )
        median = float(np.round(values.median())) if kind == "boolean" else values.median()
        filled = values.fillna(median)
        # A 0/1 column stays as it is, like those of a category; a column without spread is only centred.
        mean, scale = (0.0, 1.0) if kind == "boolean" else (float(filled.mean()), float(filled.std(ddof=0)) or 1.0)
        low, high, indicator = float(values.min()), float(values.max()), bool(values.isna().any())
        return cls(str(values.name), mean, scale, median, low, high, indicator)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [self.name, f"{self.name} is missing"] if self.indicator else [self.name]

    def encode(self, values: pd.Series[float], out: np.ndarray[Any, Any], unknown: Unknown) -> None:
        """Write ``values`` ``(n,)`` into ``out`` ``(n, 1)`` or ``(n, 2)``."""
        missing = values.isna().to_numpy()
        if missing.any() and not self.indicator:
            row = int(missing.argmax())
            problem = f"column {self.name!r}: {int(missing.sum())} values are missing, the first in row {row}, but none"
            if unknown == "error":
                raise InvalidInputError(
                    f"{problem} of the training rows missed it. Fill them in, or fit with unknown='bucket', which "
                    f"takes the training median {self.median:g}."
                )
            warnings.warn(f"{problem} was in training: the median {self.median:g} stands in.", stacklevel=4)
        out[:, 0] = (values.fillna(self.median) - self.mean) / self.scale
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoryColumn:
    """How a categorical column is encoded.

    Attributes:
        name: Of the original column.
        categories: Those of training, in alphabetical order; the last may be ``(unknown)``, for all others.
    """

    name: str
    categories: tuple[str, ...]

    @classmethod
    def fit(cls, values: pd.Series[Any], unknown: Unknown) -> CategoryColumn:
        """Read the categories of training ``values``, ``(n,)``."""
        known = sorted(set(values.unique()) - ({UNKNOWN} if unknown == "bucket" else set()))
        return cls(str(values.name), (*known, UNKNOWN) if unknown == "bucket" else tuple(known))

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, values: pd.Series[Any], out: np.ndarray[Any, Any], unknown: Unknown) -> None:
        """Write ``values`` ``(n,)`` into ``out``, ``(n, c)``, for ``c`` categories."""
        codes = pd.Index(self.categories).get_indexer(values.cat.categories)[values.cat.codes]
        if unknown == "error" and (codes < 0).any():
            row = int((codes < 0).argmax())
            raise InvalidInputError(
                f"column {self.name!r}: {values.iloc[row]!r} in row {row} is no category of the training rows, as are "
                f"{int((codes < 0).sum())} of {len(codes)} values. Known are {list(self.categories[:10])}"
                f"{' and more' if len(self.categories) > 10 else ''}. Correct the value, or fit with unknown='bucket'."
            )
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0  # code -1 is the last category, the bucket


class TabularEncoder:
    """Encode tables of one schema.

    Args:
        schema: Kinds of the columns.
        unknown: What a category means that training rows did not have, or a missing value where they missed none:
            ``"error"``, or ``"bucket"``: a category of its own, ``(unknown)``, and the median in place of a number.

    Attributes:
        columns_: How each used column is encoded, once fitted.

    Example:
        >>> frame = pd.DataFrame({"age": [20.0, 40.0, None, 60.0], "city": ["Bonn", "Ulm", "Ulm", None]})
        >>> encoder = TabularEncoder(Schema.infer(frame)).fit(frame)
        >>> encoder.feature_names
        ['age', 'age is missing', 'city=(missing)', 'city=Bonn', 'city=Ulm']
        >>> encoder.groups
        {'age': [0, 1], 'city': [2, 3, 4]}
        >>> encoder.transform(frame)[2]
        tensor([0., 1., 0., 0., 1.])
    """

    def __init__(self, schema: Schema, *, unknown: Unknown = "error") -> None:
        if unknown not in get_args(Unknown):
            raise InvalidInputError(f"unknown={unknown!r} is not one of {', '.join(get_args(Unknown))}.")
        schema.require_used()
        self.schema = schema
        self.unknown = unknown

    def fit(self, table: Any) -> TabularEncoder:
        """Read means, scales, ranges and categories from training rows.

        Args:
            table: Whatever `read_table` takes.

        Returns:
            Itself.
        """
        frame, kinds = self.schema.apply(table), self.schema.used
        self.columns_: tuple[NumberColumn | CategoryColumn, ...] = tuple(
            CategoryColumn.fit(frame[name], self.unknown)
            if kind == "categorical"
            else NumberColumn.fit(frame[name], kind)
            for name, kind in kinds.items()
        )
        return self

    def transform(self, table: Any) -> Tensor:
        """Encode rows.

        Args:
            table: Whatever `read_table` takes, with the columns of the schema in any order.

        Returns:
            ``(n, d)``, float32.
        """
        groups = self.groups
        frame = self.schema.apply(table)
        out = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        for column in self.columns_:
            where = groups[column.name]
            column.encode(frame[column.name], out[:, where[0] : where[-1] + 1], self.unknown)
        return torch.from_numpy(out)

    @property
    def groups(self) -> dict[str, list[int]]:
        """Encoded columns of each used column of the table."""
        ends = np.cumsum([len(column.feature_names) for column in self._fitted()])
        return {
            column.name: list(range(int(end) - len(column.feature_names), int(end)))
            for column, end in zip(self._fitted(), ends, strict=True)
        }

    @property
    def feature_names(self) -> list[str]:
        """Names of the ``d`` encoded columns."""
        return [name for column in self._fitted() for name in column.feature_names]

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest training value of each numeric, boolean and date column, in its own unit."""
        return {c.name: (c.low, c.high) for c in self._fitted() if isinstance(c, NumberColumn)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted encoder as plain JSON values."""
        columns = [asdict(column) for column in self._fitted()]
        return {"schema": self.schema.to_dict(), "unknown": self.unknown, "columns": columns}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TabularEncoder:
        """Return the fitted encoder that `to_dict` stored."""
        encoder = cls(Schema.from_dict(stored["schema"]), unknown=stored["unknown"])
        encoder.columns_ = tuple(
            CategoryColumn(column["name"], tuple(column["categories"]))
            if "categories" in column
            else NumberColumn(**column)
            for column in stored["columns"]
        )
        return encoder

    def _fitted(self) -> tuple[NumberColumn | CategoryColumn, ...]:
        if not hasattr(self, "columns_"):
            raise NotFittedError("this TabularEncoder knows no training rows yet. Call fit(table) first.")
        return self.columns_
