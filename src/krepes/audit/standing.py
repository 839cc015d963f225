"""Do findings stand in another run? The same audits of several runs, finding by finding, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from krepes.audit.base import AuditResult, Estimate
from krepes.audit.wording import count


@dataclass(frozen=True)
class Standing:
    """One finding in every run.

    Attributes:
        audit: That looked for it.
        name: What was looked for.
        estimates: How much of it each run has; ``None`` where it was not looked for.
        stands: Whether it stands in each run; ``None`` likewise.
    """

    audit: str
    name: str
    estimates: tuple[Estimate | None, ...]
    stands: tuple[bool | None, ...]

    @property
    def found(self) -> int:
        """In how many runs it stands."""
        return sum(stands is True for stands in self.stands)

    @property
    def stable(self) -> bool:
        """Whether every run gives the same answer."""
        return len(set(self.stands)) == 1

    @property
    def word(self) -> str:
        """In which runs it stands, in words."""
        everywhere = {2: "both runs"}.get(len(self.stands), f"all {len(self.stands)} runs")
        if None in self.stands:
            return "not looked for in every run"
        if not self.found:
            return f"stands in none of {everywhere}" if len(self.stands) > 2 else "stands in neither run"
        return f"stands in {everywhere}" if self.stable else f"stands in {self.found} of {len(self.stands)} runs"

    @property
    def apart(self) -> bool:
        """Whether two runs differ by more than their intervals: no number lies in both."""
        ends = [(e.low, e.high) for e in self.estimates if e is not None and e.low is not None and e.high is not None]
        lows, highs = [low for low, _ in ends], [high for _, high in ends]
        return len(ends) > 1 and max(lows) > min(highs)


@dataclass(frozen=True)
class Comparison:
    """Findings of several runs side by side.

    Attributes:
        runs: What each run is called.
        standings: One for each finding of any run, those that stand anywhere first, unstable ones before stable.
    """

    runs: tuple[str, ...]
    standings: tuple[Standing, ...]

    def of(self, audit: str) -> tuple[Standing, ...]:
        """Return the findings of an audit that stand in some run and were looked for in all."""
        return tuple(one for one in self.found if one.audit == audit)

    @property
    def found(self) -> tuple[Standing, ...]:
        """Findings that stand in some run and were looked for in all."""
        return tuple(one for one in self.standings if one.found and None not in one.stands)

    @property
    def elsewhere(self) -> tuple[Standing, ...]:
        """Findings that stand in some run and were not looked for in another: neither stable nor unstable."""
        return tuple(one for one in self.standings if one.found and None in one.stands)

    @property
    def everywhere(self) -> str:
        """All runs, in words."""
        return "both runs" if len(self.runs) == 2 else f"all {len(self.runs)} runs"

    @property
    def stable(self) -> int:
        """How many of those stand in every run."""
        return sum(one.stable for one in self.found)

    def mark(self, audit: str) -> str:
        """Return whether what an audit found is stable, in words; empty if it found nothing in any run."""
        found = self.of(audit)
        if not found:
            return ""
        kept = sum(one.stable for one in found)
        word = "stable" if kept == len(found) else "not stable" if not kept else "partly stable"
        return f"{word}: {kept} of {count(len(found), 'finding')} in {self.everywhere}"

    def sentence(self) -> str:
        """Return how many findings stand in every run, and the first that do not."""
        found = self.found
        apart = (
            f" {count(len(self.elsewhere), 'other')} could not be looked for in every run." if self.elsewhere else ""
        )
        if not found:
            return f"Nothing was found in any of {count(len(self.runs), 'run')}.{apart}"
        start = f"{self.stable} of {count(len(found), 'finding')} stand in {self.everywhere}"
        lost = [one for one in found if not one.stable]
        if not lost:
            return f"{start}.{apart}"
        named = "; ".join(f"{one.name} ({one.word})" for one in lost[:3])
        rest = f"; and {count(len(lost) - 3, 'other')}" if len(lost) > 3 else ""
        return f"{start}. Not stable: {named}{rest}.{apart}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each finding and run."""
        rows: list[dict[str, Any]] = []
        for one in self.standings:
            for run, estimate, stands in zip(self.runs, one.estimates, one.stands, strict=True):
                ends = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
                values = dict(zip(("estimate", "low", "high"), ends, strict=True))
                rows.append({"audit": one.audit, "finding": one.name, "run": run, **values, "stands": stands})
        names = ["audit", "finding", "run", "estimate", "low", "high", "stands"]
        return pd.DataFrame(rows, columns=names)


def compare(runs: Mapping[str, Mapping[str, AuditResult]]) -> Comparison:
    """Put the findings of several runs side by side.

    Args:
        runs: By what each run is called, its results by the name of the audit.

    Returns:
        The comparison.
    """
    found = [
        {(audit, one.name): one for audit, result in results.items() for one in result.findings}
        for results in runs.values()
    ]
    names = dict.fromkeys(key for one in found for key in one)
    standings = [
        Standing(
            audit,
            name,
            tuple(one[audit, name].estimate if (audit, name) in one else None for one in found),
            tuple(one[audit, name].stands if (audit, name) in one else None for one in found),
        )
        for audit, name in names
    ]
    order = sorted(standings, key=lambda one: (not one.found, one.stable))
    return Comparison(tuple(runs), tuple(order))
