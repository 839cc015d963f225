"""What the paper claims, under every reading that its text allows, and which of them our tables bear out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

Judge = Callable[[pd.DataFrame], tuple[bool, str]]
"""From a table to whether a reading holds, and the figure that decides, in words."""


@dataclass(frozen=True)
class Reading:
    """One way to understand a claim.

    Attributes:
        name: As the page calls it, such as ``"predicted labels on both sides"``.
        judge: From the table of the target.
    """

    name: str
    judge: Judge


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes:
        sentence: What is claimed, in plain words.
        readings: At least one; the first is the one that the text suggests first.
        why: One sentence: what decides between the readings, or why the claim fails.
        data: The one data set that it is about; without its rows in the table the claim is not judged.
    """

    sentence: str
    readings: tuple[Reading, ...]
    why: str
    data: str | None = None

    def judged_by(self, table: pd.DataFrame) -> bool:
        """Return whether a table has what the claim is about."""
        return self.data is None or self.data in set(table["data"])


def under_each(settings: Iterable[str], readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """Return every reading under every setting: it judges the rows of that setting alone.

    Args:
        settings: Values of the table's column ``setting``.
        readings: Of a table without that column.

    Returns:
        One for each pair, called ``"<setting>: <reading>"``.
    """
    found = list(readings)
    return tuple(
        Reading(f"{setting}: {reading.name}", partial(_of_setting, setting=setting, judge=reading.judge))
        for setting in settings
        for reading in found
    )


def _of_setting(table: pd.DataFrame, *, setting: str, judge: Judge) -> tuple[bool, str]:
    return judge(table[table["setting"] == setting])


def decide(claim: Claim, table: pd.DataFrame) -> dict[str, Any]:
    """Return a claim with its verdict: ``"holds"``, ``"holds under ..."`` or ``"does not hold"``, and every figure.

    Args:
        claim: The claim.
        table: What was measured.

    Returns:
        Plain values: ``sentence``, ``verdict``, ``why``, and ``readings`` with ``name``, ``holds`` and ``figure``.
    """
    found = [(reading.name, *reading.judge(table)) for reading in claim.readings]
    holding = [name for name, holds, _ in found if holds]
    verdict = "does not hold"
    if len(holding) == len(found):
        verdict = "holds"
    elif holding:
        verdict = "holds under: " + "; ".join(holding)
    readings = [{"name": name, "holds": bool(holds), "figure": figure} for name, holds, figure in found]
    return {"sentence": claim.sentence, "verdict": verdict, "why": claim.why, "readings": readings}
