"""Label-free selection as a figure: the paper's curves over lambda first, then every grid with all picks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from krepes.audit.selection import CRITERIA
from krepes.figures.style import BLUE, GREEN, GREY, INK, OLIVE, ORANGE, RED, SKY, new_figure, styled
from krepes.reproduce import grids
from krepes.reproduce.grids import CARELESS, COST, FELL, PROBE, STRONG
from krepes.reproduce.spectral_claims import ONE, PRESET, curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {
    "entropy": (BLUE, "o"),
    "entropy_kernel": (GREEN, "s"),
    "rankme": (ORANGE, "^"),
    "encoder_rankme": (SKY, "D"),
    "retrieval": (OLIVE, "P"),
}


@styled
def draw_lambdas(table: pd.DataFrame) -> Figure:
    """Draw entropy and probe over lambda, as the paper's figure does: by the preset and by ours, both kinds of grid."""
    per_lambda = STRONG if STRONG in set(table["grid"]) else "lam"
    ways = {per_lambda: "one encoder per λ", ONE: "one encoder for all λ"}
    figure = new_figure(4.6)
    axes = figure.subplots(2, 2, sharex=True)
    x, labels = np.arange(len(grids.GRIDS["lam"])), [_short(f"{lam:g}") for lam in grids.GRIDS["lam"]]
    for line, (setting, more) in zip(axes, (("paper's preset", PRESET), ("ours", "")), strict=True):
        for ax, (grid, words) in zip(line, ways.items(), strict=True):
            _curve(ax, x, curves(table, grid + more, PROBE), GREY, ".", "probe accuracy")
            ax.set_ylabel("probe accuracy", color=GREY)
            beside = ax.twinx()
            beside.spines["right"].set_visible(True)
            for measure in ("entropy", "entropy_kernel"):
                _curve(beside, x, curves(table, grid + more, measure), *MARKS[measure], CRITERIA[measure])
            beside.set_ylabel("entropy")
            ax.set_title(f"{words}, {setting}", loc="left", fontsize=8.5)
            ax.set_xticks(x, labels)
    for ax in axes[-1]:
        ax.set_xlabel("λ of Barlow Twins, MNIST")
    shown = [axes[0, 0], figure.axes[len(axes.flat)]]
    handles, names = ([one for ax in shown for one in ax.get_legend_handles_labels()[side]] for side in (0, 1))
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def _curve(ax: Axes, x: Any, values: Any, colour: str, marker: str, label: str) -> None:
    spread = values.std(0, ddof=1) if len(values) > 1 else None
    ax.errorbar(x, values.mean(0), spread, color=colour, marker=marker, markersize=4, capsize=2, label=label)


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the probe over every grid, and on a rail below it what each criterion picks; collapses are crossed out."""
    data, kinds = list(dict.fromkeys(table["data"])), [name for name in grids.GRIDS if name in set(table["grid"])]
    figure = new_figure(2.1 * len(data) + 0.7)
    axes = figure.subplots(len(data), len(kinds), squeeze=False)
    for i, name in enumerate(data):
        for j, grid in enumerate(kinds):
            _panel(axes[i, j], table[(table["data"] == name) & (table["grid"] == grid)])
            axes[i, j].set_title(f"{name}: {grid}", loc="left", fontsize=8)
        axes[i, 0].set_ylabel(PROBE)
    found: dict[str, Any] = {}
    for ax in axes.flat:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=2)
    return figure


def _panel(ax: Axes, rows: pd.DataFrame) -> None:
    table: Any = rows.pivot(index="at", columns="measure", values="mean")
    places = [at for at in dict.fromkeys(rows["at"]) if at not in {COST, CARELESS, FELL}]
    table = table.loc[places]
    x, accuracy, alive = np.arange(len(places)), table[PROBE].to_numpy(), (table["collapsed"] == 0).to_numpy()
    ax.plot(x, accuracy, color=GREY, marker=".", label="probe accuracy, labels only judge")
    low, high = (float(pick(np.nan_to_num(accuracy, nan=np.nanmin(accuracy)))) for pick in (np.min, np.max))
    ax.plot(x[~alive], np.nan_to_num(accuracy, nan=low)[~alive], "x", color=RED, markersize=8, label="collapsed")
    step, taken = 0.11 * ((high - low) or 0.01), dict.fromkeys(range(len(places)), 0)
    rail = low - 1.5 * step
    ax.axhline(rail, color=GREY, linewidth=0.5, linestyle="dotted")
    for measure, (colour, marker) in MARKS.items():
        values = np.where(alive, table[measure].to_numpy(), np.nan)
        if np.isnan(values).all():
            continue
        best = int(np.nanargmax(values))
        taken[best] += 1
        style: dict[str, Any] = {"markeredgecolor": INK, "markersize": 5.5, "linestyle": "", "clip_on": False}
        where = rail - step * taken[best]
        ax.plot(best, where, marker, color=colour, label=f"pick of {CRITERIA[measure]}", **style)
    ax.set_xticks(x, [_short(at) for at in places])
    ax.tick_params(labelsize=7)
    ax.set_ylim(rail - step * (max(taken.values()) + 1), high + step)
    ax.set_yticks([
        tick for tick in ax.get_yticks() if rail < tick <= high + step
    ])  # below the rail nothing is measured
    ax.margins(x=0.15)


def _short(at: str) -> str:
    """Return a value as it fits under a narrow panel: a power of ten by its exponent."""
    value = float(at)
    return f"$10^{{{round(np.log10(value))}}}$" if 0 < value < 0.1 else at
