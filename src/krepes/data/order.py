"""Values in an order, from low to high, as a schema writes them: ``S < M < L``."""

from __future__ import annotations

from collections.abc import Sequence

MARK = " < "
EXAMPLE = "ordered S < M < L"


def values_in(format: str) -> tuple[str, ...]:
    """Return the values that a format lists.

    Args:
        format: Values with `MARK` between them.

    Returns:
        The values, from low to high; blanks around them do not count.

    Example:
        >>> values_in("<18 < 18-64 < 65+")
        ('<18', '18-64', '65+')
    """
    return tuple(part.strip() for part in format.split(MARK))


def is_format(format: str) -> bool:
    """Return whether a format lists at least two values, all different and none blank."""
    found = values_in(format)
    return len(found) > 1 and all(found) and len(set(found)) == len(found)


def format_of(levels: Sequence[str]) -> str:
    """Return the format that lists some values, or nothing if it would not be read as these."""
    format = MARK.join(levels)
    return format if is_format(format) and values_in(format) == tuple(levels) else ""
