"""Curves: spectra over hyper-parameters, label consistency over K, class coverage over the number of landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.coverage import Coverage
from krepes.audit.selection import CRITERIA, Selection
from krepes.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARKERS,
    OLIVE,
    ORANGE,
    PURPLE,
    RED,
    SERIES,
    SKY,
    literal,
    new_figure,
    shorten,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"entropy": BLUE, "entropy_kernel": GREEN, "rankme": ORANGE, "encoder_rankme": SKY, "retrieval": OLIVE}
METRICS = {"precision": "Precision@K", "majority": "Majority@K", "hit_rate": "Hit Rate@K"}


@styled
def spectral_curves(
    selection: Selection, *, name: str = "hyper-parameter", accuracy: Mapping[Any, float] | None = None
) -> Figure:
    """Draw each criterion over the grid, its winner marked by a ring and collapsed encoders by a cross.

    Args:
        selection: What `krepes.audit.select_by_spectrum` returned.
        name: Of the hyper-parameter.
        accuracy: Accuracy of a probe for each value, to compare with in hindsight.

    Returns:
        The figure.
    """
    curve = selection.curve
    lines = [(name, CRITERIA[name], colour) for name, colour in COLOURS.items() if name in curve]
    if accuracy is not None:
        curve = curve.assign(probe=[accuracy[value] for value in curve["value"]])
    if "probe" in curve:
        lines.append(("probe", "probe accuracy (judges only)", PURPLE))
    lines = [line for line in lines if curve[line[0]].notna().any()]
    dead = curve["collapsed"] != "" if "collapsed" in curve else curve["value"].isin([])
    figure = new_figure(0.7 + 1.15 * len(lines))
    axes = figure.subplots(len(lines), 1, sharex=True, squeeze=False)[:, 0]
    numeric = pd.api.types.is_numeric_dtype(curve["value"])
    x = curve["value"] if numeric else pd.Series(range(len(curve)))
    for ax, (column, label, colour), marker in zip(axes, lines, MARKERS, strict=False):
        ax.plot(x, curve[column], color=colour, marker=marker, markersize=5)
        if dead.any():
            ax.plot(x[dead], curve[column][dead], "x", markersize=9, color=RED)
        alive = curve[column].where(~dead)
        if alive.notna().any():
            best = int(alive.argmax())
            ax.plot(x.iloc[best], alive.iloc[best], "o", markersize=13, fillstyle="none", color=INK)
            label = f"{label}: best at {curve['value'].iloc[best]:g}" if numeric else label
        ax.set_title(label, loc="left", fontsize=9)
        ax.margins(y=0.25)
    if numeric and x.min() > 0 and x.max() / x.min() >= 20:
        axes[-1].set_xscale("log")
        axes[-1].set_xticks([], minor=True)
    axes[-1].set_xticks(x, [shorten(value, 12) for value in curve["value"]])
    axes[-1].set_xlabel(literal(name))
    return figure


@styled
def consistency_curves(table: pd.DataFrame) -> Figure:
    """Draw Precision, Majority and Hit Rate over K, one line per method with its 95 % band.

    Args:
        table: What `krepes.audit.label_consistency` returned, or `krepes.audit.consistency_readings`: then there is a
            row of panels for each reading of "class".

    Returns:
        The figure.
    """
    parts = [("", table)] if "labels" not in table else list(table.groupby("labels", sort=False))
    figure = new_figure(0.9 + 2.2 * len(parts))
    panels = figure.subplots(len(parts), len(METRICS), sharex=True, sharey=True, squeeze=False)
    for row, (reading, part) in zip(panels, parts, strict=True):
        for ax, (metric, title) in zip(row, METRICS.items(), strict=True):
            _consistency(ax, part[part["metric"] == metric])
            ax.set_title(title, loc="left")
        row[0].set_ylabel(f"share, {reading!s}" if reading else "share of test samples")
    for ax in panels[-1]:
        _k_axis(ax, sorted(table["k"].unique()))
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _consistency(ax: Axes, part: pd.DataFrame) -> None:
    for number, (method, rows) in enumerate(part.groupby("method", sort=False)):
        colour, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        ax.fill_between(rows["k"], rows["low"], rows["high"], color=colour, alpha=0.15, linewidth=0)
        ax.plot(rows["k"], rows["estimate"], color=colour, marker=marker, markersize=4, label=literal(method))


@styled
def coverage_curve(coverage: Coverage) -> Figure:
    """Draw the number of classes among the strongest landmarks, beside landmarks in random order."""
    curve = coverage.curve
    figure = new_figure(2.6)
    ax = figure.add_subplot()
    ax.plot(curve["k"], curve["random"], color=GREY, linestyle="dashed", label="random order (mean)")
    ax.step(curve["k"], curve["covered"], where="post", color=BLUE, linewidth=2, label="strongest first")
    if coverage.kappa is not None:
        ax.axvline(coverage.kappa, color=INK, linewidth=0.8)
        middle = (coverage.kappa, curve["covered"].max() / 2)
        ax.annotate(f"κ = {coverage.kappa}", middle, xytext=(-4, 0), textcoords="offset points", ha="right")
    ax.set(xscale="log", xlabel="landmarks", ylabel="classes covered", ylim=(0, None))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_title(literal(coverage.verdict), fontsize=8.5, color=GREY, loc="left")
    ax.legend(loc="lower right")
    return figure


def _k_axis(ax: Axes, depths: list[int]) -> None:
    ax.set_xscale("log")
    ax.set_xticks(depths, [str(k) for k in depths])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("K")
