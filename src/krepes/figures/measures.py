"""Bars with error bars: alignment gaps, faithfulness of the surrogate, confidence lost by deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from krepes.audit.alignment import Alignment
from krepes.audit.shuffles import LEVEL
from krepes.figures.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, SKY, literal, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def alignment_bars(alignment: Alignment, *, variant: str = "normalised") -> Figure:
    """Draw the Alignment Gap of every column, largest first; undefined columns are listed with their reason.

    Blue bars are beyond what shuffled landmarks give; the grey band on a bar holds 90 % of the shuffles.

    Args:
        alignment: What `krepes.audit.alignment_gap` returned.
        variant: ``"normalised"`` or ``"raw"``.

    Returns:
        The figure.
    """
    table = alignment.ranked(variant)
    known, unknown = table[table["estimate"].notna()], table[table["estimate"].isna()]
    figure = new_figure(1.25 + 0.28 * len(known) + 0.2 * len(unknown))
    ax = figure.add_subplot()
    beyond = (known["p_corrected"] <= LEVEL) & (known["estimate"] > known["null"])
    together = known.assign(low=known["low_corrected"], high=known["high_corrected"])
    _bars(ax, known["column"].tolist(), together, [BLUE if passed else PALE for passed in beyond])
    low, high = (known[key].to_numpy() for key in ("null_low", "null_high"))
    ax.hlines(range(len(known)), low, high, color=GREY, linewidth=5, alpha=0.45)
    ax.set_xlabel(
        f"{variant} Feature Alignment Gap over {int(table['n'].iloc[0]):,} test samples\n"
        "95 % intervals corrected for the number of columns\n"
        f"grey: 90 % of shuffled landmarks; blue: beyond them, corrected p ≤ {LEVEL}"
    )
    reasons = [f"{shorten(row.column, 30)}: undefined, {literal(row.note)}" for row in unknown.itertuples()]
    if reasons:
        figure.supxlabel("\n".join(reasons), fontsize=8, color=GREY)
    return figure


@styled
def faithfulness_bars(table: pd.DataFrame) -> Figure:
    """Draw accuracies and rank correlations of `krepes.audit.faithfulness`."""
    accuracy = table[table["measure"].isin(["surrogate accuracy", "encoder accuracy", "accuracy gap", "same decision"])]
    tau = table[table["measure"].str.startswith("tau") & table["estimate"].notna()]
    whole = {"tau flattened": "τ, all at once", "tau over classes": "τ, classes of a sample (mean)"}
    names = [whole.get(measure, f"τ, samples: {of}") for measure, of in zip(tau["measure"], tau["class"], strict=True)]
    figure = new_figure(1.4 + 0.26 * (len(accuracy) + len(tau)))
    above, below = figure.subplots(2, 1, height_ratios=[len(accuracy) + 1, len(tau) + 1])
    _bars(above, accuracy["measure"].tolist(), accuracy, [BLUE, GREY, ORANGE, SKY])
    _bars(below, names, tau, [GREEN if name in whole.values() else SKY for name in names])
    above.set_title("linear probes", loc="left")
    below.set_title("Kendall's τ of class probabilities, surrogate against encoder", loc="left")
    return figure


@styled
def deletion_bars(table: pd.DataFrame) -> Figure:
    """Draw the confidence lost by deletion, of `krepes.audit.confidence_drop`, one bar per ranking."""
    table = table.sort_values("estimate", ascending=False, kind="stable")
    figure = new_figure(0.9 + 0.3 * len(table))
    ax = figure.add_subplot()
    methods = table["method"].tolist()
    _bars(ax, methods, table, [BLUE if method == "influence" else PALE for method in methods])
    ax.set_xlabel(f"confidence lost by the k-NN (before: {table['before'].iloc[0]:.3f})")
    return figure


def _bars(ax: Axes, names: list[str], table: pd.DataFrame, colours: list[str]) -> None:
    """Draw horizontal bars from top to bottom, with error bars and the value written beyond them."""
    places = range(len(table))
    value, low, high = (table[key].to_numpy() for key in ("estimate", "low", "high"))
    lines = {"ecolor": INK, "elinewidth": 1, "capsize": 2}
    ax.barh(places, value, xerr=[value - low, high - value], color=colours, height=0.7, error_kw=lines)
    ax.set_yticks(places, [shorten(name, 30) for name in names])
    ax.invert_yaxis()
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.margins(x=0.14)
    sign = "+" if low.min() < 0 else ""
    for place in places:
        right = value[place] >= 0
        ax.annotate(
            f"{value[place]:{sign}.3f}".replace("-", "−"),
            (high[place] if right else low[place], place),
            xytext=(4 if right else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if right else "right",
            fontsize=8,
        )
