r"""Dates in texts as people write them, as days since 1970-01-01 of the Gregorian calendar, years 1 to 9999.

    (none)                                  2020-03-31, 2020-03-31T10:30:00+02:00 (ISO 8601)
    dd.mm.yyyy   yyyy.mm.dd   yyyy/mm/dd    can be read in one way only
    dd/mm/yyyy   mm/dd/yyyy                 told apart by a day beyond 12 somewhere in the column, else never guessed
    dd-mm-yyyy   mm-dd-yyyy                 likewise

Any of them may be followed by a time of day and a zone; without a zone UTC is meant. The days are counted here and not
by pandas, whose dates may end in 1677 and 2262.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

TIME = r"(?:[T ]\s*(\d{1,2})(?::(\d{2})(?::(\d{2}(?:[.,]\d+)?))?)?\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?"
YEAR_FIRST = re.compile(rf"(\d{{4}})([-./])(\d{{1,2}})\2(\d{{1,2}}){TIME}")
YEAR_LAST = re.compile(rf"(\d{{1,2}})([-./])(\d{{1,2}})\2(\d{{4}}){TIME}")
SHORT_YEAR = re.compile(r"\d{1,2}([-./])\d{1,2}\1\d{2}")
ISO = re.compile(rf"(\d{{4}})(-)(\d{{2}})-(\d{{2}}){TIME}")
FORMATS = ("dd.mm.yyyy", "dd/mm/yyyy", "dd-mm-yyyy", "mm/dd/yyyy", "mm-dd-yyyy", "yyyy.mm.dd", "yyyy/mm/dd")
LONGEST = 60


def parse(texts: Sequence[str], format: str = "") -> np.ndarray:
    """Read dates that are written in one format.

    Args:
        texts: ``(n,)``.
        format: One of the table above, or the empty text for ISO 8601.

    Returns:
        Days since 1970-01-01, ``(n,)``, float64, NaN where a text is no date of this format.

    Example:
        >>> parse(["02.01.1970", "1.1.1970 12:00", "30.02.2020"], "dd.mm.yyyy").tolist()
        [1.0, 0.5, nan]
    """
    parts = np.full((len(texts), 4), np.nan)  # year, month, day, and the time as a part of a day
    pattern = ISO if not format else YEAR_FIRST if format.startswith("yyyy") else YEAR_LAST
    mark = format.strip("dmy")[:1] or "-"
    order = (0, 1, 2) if pattern is not YEAR_LAST else (2, 1, 0) if format.startswith("dd") else (2, 0, 1)
    for row, text in enumerate(texts):
        found = pattern.fullmatch(text.strip()) if len(text) <= LONGEST else None
        if found is not None and found.group(2) == mark:
            numbers = [int(found.group(i)) for i in (1, 3, 4)]
            parts[row] = *(numbers[i] for i in order), _time(*found.group(5, 6, 7, 8))
    return days_of(*parts.T[:3]) + parts[:, 3]


def days_of(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return days since 1970-01-01, ``(n,)``; NaN where there is no such day or an argument is NaN.

    Counted from 1 March, so that the leap day ends a year: ``365 y + y/4 - y/100 + y/400 + (153 m + 2)/5 + d - 1``.
    """
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = np.select([month == 2, np.isin(month, (4, 6, 9, 11))], [28.0 + leap, 30.0], 31.0)
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= longest)
    y, m = np.where(month <= 2, year - 1, year), (month + 9) % 12
    counted = 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 + day - 1
    return np.where(valid, counted - 719468, np.nan)


def detect(texts: Sequence[str]) -> tuple[str, str] | None:
    """Find the format in which all texts are dates.

    Args:
        texts: Distinct texts, at least one.

    Returns:
        The format and an empty text; an empty format and a note if they look like dates but cannot be read in one way;
        None if they are no dates.
    """
    if not np.isnan(parse(texts)).any():
        return "", ""
    found = [YEAR_FIRST.fullmatch(text.strip()) or YEAR_LAST.fullmatch(text.strip()) for text in texts]
    if not all(found):
        short = all(SHORT_YEAR.fullmatch(text.strip()) for text in texts)
        return ("", "dates with years of two digits? Write four: the century cannot be told") if short else None
    fits = [format for format in FORMATS if not np.isnan(parse(texts, format)).any()]
    if len(fits) == 1:
        return fits[0], ""
    if fits:
        return "", f"dates that read {fits[0]} or {fits[1]}: kept as text. Say which: 'date {fits[0]}'"
    return None


def described(format: str) -> str:
    """Return a note for the schema, or nothing for ISO 8601."""
    return f"read as dates: {format}" if format else ""


def _time(hour: str | None, minute: str | None, second: str | None, zone: str | None) -> float:
    """Return the time of day, at its zone, as a part of a day; NaN if there is no such time."""
    h, m, s = int(hour or 0), int(minute or 0), float((second or "0").replace(",", "."))
    if h > 23 or m > 59 or s >= 60:
        return float("nan")
    offset = 0
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        offset = int(digits[:2]) * 60 + int(digits[2:] or 0)
        offset = -offset if zone[0] == "-" else offset
    return (h * 3600 + m * 60 + s - offset * 60) / 86400
