"""Columns that have a distance as numbers: numbers, and whatever measures time, in microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import (
    infer_dtype,
    is_bool_dtype,
    is_datetime64_any_dtype,
    is_numeric_dtype,
    is_object_dtype,
    is_timedelta64_dtype,
)

MISSING = np.iinfo(np.int64).min
"""What pandas and NumPy write for a time that is missing."""


def is_numeric(column: pd.Series[Any]) -> bool:
    """Return whether a column holds numbers, dates, durations, periods or times of day."""
    if isinstance(column.dtype, pd.PeriodDtype) or is_datetime64_any_dtype(column) or is_timedelta64_dtype(column):
        return True
    return (is_numeric_dtype(column) and not is_bool_dtype(column)) or _holds(column) != ""


def numbers(column: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """Return a column that `is_numeric` as numbers.

    Args:
        column: ``(n,)``.

    Returns:
        ``(n,)``, float64, NaN where a value is missing: microseconds of a date since 1970, of a duration, and of a time
        of day; a period as its number in the calendar of its frequency.

    Example:
        >>> numbers(pd.Series(pd.to_timedelta(["1s", None]))).tolist()
        [1000000.0, nan]
    """
    if isinstance(column.dtype, pd.PeriodDtype):
        ticks = np.asarray(column.array.asi8)
    elif is_datetime64_any_dtype(column):
        moments = column.dt.tz_convert(None) if isinstance(column.dtype, pd.DatetimeTZDtype) else column
        ticks = moments.to_numpy("datetime64[us]").view(np.int64)
    elif is_timedelta64_dtype(column):
        ticks = column.to_numpy("timedelta64[us]").view(np.int64)
    elif held := _holds(column):
        return np.array([_of_time(value) if held == "time" else _of_date(value) for value in column], dtype=np.float64)
    else:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(ticks == MISSING, np.nan, ticks.astype(np.float64))


def _holds(column: pd.Series[Any]) -> str:
    """Return whether a column of objects holds Python's times of day or dates, and nothing else."""
    held = infer_dtype(column, skipna=True) if is_object_dtype(column) else ""
    return held if held in {"time", "date"} else ""


def _of_time(value: Any) -> float:
    if pd.isna(value):
        return float("nan")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1e6 + value.microsecond


def _of_date(value: Any) -> float:
    return float("nan") if pd.isna(value) else (value.toordinal() - 719_163) * 86_400e6
