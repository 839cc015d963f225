"""What the paper claims, under every reading that its text allows, and which of them our tables bear out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

Judge = Callable[[pd.DataFrame], tuple[bool, str]]
"""From a table to whether a reading holds, and the figure that decides, in words."""


@dataclass(frozen=True)
class Reading:
    """One way to understand a claim.

    Attributes:
        name: As the page calls it, such as ``"predicted labels on both sides"``.
        judge: From the table of the target.
        needs: A column and a value that it must show for the reading to be judged: tables of earlier code may not.
    """

    name: str
    judge: Judge
    needs: tuple[str, str] | None = None

    def judged_by(self, table: pd.DataFrame) -> bool:
        """Return whether a table has what the reading needs."""
        return self.needs is None or self.needs[1] in set(table[self.needs[0]])


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
        """Return whether a table has what the claim is about, and what one of its readings needs."""
        about = self.data is None or self.data in set(table["data"])
        return about and any(reading.judged_by(table) for reading in self.readings)


def p_over_seeds(p: Any, table: pd.DataFrame) -> Any:
    """Return a mean of p-values over seeds as one p-value: twice the mean, however the seeds depend on each other.

    Args:
        p: Means, a number or a column.
        table: Their table, which says how many seeds there were.

    Returns:
        At most one; of a single seed as it is.
    """
    found = p if table["seeds"].max() == 1 else 2 * p
    return found.clip(upper=1.0) if isinstance(found, pd.Series) else min(1.0, found)


def seeds_of(table: pd.DataFrame) -> pd.Series[Any]:
    """Return the values of each row over seeds, as lists; of a row that has kept none, the mean alone."""
    kept = table.get("by_seed", pd.Series(index=table.index, dtype=object))
    found = [by if isinstance(by, list) else [mean] for by, mean in zip(kept, table["mean"], strict=True)]
    return pd.Series(found, index=table.index, dtype=object)


def lead_of(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float]:
    """Return how far one line of cells is ahead of another on average, and the standard error of that over seeds.

    Args:
        ours: Cells with ``mean``, ``spread`` and ``seeds``, and ``by_seed`` where values were kept.
        theirs: The cells that they are compared with, in the same order.

    Returns:
        The error is of differences seed by seed where they were kept, else as of values that do not depend on each
        other; nothing over a single seed.
    """
    lead = float(np.mean(ours["mean"].to_numpy() - theirs["mean"].to_numpy()))
    seeds = int(ours["seeds"].min())
    if seeds < 2:
        return lead, 0.0
    kept = [seeds_of(part) for part in (ours, theirs)]
    if all(len(values) == seeds for part in kept for values in part):
        first, second = (np.array(part.tolist(), dtype=float) for part in kept)
        return lead, float((first - second).mean(0).std(ddof=1) / seeds**0.5)
    spread = (ours["spread"].to_numpy() ** 2 + theirs["spread"].to_numpy() ** 2) / seeds
    return lead, float(np.mean(spread) ** 0.5)  # cells of one seed share its rows: their errors do not average out


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
        replace(
            reading, name=f"{setting}: {reading.name}", judge=partial(_of_setting, setting=setting, judge=reading.judge)
        )
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
        Plain values: ``sentence``, ``verdict``, ``why``, ``readings`` with ``name``, ``holds`` and ``figure``, and the
        names of readings that the table cannot judge (``unread``).
    """
    read = {reading.name: reading.judged_by(table) for reading in claim.readings}
    found = [(reading.name, *reading.judge(table)) for reading in claim.readings if read[reading.name]]
    holding = [name for name, holds, _ in found if holds]
    verdict = "does not hold"
    if len(holding) == len(found):
        verdict = "holds"
    elif holding:
        verdict = "holds under: " + "; ".join(holding)
    readings = [{"name": name, "holds": bool(holds), "figure": figure} for name, holds, figure in found]
    unread = [name for name, judged in read.items() if not judged]
    return {"sentence": claim.sentence, "verdict": verdict, "why": claim.why, "readings": readings, "unread": unread}
