"""A column of anything becomes numbers, flags, days, categories or groups.

A value that cannot is refused, by an `InvalidInputError` that names it, its column and its row. Distinct values are
read once each: of a million rows there are often few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_complex_dtype, is_datetime64_any_dtype, is_numeric_dtype

from krepes.data import dates, numerals
from krepes.data.text import brief, printable
from krepes.errors import InvalidInputError

MISSING = "(missing)"
NO_NUMBER = ("", "nan", "na", "n/a", "null", "none")
FLAGS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "t": 1.0, "f": 0.0, "1": 1.0, "0": 0.0}
LONGEST_SHOWN = 40
MOST_LISTED = 20


def numbers(column: pd.Series[Any], format: str = "") -> pd.Series[float]:
    """Return the values as float64, NaN where one is missing.

    Args:
        column: Numbers, or texts of numbers, ``(n,)``; a text that says there is none, as ``n/a``, is missing.
        format: How the texts are written: see `krepes.data.numerals`.

    Returns:
        The numbers, ``(n,)``.

    Example:
        >>> numbers(pd.Series(["1.5", "n/a", None])).tolist()
        [1.5, nan, nan]
    """
    if is_complex_dtype(column):
        _refuse(column, column.notna().to_numpy(), "a real number")
    if is_numeric_dtype(column):
        read = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        required = f"a number written {format}" if format else "a number"
        read = _by_level(column, lambda texts: numerals.parse(texts, format), NO_NUMBER, required)
    _refuse(column, np.isinf(read), "a finite number")
    return pd.Series(read, index=column.index, name=column.name)


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
    if is_bool_dtype(column) and not isinstance(column.dtype, pd.CategoricalDtype):
        read = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        read = _by_level(column, flag_values, (), "a flag (true/false, yes/no, y/n, t/f or 1/0)")
    return pd.Series(read, index=column.index, name=column.name)


def flag_values(texts: Sequence[str]) -> np.ndarray:
    """Return 1 and 0 for texts that are flags, NaN for others."""
    return np.array([FLAGS.get(text.strip().lower(), np.nan) for text in texts], dtype=np.float64)


def days(column: pd.Series[Any], format: str = "") -> pd.Series[float]:
    """Return dates as days since 1970-01-01, with fractions for the time of day, NaN where one is missing.

    Args:
        column: Datetimes, or texts of dates, ``(n,)``; without a time zone UTC is meant.
        format: How the texts are written: see `krepes.data.dates`; by default ISO 8601.

    Returns:
        The days, ``(n,)``, float64.

    Example:
        >>> days(pd.Series(["1970-01-02", "1970-01-01 12:00", None])).tolist()
        [1.0, 0.5, nan]
    """
    if is_datetime64_any_dtype(column):
        naive = column.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(column.dt, "tz", None) else column
        moments = naive.to_numpy(dtype="datetime64[us]")
        read = np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 86_400_000_000)
    else:
        required = f"a date ({format or 'YYYY-MM-DD'}, or with a time after it)"
        read = _by_level(column, lambda texts: dates.parse(texts, format), ("", "nat"), required)
    return pd.Series(read, index=column.index, name=column.name)


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
    codes, levels = distinct(column)
    texts = [*levels, MISSING] if (codes < 0).any() else levels  # code -1 is the last
    places: dict[str, int] = {}
    merged = np.array([places.setdefault(text, len(places)) for text in texts], dtype=np.int64)
    data = pd.Categorical.from_codes(merged[codes], categories=pd.Index(list(places), dtype="str"))
    return pd.Series(data, index=column.index, name=column.name)


def ordered(column: pd.Series[Any], listed: Sequence[str]) -> pd.Series[Any]:
    """Return the values as `categories` has them, after a check that each is missing or one of those that are listed.

    Args:
        column: Values of any type, ``(n,)``.
        listed: From low to high.

    Returns:
        Texts, ``(n,)``, of pandas' categorical type.

    Example:
        >>> ordered(pd.Series(["S", None, "L"]), ["S", "M", "L"]).tolist()
        ['S', '(missing)', 'L']
    """
    codes, levels = distinct(column)
    known = np.array([*(level in set(listed) for level in levels), True])
    shortened = listed if len(listed) <= MOST_LISTED else [*listed[: MOST_LISTED - 1], "...", listed[-1]]
    _refuse(column, ~known[codes], f"one of {' < '.join(map(printable, shortened))}")
    return categories(column)


def texts_of(column: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """Return the values as `categories` has them, ``(n,)``, dtype object; one text for all rows that have it."""
    found = categories(column).array
    return np.asarray(found.categories, dtype=object)[found.codes]


def groups(column: Any) -> np.ndarray[Any, Any]:
    """Return the group of each sample as text: a missing value is a group of its own, ``(missing)``.

    Args:
        column: One value per sample, ``(n,)``: a Series, an array or a list. Blank texts are missing too.

    Returns:
        Texts, ``(n,)``, dtype object.

    Example:
        >>> groups(["a", None, float("nan"), " ", 3.0]).tolist()
        ['a', '(missing)', '(missing)', '(missing)', '3']
    """
    series = column if isinstance(column, pd.Series) else pd.Series(list(column), dtype=object)
    codes, levels = distinct(series)
    texts = np.array([*(level if level.strip() else MISSING for level in levels), MISSING], dtype=object)
    return texts[codes]


def distinct(column: pd.Series[Any]) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Return a code for each value, -1 where one is missing, and the distinct values as text, in order of appearance.

    Args:
        column: Values of any type that can stand in a cell, ``(n,)``.

    Returns:
        Codes, ``(n,)``, and texts by code.

    Raises:
        InvalidInputError: If a cell holds a list, a dict or the like, or a text that is no Unicode.
    """
    try:
        codes, levels = pd.factorize(column)
        texts = [_text(level) for level in levels]
        "".join(texts).encode()
        return codes, texts
    except (TypeError, ValueError) as error:  # unhashable, or half of a surrogate pair
        held = column.dropna()
        raise InvalidInputError(
            f"column {shown(column.name)} holds a {type(held.iloc[0]).__name__} in a cell that cannot be read "
            f"({brief(error)}). A cell must hold one number, text, flag or date: spread such a column over several "
            f"first, or leave it out."
        ) from error


def shown(value: Any) -> str:
    """Return a value, quoted, as it may stand in a message."""
    text = printable(value)
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...").replace("\\\\", "\\")


def _by_level(
    column: pd.Series[Any], parse: Callable[[Sequence[str]], np.ndarray], missing: tuple[str, ...], required: str
) -> np.ndarray[Any, Any]:
    """Return what ``parse`` makes of each value, NaN where one is missing; refuse the others that it makes NaN of."""
    codes, levels = distinct(column)
    parsed = np.append(parse(levels), np.nan)
    absent = np.array([level.strip().lower() in missing for level in levels] + [True])
    _refuse(column, (np.isnan(parsed) & ~absent)[codes], required)
    return parsed[codes]


def _text(level: Any) -> str:
    if isinstance(level, str):
        return level
    whole = isinstance(level, (float, np.floating)) and abs(float(level)) < 1e15 and level == int(level)
    return str(int(level)) if whole else str(level)


def _refuse(column: pd.Series[Any], bad: np.ndarray[Any, Any], required: str) -> None:
    rows = np.flatnonzero(bad)
    if not len(rows):
        return
    raise InvalidInputError(
        f"column {shown(column.name)}: {shown(column.iloc[rows[0]])} in row {rows[0]} is not {required} ({len(rows)} "
        f"of {len(column)} values are not). Correct or clear them, or give the column another kind in the schema."
    )
