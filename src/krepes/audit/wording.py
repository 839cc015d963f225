"""Numbers and lists as a reader wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

LONGEST = 60
METHODS = {
    "influence": "influence (ours)",
    "directional": "directional (ours)",
    "latent cosine": "latent cosine",
    "kernel": "kernel similarity",
    "input distance": "input distance",
    "random": "random",
}


def text(value: Any, length: int = LONGEST) -> str:
    """Return any value as text of at most ``length`` characters.

    Args:
        value: An id, a category, a number.
        length: Characters.

    Returns:
        The text; floats to five digits, a missing value as such.

    Example:
        >>> text(1234.56789), text("a" * 9, 5)
        ('1,234.6', 'aaaa…')
    """
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "missing"
    shown = f"{value:,.5g}" if isinstance(value, (float, np.floating)) else str(value)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def percent(share: float) -> str:
    """Return a share between 0 and 1 as a percentage that no line break splits, one digit more near the ends."""
    digits = 1 if 0.0005 < share < 0.0995 or 0.9905 < share < 0.9995 else 0
    return f"{100 * share:.{digits}f}\u00a0%"


def points(share: float) -> str:
    """Return a difference of two shares as points of a hundred.

    Example:
        >>> points(0.453), points(0.0042), points(0.01)
        ('45 points of 100', '0.42 points of 100', '1 point of 100')
    """
    shown = number(100 * share, 2)
    return f"{shown} {'point' if shown == '1' else 'points'} of 100"


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign, a true minus."""
    shown = f"{value:+.{digits}g}" if 0 < abs(value) < 10**-digits else f"{value:+.{digits}f}"
    return shown.replace("-", "−")


def number(value: float, digits: int = 3) -> str:
    """Return a number to so many significant digits."""
    return f"{value:,.{digits}g}".replace("-", "−")


def listing(values: Sequence[Any]) -> str:
    """Return values as 'a, b and c'."""
    words = [text(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def count(n: int, noun: str) -> str:
    """Return '1 row', '2,000 rows'."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def quoted(value: Any) -> str:
    """Return a name from the data in quotation marks."""
    return f"“{text(value)}”"


def drawn(size: int, whole: int | None) -> str:
    """Return how many samples there are, and of how many if they were drawn.

    Example:
        >>> drawn(48, None), drawn(20_000, 200_000)
        ('48', '20,000 of 200,000, evenly spaced')
    """
    return f"{size:,}" if whole is None else f"{size:,} of {whole:,}, evenly spaced"
