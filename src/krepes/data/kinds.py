"""What kind a column is, told from its values: the reasons, the notes, and what is not guessed.

The cost of a column is that of finding its distinct values; the first few of them decide most columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_complex_dtype, is_datetime64_any_dtype, is_numeric_dtype

from krepes.data import dates, numerals, order
from krepes.data.kept import one_by_one
from krepes.data.values import FLAGS, NO_NUMBER, distinct, shown
from krepes.errors import InvalidInputError

Kind = Literal["numeric", "boolean", "date", "categorical", "ordered", "constant", "identifier", "ignored"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_CATEGORIES = 100
"""Categories of a column that are told apart one by one: the others, which are rarer, are taken together."""
CODE_NAME = re.compile(
    r"(^|[\W_])(zip|plz|post(al)?|icd\w*|naics|isco|cpt)([\W_]|\d*$)|(^|[\W_]|zip|post)code$", re.IGNORECASE
)
LEADING_ZERO = re.compile(r"0\d+", re.ASCII)
# Below this many values, texts that all differ may still be categories, and consecutive numbers no row numbers.
FEW = 10


@dataclass(frozen=True)
class Guess:
    """What a column seems to be.

    Attributes:
        kind: What it holds.
        note: Why, where that needs saying.
        format: How its numbers or dates are written, where not as every program writes them.
        unsure: Texts that do not show whether a comma stands before decimals or between thousands.
        decimal: ``","`` or ``"."`` if the column shows beyond doubt how decimals are written.
    """

    kind: Kind
    note: str = ""
    format: str = ""
    unsure: tuple[str, ...] = ()
    decimal: str = ""


def infer_kinds(frame: pd.DataFrame) -> dict[str, Guess]:
    """Return a guess for each column; one whose marks can be read in two ways is decided by what the others show.

    Args:
        frame: At least one row.

    Returns:
        Guesses by name.
    """
    found = {str(name): guess(column) for name, column in one_by_one(frame)}
    shows = {one.decimal for one in found.values()} - {""}
    decimal = shows.pop() if len(shows) == 1 else ""
    return {name: _decided(one, decimal) for name, one in found.items()}


def guess(column: pd.Series[Any]) -> Guess:
    """Return what one column seems to be."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _in_order(_of_texts(*_levels(column), parse=False), column.dtype)
    if is_datetime64_any_dtype(column):
        known = column.dropna()
        if known.empty or (known.nunique() == 1 and len(known) == len(column)):
            return _of_texts(*_levels(column), parse=False)
        return Guess("date")
    if is_complex_dtype(column):
        return Guess("numeric")  # and refused with value and row when it is read
    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return _of_codes(column) or _of_numbers(column)
    return _of_texts(*_levels(column), parse=True)


def _in_order(one: Guess, dtype: pd.CategoricalDtype) -> Guess:
    """Return the guess for categories that pandas orders, with the order as its format if it can be written."""
    if one.kind != "categorical" or not dtype.ordered:
        return one
    format = order.format_of(distinct(pd.Series(dtype.categories))[1])
    return replace(one, kind="ordered", format=format) if format else one


def _of_codes(column: pd.Series[Any]) -> Guess | None:
    """Return categories for whole numbers that a column's name says are codes, such as postal ones; else nothing."""
    present = column.dropna()
    if not CODE_NAME.search(str(column.name)) or present.empty or not bool((present % 1 == 0).all()):
        return None
    levels = present.nunique()
    if levels < 3 or levels > max(FEW, len(present) / 2):
        return None
    why = f"{_together(levels)}read as codes because of its name, not as numbers; 'numeric' reads numbers"
    return Guess("categorical", why)


def format_of(column: pd.Series[Any], kind: str) -> str:
    """Return how the texts of a column are written that the user says is numeric or a date.

    Args:
        column: ``(n,)``.
        kind: What the user said.

    Returns:
        The format; empty if values are read without one, or cannot be read at all.

    Raises:
        InvalidInputError: If there are two ways to read them.
    """
    if kind not in {"numeric", "date"} or is_numeric_dtype(column) or is_datetime64_any_dtype(column):
        return ""
    texts = [text for text in _levels(column)[0] if text.strip().lower() not in NO_NUMBER]
    if not texts:
        return ""
    if kind == "date":
        format, problem = dates.detect(texts) or ("", "")
    else:
        format, sure = numerals.detect(texts) or ("", True)
        problem = "" if sure or not format else _two_ways(texts, format)
    if problem:
        raise InvalidInputError(f"column {shown(column.name)} is said to be {kind}, but holds {problem}.")
    return format


def _of_numbers(column: pd.Series[Any]) -> Guess:
    present = column.dropna()
    if present.empty:
        return Guess("constant", "dropped: every value is missing")
    values = present.to_numpy()
    low, high = values.min(), values.max()
    if low == high and len(values) == len(column):
        return Guess("constant", f"dropped: every value is {shown(low)}")
    if _counts_rows(column, values):
        return Guess("identifier", f"dropped: counts the rows from {values[0]}")
    if 0 <= low and high <= 1 and ((values == 0) | (values == 1)).all():
        return Guess("boolean")
    fractions = values.dtype.kind == "f" and bool((np.floor(values) != values).any())
    return Guess("numeric", decimal="." if fractions else "")


def _counts_rows(column: pd.Series[Any], values: np.ndarray[Any, Any]) -> bool:
    """Tell row numbers, which an unnamed column of a CSV file holds also when there are few."""
    likely = len(column) > FEW or str(column.name).startswith("Unnamed: ")
    if not likely or values.dtype.kind not in "iu" or len(values) != len(column):
        return False
    return int(values[-1]) - int(values[0]) == len(values) - 1 and bool((values[1:] > values[:-1]).all())


def _levels(column: pd.Series[Any]) -> tuple[list[str], int, bool]:
    """Return the distinct texts of a column, how many values are not missing, and whether none is."""
    codes, levels = distinct(column)
    count = int((codes >= 0).sum())
    return levels, count, count == len(column)


def _of_texts(levels: list[str], count: int, full: bool, *, parse: bool) -> Guess:
    if not levels:
        return Guess("constant", "dropped: every value is missing")
    if len(levels) == 1 and full:
        return Guess("constant", f"dropped: every value is {shown(levels[0])}")
    if not parse:
        return _of_words(levels, count, "")
    if all(level.strip().lower() in FLAGS for level in levels):
        return Guess("boolean")
    note = ""
    dated = dates.detect(levels[:FEW]) and dates.detect(levels)
    if dated:
        format, note = dated
        if not note:
            return Guess("date", dates.described(format), format)
    texts = [level for level in levels if level.strip().lower() not in NO_NUMBER]
    if texts and all(text.isdecimal() for text in texts) and any(map(LEADING_ZERO.fullmatch, texts)):
        why = f"codes such as {shown(next(filter(LEADING_ZERO.fullmatch, texts)))}, not numbers: they start with zero"
        return _of_words(levels, count, f"{why}; 'numeric' reads numbers")
    found = (numerals.detect(texts[:FEW]) and numerals.detect(texts)) if texts else None
    if found is None:
        return _of_words(levels, count, note or _nearly_numbers(levels))
    format, sure = found
    if sure:
        decimal = numerals.written(texts)
        undecided = tuple(texts) if format and not decimal else ()
        return Guess("numeric", numerals.described(format), format, undecided, decimal)
    return _of_words(levels, count, _two_ways(texts, format), unsure=tuple(texts))


def _of_words(levels: list[str], count: int, note: str, *, unsure: tuple[str, ...] = ()) -> Guess:
    if len(levels) > max(FEW, count / 2):
        why = f"dropped: {len(levels)} distinct texts in {count} values; 'categorical' keeps them"
        return Guess("identifier", "; ".join(filter(None, [why, note])), unsure=unsure)
    return Guess("categorical", f"{_together(len(levels))}{note}".removesuffix("; "), unsure=unsure)


def _together(levels: int) -> str:
    """Return how many categories are told apart, where not all are."""
    if levels <= MAX_CATEGORIES:
        return ""
    return f"{levels} categories: the {MAX_CATEGORIES} most frequent are told apart, the others taken together; "


def _decided(one: Guess, decimal: str) -> Guess:
    """Return the guess for a column, once it is known how the other columns write decimals."""
    if not one.unsure:
        # Whole numbers of a table with decimal commas: the thousands of a later row will have points.
        whole = decimal == "," and one.kind == "numeric" and not one.format
        return replace(one, format=numerals.COMMA) if whole else one
    found = numerals.detect(one.unsure, decimal)
    assert found is not None, "an unsure column fits both formats"
    format, sure = found
    if sure:
        return Guess("numeric", numerals.described(format), format)
    if format:
        return one
    example = next(text for text in one.unsure if "." in text)
    return Guess(
        "numeric", f"{shown(example)} is read with a decimal point; 'numeric {numerals.COMMA}' reads thousands"
    )


def _two_ways(texts: Sequence[str], format: str) -> str:
    """Return why numbers with an unsure mark stay text, and what to say to have them read."""
    example = next((text for text in texts if "," in text or "." in text), texts[0])
    return (
        f"numbers such as {shown(example)}, whose mark may stand before decimals or between thousands. Say which: "
        f"'numeric {numerals.other(format)}' or 'numeric {format or numerals.POINT}'"
    )


def _nearly_numbers(levels: list[str]) -> str:
    """Return a note if most texts are numbers, else nothing."""
    numeric = ~np.isnan(numerals.plain(levels[:FEW]))
    if not numeric.any():
        return ""
    numeric = ~np.isnan(numerals.plain(levels))
    if not 0.5 < numeric.mean() < 1.0:
        return ""
    return f"{numeric.sum()} of {len(levels)} distinct values are numbers, but {shown(levels[numeric.argmin()])} is not"
