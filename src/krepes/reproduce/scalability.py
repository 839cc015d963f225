"""Scalability (paper, figure on Adult and Bank): accuracy and time against n, full kernel and Nystrom."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from krepes.figures.style import BLUE, GREEN, RED, new_figure, styled
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.claims import Claim, Reading
from krepes.reproduce.probes import probe_model
from krepes.reproduce.trial import Experiment, Trial
from krepes.views import ViewStream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = ("adult", "bank")
KEYS = ("data", "method", "n", "measure")
FULL, FIXED, GROWING = "full kernel", "fixed m = 200", "m = 6 sqrt(n)"
METHODS = {FULL: RED, FIXED: BLUE, GROWING: GREEN}
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "quick": {FULL: (250, 500, 1_000), FIXED: (1_000, 2_000, 4_000)},
    "standard": {FULL: (750, 1_500, 3_000), FIXED: (750, 1_500, 3_000, 6_000, 12_000)},
    "full": {FULL: (500, 1_000, 2_000, 4_000, 8_000), FIXED: (1_000, 2_000, 4_000, 8_000, 16_000, 32_000)},
}
H = 32
ALL, LAST = "exponent of", "exponent between the largest two of"
"""Slopes of log time over log n: of all sizes, and where the fastest growing part shows most."""
FIT, KERNEL = "seconds", "seconds of the kernel alone"


def run(trial: Trial) -> Findings:
    """Return time and accuracy at each n, and the exponents fitted to the times."""
    sizes, rows = SIZES[trial.scale.name], list[tuple[str, str, int, str, float]]()
    for name in DATA:
        made = trial.experiment(name)
        _timed(made, FIXED, sizes[FIXED][0], trial.seed)  # a first fit also pays for imports and caches
        for method in METHODS:
            for n in sizes[FULL if method == FULL else FIXED]:
                model, seconds, kernel = _timed(made, method, n, trial.seed)
                values = {FIT: seconds, KERNEL: kernel, "accuracy": probe_model(model, made)}
                rows += [(name, method, n, measure, value) for measure, value in values.items()]
    frame = pd.DataFrame(rows, columns=[*KEYS, "value"])
    return Findings(pd.concat([frame, _exponents(frame)], ignore_index=True))


def _timed(made: Experiment, method: str, n: int, seed: int) -> tuple[Krepes, float, float]:
    """Return a model of the first ``n`` rows, its CPU seconds, and those that its kernel rows took alone."""
    m = {FULL: n, FIXED: 200, GROWING: math.ceil(6 * math.sqrt(n))}[method]
    stream = ViewStream(made.stream.source.take(torch.arange(n)), made.stream.augment, seed=seed)
    kernel = EmpiricalNTK(made.encoder)
    start = time.process_time()
    selector = "uniform" if method == FULL else "rpcholesky"
    budget = "64G" if method == FULL else "1G"  # the full kernel takes what it takes
    options: dict[str, Any] = {"landmarks": selector, "seed": seed, "memory_budget": budget, "progress": False}
    model = Krepes(kernel, m=m, h=H, **options).fit(stream)
    fitted = time.process_time()
    for _, views in stream:
        for view in views:
            model.kernel_rows(view)
    return model, fitted - start, time.process_time() - fitted


def _exponents(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the slopes of log time over log n, for each data set and method, under ``n = 0``."""
    timed = frame[frame["measure"].isin([FIT, KERNEL])].sort_values("n")
    rows = [
        (name, method, 0, f"{which} {measure}", float(np.polyfit(np.log(part["n"]), np.log(part["value"]), 1)[0]))
        for (name, method, measure), of in timed.groupby(["data", "method", "measure"], sort=False)
        for which, part in ((ALL, of), (LAST, of.tail(2)))
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "value"])


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether exponents and accuracies are as they should."""
    value = table.set_index(list(KEYS))["mean"].sort_index()
    verdicts = []
    for name in DATA:
        fixed, growing, full = (value[name, method, 0, f"{ALL} {FIT}"] for method in (FIXED, GROWING, FULL))
        kernel = value[name, FULL, 0, f"{ALL} {KERNEL}"]
        verdicts.append((f"{name}: exponent {fixed:.2f} <= 1.1 with fixed m", bool(fixed <= 1.1)))
        verdicts.append((f"{name}: exponent {growing:.2f} <= 1.6 with m growing as sqrt(n)", bool(growing <= 1.6)))
        claim = f"{name}: the full kernel grows as n^{kernel:.2f} (about 2), the full fit as n^{full:.2f}"
        verdicts.append((claim, bool(1.7 <= kernel <= 2.3)))
        largest = max(n for method, n in table[["method", "n"]].itertuples(index=False) if method == FULL)
        for method in (FIXED, GROWING):
            gap = 100 * (value[name, method, largest, "accuracy"] - value[name, FULL, largest, "accuracy"])
            claim = (
                f"{name}: accuracy at most 0.5 points below the full kernel's: {gap:+.2f} at n = {largest}, {method}"
            )
            verdicts.append((claim, bool(gap >= -0.5)))
    return verdicts


def _grows(table: pd.DataFrame, *, measure: str) -> tuple[bool, str]:
    """Return whether time grows about as n² with the full kernel and at most as n^1.6 with m as sqrt(n)."""
    value = table.set_index(list(KEYS))["mean"].sort_index()
    said, holds = [], True
    for name in DATA:
        full, growing = (value[name, method, 0, measure] for method in (FULL, GROWING))
        holds &= bool(1.7 <= full <= 2.3 and growing <= 1.6)
        said.append(f"{name} n^{full:.2f} against n^{growing:.2f}")
    return holds, ", ".join(said)


def _as_accurate(table: pd.DataFrame, *, method: str) -> tuple[bool, str]:
    """Return whether accuracy is at most half a point below the full kernel's, at the largest n that it has."""
    value = table.set_index(list(KEYS))["mean"].sort_index()
    largest = max(n for way, n in table[["method", "n"]].itertuples(index=False) if way == FULL)
    gaps = {
        name: 100 * (value[name, method, largest, "accuracy"] - value[name, FULL, largest, "accuracy"]) for name in DATA
    }
    said = ", ".join(f"{name} {gap:+.2f} points" for name, gap in gaps.items())
    return all(gap >= -0.5 for gap in gaps.values()), f"{said} at n = {largest}"


CLAIMS = (
    Claim(
        "the time of the full kernel grows as n², that of landmarks as n sqrt(n)",
        tuple(
            Reading(
                f"{words}, {sizes}",
                partial(_grows, measure=f"{which} {measure}"),
                needs=("measure", f"{which} {measure}"),
            )
            for words, measure in (("the whole fit", FIT), ("the kernel alone", KERNEL))
            for sizes, which in (("all sizes", ALL), ("the largest two", LAST))
        ),
        "The paper's figure is of computation time. Of few rows a kernel costs less than n², for the encoder's passes, "
        "which grow as n, are most of it; the algebra of a full fit grows as n³.",
    ),
    Claim(
        "landmarks preserve the accuracy of the full kernel",
        tuple(Reading(method, partial(_as_accurate, method=method)) for method in (FIXED, GROWING)),
        "Half a point counts as preserved; a probe on test rows of this size is not surer than that.",
    ),
)


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw time over n with the paper's two slopes as guides, and how far accuracy is from the full kernel's."""
    figure = new_figure(4.6)
    times, gaps = figure.subplots(2, len(DATA), sharex=True, height_ratios=(2, 1))
    for seconds, gap, name in zip(times, gaps, DATA, strict=True):
        of: Any = table[table["data"] == name].set_index(["measure", "method"]).sort_index()
        for method, colour in METHODS.items():
            rows = of.loc[(FIT, method)].sort_values("n")
            style: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 4, "capsize": 2}
            seconds.errorbar(rows["n"], rows["mean"], rows["spread"], label=method, **style)
            found = of.loc[("accuracy", method)].sort_values("n")
            gap.plot(found["n"], 100 * found["mean"], color=colour, marker="o", markersize=4)
        for words, power, method in (("n²", 2.0, FULL), ("n sqrt(n)", 1.5, GROWING)):
            rows = of.loc[(FIT, method)].sort_values("n")
            n = rows["n"].to_numpy()
            guide = rows["mean"].iloc[-1] * (n / n[-1]) ** power
            seconds.plot(n, guide, color=METHODS[method], linewidth=0.8, linestyle="dotted", label=f"slope of {words}")
        seconds.set_xscale("log")
        seconds.set_yscale("log")
        seconds.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        seconds.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        seconds.yaxis.set_minor_formatter(NullFormatter())
        seconds.set_title(f"{name}: CPU seconds of a fit", loc="left")
        ticks = sorted({n for n in table["n"] if n})
        gap.set_xticks(ticks, [f"{n:,}" for n in ticks], minor=False)
        gap.set_xticks([], minor=True)
        middle = 100 * float(of.loc["accuracy"]["mean"].mean())
        gap.set_ylim(middle - 2.5, middle + 2.5)  # half a point shows as what it is
        gap.set_title("accuracy of a probe, %", loc="left")
        gap.set_xlabel("n")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


SCALABILITY = Target(
    name="scalability",
    what="Full kernel against Nystrom on Adult and Bank: accuracy and time (figure on scalability)",
    data=DATA,
    keys=KEYS,
    across="method",
    run=run,
    note="Barlow Twins, h = 32; CPU seconds on one machine, side by side in one run. The full kernel takes every row "
    "as a landmark (two views each): its rows grow as n², its algebra (principal components, the step) as n³. "
    "Exponents are slopes of log time over log n, of all sizes and between the largest two, under n = 0; of few rows "
    "the parts that grow slowly hide the others.",
    draw=draw,
    judge=judge,
    claims=CLAIMS,
)
