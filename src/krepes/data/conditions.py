r"""Conditions on the columns of a table, such as ``country == 'X' and (age < 30 or `job title` in ('a', 'b'))``.

    condition   = comparison | ( condition ) | condition and condition | condition or condition
    comparison  = column OP value,   OP one of == != < <= > >=    |    column in ( value , value , ... )

A text is read by this small grammar and by nothing else: there is no call, no attribute and no arithmetic, and nothing
is ever executed. Whatever the grammar does not know is refused, with its place. ``and`` binds closer than ``or``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from krepes.data.text import printable
from krepes.data.values import MISSING, categories, numbers
from krepes.errors import InvalidInputError

LONGEST, DEEPEST, SHOWN = 10_000, 50, 40
"""Characters of a condition, parentheses inside one another, and characters of it that a message shows."""
TOKEN = re.compile(
    r"\s*(?:(?P<column>`[^`]*`)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))"
    r"|(?P<operator>==|!=|<=|>=|<|>)|(?P<mark>[()\[\],])|(?P<word>[^\W\d]\w*))"
)
ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = ("and", "or", "in", "not")
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Value = str | float
Columns = Callable[[str], "pd.Series[Any]"]


@dataclass(frozen=True)
class Comparison:
    """One column against one value, or against several by ``in``."""

    column: str
    how: str
    values: tuple[Value, ...]

    def holds(self, columns: Columns) -> Mask:
        """Return where it holds, ``(n,)``; a missing number fulfils no comparison.

        Args:
            columns: From a name to the column.

        Returns:
            A mask.
        """
        found = columns(self.column)
        if self.how in ORDER:
            return np.asarray(ORDER[self.how](_numbers(found, self.values[0]), self.values[0]))
        equal = np.zeros(len(found), dtype=bool)
        for value in self.values:
            equal |= _equal(found, value)
        return ~equal & ~_lost(found, self.values) if self.how == "!=" else equal


@dataclass(frozen=True)
class Joined:
    """Conditions of which all must hold, or any."""

    how: str
    parts: tuple[Comparison | Joined, ...] = field(repr=False)

    def holds(self, columns: Columns) -> Mask:
        """Return where it holds, ``(n,)``."""
        masks = [part.holds(columns) for part in self.parts]
        return np.logical_and.reduce(masks) if self.how == "and" else np.logical_or.reduce(masks)


Condition = Comparison | Joined


def parse_condition(text: str, asked_by: str = "condition") -> Condition:
    """Read a condition.

    Args:
        text: As a person wrote it.
        asked_by: The flag or argument that holds it, for the message.

    Returns:
        The condition, which knows where it holds.

    Raises:
        InvalidInputError: If it is no condition; the message shows the place.

    Example:
        >>> table = pd.DataFrame({"age": [20, 40, 60], "job title": ["cook", "clerk", "cook"]})
        >>> parse_condition("age > 30 and `job title` == 'cook'").holds(table.__getitem__)
        array([False, False,  True])
    """
    if len(text) > LONGEST:
        raise InvalidInputError(f"{asked_by}: a condition of {len(text)} characters is too long: {LONGEST} at most.")
    reader = _Reader(text, asked_by)
    found = reader.either(0)
    if reader.kind is not None:
        raise reader.refusal("'and', 'or' or the end of the condition is expected")
    return found


class _Reader:
    """Walks over a condition, one token at a time."""

    def __init__(self, text: str, asked_by: str) -> None:
        self.text, self.asked_by = text, asked_by
        self.start = self.stop = 0
        self.kind: str | None = None
        self.token = ""
        self.next()

    def next(self) -> str:
        """Step over the token, and return it."""
        passed, self.start = self.token, self.stop
        while self.start < len(self.text) and self.text[self.start].isspace():
            self.start += 1
        if self.start == len(self.text):
            self.kind, self.token, self.stop = None, "", self.start
            return passed
        found = TOKEN.match(self.text, self.start)
        if found is None or found.lastgroup is None:
            raise self.refusal("this cannot be read")
        self.kind, self.token, self.stop = found.lastgroup, found[found.lastgroup], found.end()
        return passed

    def either(self, depth: int) -> Condition:
        """Return conditions joined by ``or``."""
        return self.joined("or", lambda: self.joined("and", lambda: self.one(depth)))

    def joined(self, how: str, part: Callable[[], Condition]) -> Condition:
        """Return parts joined by a word."""
        parts = [part()]
        while self.kind == "word" and self.token == how:
            self.next()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(how, tuple(parts))

    def one(self, depth: int) -> Condition:
        """Return a comparison, or a condition in parentheses."""
        if self.token != "(" or self.kind != "mark":
            return self.comparison()
        if depth == DEEPEST:
            raise self.refusal(f"more than {DEEPEST} parentheses inside one another are refused")
        self.next()
        inside = self.either(depth + 1)
        if self.token != ")":
            raise self.refusal("a closing parenthesis is expected")
        self.next()
        return inside

    def comparison(self) -> Comparison:
        """Return ``column OP value`` or ``column in (values)``."""
        if self.kind not in {"word", "column"} or self.token in WORDS:
            raise self.refusal("the name of a column is expected (with spaces or signs: in `backticks`)")
        column = self.next().strip("`")
        if self.kind == "word" and self.token == "in":
            self.next()
            return Comparison(column, "in", self.listed())
        if self.kind != "operator":
            raise self.refusal("one of == != < <= > >= in is expected")
        place, how = self.start, self.next()
        value = self.value()
        if how in ORDER and isinstance(value, str):
            self.start = place
            raise self.refusal(f"{how} compares numbers, and {value!r} is a text")
        return Comparison(column, how, (value,))

    def listed(self) -> tuple[Value, ...]:
        """Return the values of a list in parentheses or brackets."""
        closing = {"(": ")", "[": "]"}.get(self.token if self.kind == "mark" else "")
        if closing is None:
            raise self.refusal("a list is expected, such as ('a', 'b')")
        self.next()
        values = [self.value()]
        while self.token == "," and self.kind == "mark":
            self.next()
            values.append(self.value())
        if self.token != closing or self.kind != "mark":
            raise self.refusal(f"a comma or {closing} is expected")
        self.next()
        return tuple(values)

    def value(self) -> Value:
        """Return a text in quotes, or a number."""
        if self.kind == "text":
            return self.next()[1:-1]
        if self.kind == "number":
            return float(self.next())
        raise self.refusal("a number, or a text in quotes, is expected")

    def refusal(self, what: str) -> InvalidInputError:
        """Return the error of this place."""
        before = self.text[max(0, self.start - SHOWN) : self.start]
        after = self.text[self.start : self.start + SHOWN] or "(end)"
        dots = "..." if self.start > SHOWN else ""
        return InvalidInputError(
            f"{self.asked_by}: {what} at character {self.start + 1}, after the mark: {printable(dots + before)} ▶ "
            f"{printable(after)}. A condition is column OP value, OP one of == != < <= > >= in, joined by and, or, "
            f"parentheses."
        )


def _equal(column: pd.Series[Any], value: Value) -> Mask:
    """Return where a column has a value: a number where the column holds numbers, else a text."""
    if value == MISSING:
        return column.isna().to_numpy(dtype=bool)
    if isinstance(value, float):
        return np.asarray(_numbers(column, value) == value)
    if _holds_numbers(column):
        raise InvalidInputError(f"column {column.name!r} holds numbers: compare it with a number, not with {value!r}.")
    return np.asarray(categories(column).astype(str) == value)


def _lost(column: pd.Series[Any], values: tuple[Value, ...]) -> Mask:
    """Return where a column has no value, if it is compared with numbers."""
    if isinstance(values[0], float):
        return column.isna().to_numpy(dtype=bool)
    return np.zeros(len(column), dtype=bool)


def _holds_numbers(column: pd.Series[Any]) -> bool:
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def _numbers(column: pd.Series[Any], value: Value) -> pd.Series[float]:
    try:
        return numbers(column)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"column {column.name!r} holds texts and cannot be compared with the number {value:g}: {error} Put a text "
            f"in quotes."
        ) from error
