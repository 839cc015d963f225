"""What selection has to show: what the recommended criterion costs, and whether the paper's entropy tracks a probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from krepes.audit.selection import CRITERIA, RECOMMENDED
from krepes.reproduce import grids
from krepes.reproduce.claims import Claim, Judge, Reading, seeds_of
from krepes.reproduce.grids import CARELESS, COST, FELL, PROBE, RANDOM, STRONG

CHOSEN_ON = "mnist"
"""The data set whose first seed chose the recommended criterion; the others confirm it or do not."""
ONE = "lam, one encoder"
"""The grid of the reading in which lambda varies in the objective alone."""
MADE = "spread weight"
"""The grid whose first value, no weight on the spread, is made to collapse."""
PRESET = ", paper"
"""Of a grid whose kernel models are by the paper's preset: for the claims alone, for no other criterion sees them."""
INPUT = "input"
"""Of the line that says what a probe reads off the input itself."""
POINTS, SHARE = 2.0, 0.8
"""What a pick may cost, and on how many of the grids."""
PART, TRACKING = 0.25, 0.9
"""Of what a probe spans, the part that a peak may cost; and the rank correlation of a criterion that tracks it."""


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the recommended criterion costs little on most grids, also where it was not chosen."""
    cost, checks = _costs(table), []
    new = cost.drop(index=[(CHOSEN_ON, grid) for grid in grids.GRIDS])
    for where, part in (("all", cost), (f"other than those of {CHOSEN_ON} that chose it", new)):
        good, count = int((part[RECOMMENDED] <= POINTS).sum()), len(part)
        words = f"{CRITERIA[RECOMMENDED]} costs at most {POINTS:g} points on {good} of {count} grids ({where}), 8 in 10"
        checks.append((f"{words}; a random value on {int((part[RANDOM] <= POINTS).sum())}", good >= SHARE * count))
    picks = _costs(table, by_seed=True)[RECOMMENDED].explode().dropna().astype(float)
    near = int((picks <= POINTS).sum())
    words = f"of its single picks, one a grid and seed, {near} of {len(picks)} cost at most {POINTS:g} points, 8 in 10"
    checks.append((f"{words}; the dearest {picks.max():.1f}", near >= SHARE * len(picks)))
    chosen = cost[list(CRITERIA)].loc[[(CHOSEN_ON, grid) for grid in grids.GRIDS]]
    first = chosen.mean().sort_values(kind="stable")
    checks.append((
        f"on {CHOSEN_ON}, where it was chosen, {CRITERIA[str(first.index[0])]} costs least, {first.iloc[0]:.1f} points "
        f"on average, then {CRITERIA[str(first.index[1])]}, {first.iloc[1]:.1f}",
        first.index[0] == RECOMMENDED,
    ))
    return [*checks, _never_collapsed(table)]


def _never_collapsed(table: pd.DataFrame) -> tuple[str, bool]:
    by = ["data", "grid", "measure"]
    careful, careless = (table[table["at"] == row].set_index(by)["mean"] for row in (COST, CARELESS))
    spared = int((careless > careful.reindex(careless.index)).sum())
    named = table[(table["grid"] == MADE) & (table["at"] == "0") & (table["measure"] == "collapsed")]
    least, collapse = float(named["mean"].min()), _collapse(table)
    worst = float(_costs(table).xs(MADE, level="grid")[RECOMMENDED].max())
    said = (
        f"collapsed encoders are never picked; those that were made to collapse are named in {100 * least:.0f} % of "
        f"the seeds on every data set and cost at least {collapse:.1f} points, where the worst pick of "
        f"{CRITERIA[RECOMMENDED]} beside them costs {worst:.1f}; the alarm makes {spared} of {len(careless)} picks "
        f"cheaper"
    )
    return said, not table[table["at"] == FELL]["mean"].any() and worst < collapse


def _collapse(table: pd.DataFrame) -> float:
    """Return the least that an encoder which was made to collapse, and did, costs in points of the probe.

    The alarm says what it leaves out, so it cannot say whether it misses any; what a pick costs can.
    """
    rows = table[(table["grid"] == MADE) & table["measure"].isin([PROBE, "collapsed"])]
    values = rows[~rows["at"].isin([COST, CARELESS, FELL])].pivot(
        index=["data", "at"], columns="measure", values="mean"
    )
    lost = 100 * (values.groupby("data")[PROBE].transform("max") - values[PROBE].fillna(0.0))
    return float(lost[values["collapsed"] > 0].min())


def _costs(table: pd.DataFrame, *, by_seed: bool = False) -> pd.DataFrame:
    """Return what each criterion's pick costs, one row a grid of one encoder per value; or a list over seeds."""
    rows = table[(table["at"] == COST) & table["grid"].isin([*grids.GRIDS, STRONG])]
    rows = rows.assign(seen=seeds_of(rows) if by_seed else rows["mean"])
    return rows.pivot(index=["data", "grid"], columns="measure", values="seen")


def curves(table: pd.DataFrame, grid: str, measure: str) -> np.ndarray[Any, Any]:
    """Return a measure over the lambdas of a grid of MNIST, ``(seeds, lambdas)``."""
    rows = table[(table["data"] == CHOSEN_ON) & (table["grid"] == grid) & (table["measure"] == measure)]
    found = dict(zip(rows["at"], seeds_of(rows), strict=True))
    return np.array([found[f"{lam:g}"] for lam in grids.GRIDS["lam"]], dtype=float).T


def _peak(grid: str, measure: str) -> Judge:
    """Return the judge of a reading: in every seed, does the peak of a criterion cost a quarter of the span at most?"""

    def judged(table: pd.DataFrame) -> tuple[bool, str]:
        found, probe = (curves(table, grid, name) for name in (measure, PROBE))
        span = 100 * (probe.max(1) - probe.min(1))
        cost = 100 * (probe.max(1) - probe[np.arange(len(probe)), found.argmax(1)])
        peak, best = (f"{grids.GRIDS['lam'][int(curve.mean(0).argmax())]:g}" for curve in (found, probe))
        seeds = ", ".join(f"{x:.1f}" for x in cost)
        figure = f"peak at {peak}, of the probe at {best}; picks cost {seeds} of {span.mean():.1f} points"
        return bool((cost <= PART * span).all()), figure

    return judged


def _tracks(grid: str, measure: str) -> Judge:
    """Return the judge of a reading: do a criterion and the probe order the lambdas alike?"""

    def judged(table: pd.DataFrame) -> tuple[bool, str]:
        found, probe = (curves(table, grid, name).mean(0) for name in (measure, PROBE))
        rho = float(spearmanr(found, probe).statistic) if np.ptp(found) and np.ptp(probe) else float("nan")
        return rho >= TRACKING, f"Spearman {rho:+.1f} over {len(found)} lambdas"

    return judged


WAYS = {
    STRONG: "one encoder per lambda, above its input",
    "lam": "one small encoder per lambda",
    ONE: "one encoder, lambda in the objective alone",
}
"""Grids by what a reading calls them."""


def _readings(judge: Callable[[str, str], Judge]) -> tuple[Reading, ...]:
    """Return what the text allows: one encoder or one for each lambda, both metrics, the preset and ours."""
    metrics = (("AᵀA as printed", "entropy"), ("AᵀKA", "entropy_kernel"))
    return tuple(
        Reading(f"{setting}: {words}, {name}", judge(grid + more, measure), needs=("grid", grid + more))
        for setting, more in (("paper", PRESET), ("ours", ""))
        for grid, words in WAYS.items()
        for name, measure in metrics
    )


CLAIMS = (
    Claim(
        "the spectral entropy peaks at the lambda of Barlow Twins where a probe is best (MNIST)",
        _readings(_peak),
        "At the start of the step AᵀA is the inverse of the kernel's eigenvalues, which the smallest one kept rules, "
        "and AᵀKA is the identity. With one encoder for all lambdas only the step differs. A peak counts if in every "
        "seed it costs at most a quarter of what the probe spans.",
    ),
    Claim(
        "the spectral entropy closely tracks the accuracy over lambda (MNIST)",
        _readings(_tracks),
        f"Five values in the same order come by chance once in 120 times; a rank correlation of {TRACKING:g} or more, "
        "five times in 120.",
    ),
)
