r"""Numbers in texts as people write them: decimal comma or point, marks between thousands, percent, one currency.

    format        reads                                      means
    (none)        1234.5  -2e3                               what every program writes
    1,234.5       1,234.5   12,000   1 234.5   1'234.5       point before decimals; comma, space or ' between thousands
    1.234,5       1.234,5   12.000   1 234,5   7,25          comma before decimals; point, space or ' between thousands

Behind either may stand a unit, ``1.234,5 €`` or ``1,234.5 %``: then values may carry it; a percentage keeps its number.
A column has one format, found when its schema is inferred and held to afterwards: ``1,234`` alone could be 1234 or
1.234, and is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

POINT, COMMA = "1,234.5", "1.234,5"
CURRENCIES = ("€", "$", "£", "¥", "₹", "CHF", "EUR", "USD", "GBP", "JPY", "kr", "zł")
UNITS = ("%", *CURRENCIES)
SPACES = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2212": "-", "\u2019": "'"})
GROUPED = (
    r"([+-]?)([1-9]\d{{0,2}}(?:(?P<mark>[{marks}' ])\d{{3}}(?:(?P=mark)\d{{3}})*)|\d+)({decimal}\d*)?(e[+-]?\d{{1,4}})?"
)
BODY = {
    POINT: re.compile(GROUPED.format(marks=",", decimal=r"\."), re.ASCII | re.IGNORECASE),
    COMMA: re.compile(GROUPED.format(marks=".", decimal=","), re.ASCII | re.IGNORECASE),
}
# One mark, three digits behind it, no zero before it: thousands to some, decimals to others.
UNSURE = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)
LONGEST = 60


def plain(texts: Sequence[str]) -> np.ndarray:
    """Return texts that every program reads alike as float64, NaN for all others."""
    return pd.to_numeric(pd.Series(list(texts), dtype=object), errors="coerce").to_numpy(np.float64)


def parse(texts: Sequence[str], format: str) -> np.ndarray:
    """Read texts that are written in one format.

    Args:
        texts: ``(n,)``.
        format: One of the table above, or the empty text.

    Returns:
        The numbers, ``(n,)``, float64, NaN where a text is no number of this format.

    Example:
        >>> parse(["1.234,5", "-7 €", "1,234.5"], "1.234,5 €").tolist()
        [1234.5, -7.0, nan]
    """
    if not format:
        return plain(texts)
    style, _, unit = format.partition(" ")
    return np.array([_number(_without(text, unit), style) for text in texts], dtype=np.float64)


def detect(texts: Sequence[str], decimal: str = "") -> tuple[str, bool] | None:
    """Find the format in which all texts are numbers.

    Args:
        texts: Distinct texts, at least one.
        decimal: ``","`` or ``"."`` if other columns of the table write decimals so; it decides where nothing else does.

    Returns:
        The format and whether it is sure, or None if there is no such format. Of an unsure one decimals may be meant by
        what it takes for thousands; without a format, thousands by what it takes for decimals.
    """
    if not np.isnan(plain(texts)).any():
        unsure = all(BODY[COMMA].fullmatch(text.strip()) for text in texts) and _any_unsure(texts)
        return (COMMA, True) if unsure and decimal == "," else ("", not unsure or decimal == ".")
    units = {unit for text in texts if (unit := _unit(text))}
    if len(units) > 1 or (units == {"%"} and not all(_unit(text) for text in texts)):
        return None  # two currencies; or 12 % beside 0.12, where nobody knows which of the two the others are
    unit = units.pop() if units else ""
    bare = [_without(text, unit) for text in texts]
    fits = [style for style in (POINT, COMMA) if all(BODY[style].fullmatch(text) for text in bare)]
    if not fits:
        return None
    unsure = len(fits) == 2 and _any_unsure(bare)
    style = COMMA if len(fits) == 2 and decimal == "," else fits[0]
    return (f"{style} {unit}" if unit else style), not unsure or bool(decimal)


def written(texts: Sequence[str]) -> str:
    """Return ``","`` or ``"."`` if texts show beyond doubt how decimals are written, else nothing."""
    found = detect(texts)
    if found is None or not found[1] or not any(mark in text for text in texts for mark in ",."):
        return ""
    return "," if found[0].startswith(COMMA) else "."


def other(format: str) -> str:
    """Return the format that reads an unsure text in the other way."""
    style, space, unit = (format or POINT).partition(" ")
    return (POINT if style == COMMA else COMMA) + space + unit


def is_format(format: str) -> bool:
    """Tell whether a text is one of the formats."""
    style, space, unit = format.partition(" ")
    return not format or (style in BODY and (unit in UNITS if space else True))


def described(format: str) -> str:
    """Return a note for the schema, or nothing for numbers without a format."""
    style, _, unit = format.partition(" ")
    marks = {POINT: "read as numbers with marks between thousands", COMMA: "read as numbers with a decimal comma"}
    return f"{marks[style]}{f', in {unit}' if unit else ''}: {style}" if format else ""


def _any_unsure(texts: Sequence[str]) -> bool:
    return any(UNSURE.fullmatch(text.strip()) for text in texts)


def _unit(text: str) -> str:
    if text[:1].isdigit() and text[-1:].isdigit():
        return ""
    bare = text.translate(SPACES).strip(" +-")
    return next((unit for unit in UNITS if bare.startswith(unit) or bare.endswith(unit)), "")


def _without(text: str, unit: str) -> str:
    """Return a number without its unit, the sign in front."""
    bare = text.translate(SPACES).strip()
    if not unit:
        return bare
    sign = bare[:1] if bare[:1] in "+-" else ""
    bare = bare[len(sign) :].strip()
    if bare.startswith(unit):
        bare = bare[len(unit) :]
    elif bare.endswith(unit):
        bare = bare[: -len(unit)]
    return sign + bare.strip()


def _number(text: str, style: str) -> float:
    found = BODY[style].fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return float("nan")
    sign, whole, fraction, power = found.group(1), found.group(2), found.group(4), found.group(5)
    return float(f"{sign}{re.sub(r'[^0-9]', '', whole)}{(fraction or '').replace(',', '.')}{power or ''}")
