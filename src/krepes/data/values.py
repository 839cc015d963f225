"""A column of anything becomes numbers, flags, days or categories.

A value that cannot is refused, by an `InvalidInputError` that names it, its column and its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_complex_dtype, is_datetime64_any_dtype, is_numeric_dtype

from krepes.errors import InvalidInputError

MISSING = "(missing)"
NO_NUMBER = ("", "nan", "na", "n/a", "null", "none")
FLAGS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0, "1": 1.0, "0": 0.0}
ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ].*)?"


def numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """Return the values as float64, NaN where one is missing.

    Args:
        column: Numbers, or texts of numbers, ``(n,)``; a text that says there is none, as ``n/a``, is missing.

    Returns:
        The numbers, ``(n,)``.

    Example:
        >>> numbers(pd.Series(["1.5", "n/a", None])).tolist()
        [1.5, nan, nan]
    """
    if is_complex_dtype(column):
        _refuse(column, column.notna(), "a real number")
    if not is_numeric_dtype(column):
        column = column.mask(column.astype("str").str.strip().str.lower().isin(NO_NUMBER))
    parsed = pd.to_numeric(column, errors="coerce").astype("float64")
    _refuse(column, parsed.isna() & column.notna(), "a number")
    _refuse(column, np.isinf(parsed), "a finite number")
    return parsed


def flags(column: pd.Series[Any]) -> pd.Series[float]:
    """Return 1 for true, yes, y, t and 1, 0 for their opposites, in any case, NaN where one is missing.

    Args:
        column: Flags, ``(n,)``.

    Returns:
        Zeros and ones, ``(n,)``, float64.

    Example:
        >>> flags(pd.Series(["Yes", None, "no"])).tolist()
        [1.0, nan, 0.0]
    """
    parsed = categories(column).str.strip().str.lower().map(FLAGS).astype("float64")
    _refuse(column, parsed.isna() & column.notna(), "a flag (true/false, yes/no, y/n, t/f or 1/0)")
    return parsed


def days(column: pd.Series[Any]) -> pd.Series[float]:
    """Return dates as days since 1970-01-01, with fractions for the time of day, NaN where one is missing.

    Args:
        column: Datetimes, or texts in ISO 8601, ``(n,)``; without a time zone UTC is meant.

    Returns:
        The days, ``(n,)``, float64.

    Example:
        >>> days(pd.Series(["1970-01-02", "1970-01-01 12:00", None])).tolist()
        [1.0, 0.5, nan]
    """
    if is_datetime64_any_dtype(column):
        moments = pd.to_datetime(column, utc=True)
    else:
        texts = column.astype("str").where(column.notna(), None)
        # Without the pattern a bare number, such as 20200101 or 7, would pass as a date.
        texts = texts.where(texts.str.fullmatch(ISO_DATE).fillna(False).astype(bool), None)
        moments = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    _refuse(column, moments.isna() & column.notna(), "a date (YYYY-MM-DD, or with a time after it)")
    return (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def categories(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values as categories of text; 3 and 3.0 are one, and a missing value is ``(missing)``.

    Args:
        column: Values of any type, ``(n,)``.

    Returns:
        Texts, ``(n,)``, of pandas' categorical type.

    Example:
        >>> categories(pd.Series([3.0, 2.5, None])).tolist()
        ['3', '2.5', '(missing)']
    """
    codes, levels = pd.factorize(column)
    texts = [_text(level) for level in levels] + [MISSING] * bool((codes < 0).any())  # code -1 is the last
    merged, names = pd.factorize(pd.Index(texts, dtype="str"))
    data = pd.Categorical.from_codes(merged[codes], categories=names)
    return pd.Series(data, index=column.index, name=column.name)


def _text(level: Any) -> str:
    whole = isinstance(level, (float, np.floating)) and np.isfinite(level) and level == int(level)
    return str(int(level)) if whole else str(level)


def _refuse(column: pd.Series[Any], bad: Any, required: str) -> None:
    rows = np.flatnonzero(np.asarray(bad, dtype=bool))
    if not len(rows):
        return
    raise InvalidInputError(
        f"column {column.name!r}: {str(column.iloc[rows[0]])!r} in row {rows[0]} is not {required} ({len(rows)} of "
        f"{len(column)} values are not). Correct or clear them, or give the column another kind in the schema."
    )
