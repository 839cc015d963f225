r"""How much is held in memory at a time: one budget of bytes, and every chunk size that follows from it.

    rows = min(most, (share · bytes - fixed) // bytes_per_row)

A chunk aims at a share of the budget, because several parts work at the same time. A single row may take all of it; if
not even that fits, the work is refused before it starts, with the budget that would do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

from krepes.errors import InvalidInputError

UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("KMGT", 1) for end in ("", "IB")},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
}
"""Bytes per unit, in capitals: ``K`` and ``KiB`` are 1024 bytes, ``KB`` is 1000."""


@dataclass(frozen=True)
class Budget:
    """Bytes that a part of the computation may hold at a time.

    Attributes:
        bytes: At least 1.

    Example:
        >>> Budget.of("2G").rows(bytes_per_row=1 << 20, what="an image")
        2048
        >>> str(Budget.of("1.5 GiB")), Budget.of(1_000_000).bytes, Budget.of("1MB").bytes
        ('1.5 GiB', 1000000, 1000000)
    """

    bytes: int

    def __post_init__(self) -> None:
        """Refuse what is no number of bytes."""
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int) or self.bytes < 1:
            raise InvalidInputError(
                f"memory_budget={self.bytes!r} is no budget: it must be a whole number of bytes, at least 1, or text "
                f"such as '512MiB' or '2G'."
            )

    @classmethod
    def of(cls, value: MemoryBudget) -> Budget:
        """Return the budget that a number of bytes, a text or a budget names.

        Args:
            value: Bytes, text such as ``"512MiB"``, ``"2G"`` or ``"1.5 GB"``, or a budget.

        Returns:
            The budget.

        Raises:
            InvalidInputError: If it names none.
        """
        if isinstance(value, Budget):
            return value
        if not isinstance(value, str):
            return cls(int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value)
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if found is None or found[2].upper() not in UNITS:
            raise InvalidInputError(
                f"memory_budget={value!r} is no budget: write a number and a unit, such as '512MiB', '2G' or '800MB'."
            )
        return cls(int(float(found[1]) * UNITS[found[2].upper()]))

    def fits(self, size: float, *, share: float = 1.0) -> bool:
        """Return whether ``size`` bytes are within a share of the budget."""
        return size <= share * self.bytes

    def rows(
        self, bytes_per_row: float, *, what: str, fixed: float = 0, share: float = 1.0, most: int | None = None
    ) -> int:
        """Return how many rows may be held at a time.

        Args:
            bytes_per_row: Bytes per row, with all copies that exist at the same time.
            what: What a row is, for the error message.
            fixed: Bytes that are needed beside the rows, however many they are.
            share: Part of the budget that rows and ``fixed`` aim at.
            most: More rows than this are of no use.

        Returns:
            At least 1. Rows and ``fixed`` together stay within the share, or, for a single row, within the budget.

        Raises:
            InvalidInputError: If not even one row fits the whole budget.
        """
        row = max(bytes_per_row, 1)
        size = int((share * self.bytes - fixed) // row)
        if size < 1:
            if fixed + row > self.bytes:
                raise InvalidInputError(_refusal(self, math.ceil(row), math.ceil(fixed), what))
            size = 1
        return size if most is None else max(1, min(size, most))

    def __str__(self) -> str:
        """Return the bytes in the largest unit that leaves at least 1."""
        power = min(4, max(0, self.bytes.bit_length() - 1) // 10)
        number = f"{self.bytes / 1024**power:.4g}"
        return f"{number} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


MemoryBudget: TypeAlias = int | str | Budget
"""What ``memory_budget`` takes everywhere: bytes, text such as ``"2G"``, or a `Budget`."""

DEFAULT_BUDGET = Budget(1 << 30)
"""The one default."""


def _refusal(budget: Budget, row: int, fixed: int, what: str) -> str:
    beside = f", beside {Budget(fixed)} that are needed however few there are" if fixed else ""
    return (
        f"a memory budget of {budget} ({budget.bytes} bytes) does not hold {what}: one takes {Budget(row)}{beside}. "
        f"Raise memory_budget to {fixed + row} bytes or more, or make the problem smaller."
    )
