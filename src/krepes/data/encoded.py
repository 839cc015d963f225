"""How one column of a table becomes columns of numbers, from what the training rows showed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from krepes.data.kinds import MAX_CATEGORIES, Kind
from krepes.data.values import shown
from krepes.errors import InvalidInputError

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
        numbers = values.to_numpy()
        missing = np.isnan(numbers)
        if missing.all():
            raise InvalidInputError(
                f"column {shown(values.name)} is {kind}, but all {len(values)} training values are missing. "
                f"Give it the kind 'ignored', or fit on rows that have it."
            )
        present = numbers[~missing]
        low, high, indicator = float(present.min()), float(present.max()), bool(missing.any())
        # Squares of 1e200 overflow and those of 1e-200 vanish: a power of two is taken out, which changes no digit.
        power = math.frexp(max(-low, high))[1]
        median = math.ldexp(np.median(np.ldexp(present, -power)), power)
        if kind == "boolean":
            # A 0/1 column stays as it is, like those of a category.
            return cls(str(values.name), 0.0, 1.0, float(np.round(median)), low, high, indicator)
        filled = np.ldexp(np.where(missing, median, numbers), -power)
        # A column without spread is only centred.
        mean, scale = math.ldexp(filled.mean(), power), math.ldexp(filled.std(), power) or 1.0
        return cls(str(values.name), mean, scale, median, low, high, indicator)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [self.name, f"{self.name} is missing"] if self.indicator else [self.name]

    def encode(self, values: pd.Series[float], out: np.ndarray[Any, Any], unknown: Unknown) -> None:
        """Write ``values`` ``(n,)`` into ``out`` ``(n, 1)`` or ``(n, 2)``."""
        numbers = values.to_numpy()
        missing = np.isnan(numbers)
        if missing.any() and not self.indicator:
            row = int(missing.argmax())
            problem = (
                f"column {shown(self.name)}: {int(missing.sum())} values are missing, the first in row {row}, but none"
            )
            if unknown == "error":
                raise InvalidInputError(
                    f"{problem} of the training rows missed it. Fill them in, or fit with unknown='bucket', which "
                    f"takes the training median {self.median:g}."
                )
            warnings.warn(f"{problem} was in training: the median {self.median:g} stands in.", stacklevel=4)
        filled = np.where(missing, self.median, numbers)
        power = -math.frexp(max(abs(self.mean), self.scale, float(np.abs(filled).max())))[1] - 1
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            distance = np.ldexp(filled, power) - math.ldexp(self.mean, power)
            out[:, 0] = distance / math.ldexp(self.scale, power)
        if not np.isfinite(out[:, 0]).all():
            row = int(np.argmin(np.isfinite(out[:, 0])))
            raise InvalidInputError(
                f"column {shown(self.name)}: {filled[row]:g} in row {row} is too far from training, whose mean is "
                f"{self.mean:g} and scale {self.scale:g}: encoded it is beyond ±3.4e38. Correct the value."
            )
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoryColumn:
    """How a categorical column is encoded.

    Attributes:
        name: Of the original column.
        categories: Those of training, in alphabetical order, the most frequent ones if there are many; the last may be
            ``(unknown)``, for all others.
    """

    name: str
    categories: tuple[str, ...]

    @classmethod
    def fit(cls, values: pd.Series[Any], unknown: Unknown) -> CategoryColumn:
        """Read the categories of training ``values``, ``(n,)``."""
        counts = values.value_counts()
        known = sorted(set(counts.index[counts > 0]) - ({UNKNOWN} if unknown == "bucket" else set()))
        if len(known) <= MAX_CATEGORIES:
            return cls(str(values.name), (*known, UNKNOWN) if unknown == "bucket" else tuple(known))
        frequent = sorted(known, key=lambda name: (-int(counts[name]), name))[:MAX_CATEGORIES]
        return cls(str(values.name), (*sorted(set(frequent) - {UNKNOWN}), UNKNOWN))

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        return [f"{self.name}={category}" for category in self.categories]

    def encode(self, values: pd.Series[Any], out: np.ndarray[Any, Any], unknown: Unknown) -> None:
        """Write ``values`` ``(n,)`` into ``out``, ``(n, c)``, for ``c`` categories."""
        codes = pd.Index(self.categories).get_indexer(values.cat.categories)[values.cat.codes]
        if unknown == "error" and UNKNOWN not in self.categories and (codes < 0).any():
            row = int((codes < 0).argmax())
            raise InvalidInputError(
                f"column {shown(self.name)}: {shown(values.iloc[row])} in row {row} is no category of the training "
                f"rows, as are {int((codes < 0).sum())} of {len(codes)} values. Known are "
                f"{', '.join(shown(known) for known in self.categories[:10])}"
                f"{' and more' if len(self.categories) > 10 else ''}. Correct the value, or fit with unknown='bucket'."
            )
        out[:] = 0.0
        out[np.arange(len(codes)), codes] = 1.0  # code -1 is the last category, the bucket


def stored_column(stored: Mapping[str, Any]) -> NumberColumn | CategoryColumn:
    """Return a column from plain values; raise one of Python's own errors if they are others."""
    if "categories" in stored:
        names = tuple(stored["categories"])
        if not all(isinstance(name, str) for name in (*names, stored["name"])) or len(set(names)) < len(names):
            raise ValueError("categories must be different texts")
        return CategoryColumn(stored["name"], names)
    column = NumberColumn(**stored)
    numbers = (column.mean, column.scale, column.median, column.low, column.high)
    if not all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers) or column.scale <= 0:
        raise ValueError(f"column {shown(column.name)} needs finite numbers and a scale above zero")
    if not isinstance(column.name, str) or not isinstance(column.indicator, bool):
        raise ValueError("a name must be a text, an indicator true or false")
    return column
