"""The ladder as a picture: what each rung costs, and how much of what can be known it predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from krepes.figures.style import BLUE, GREY, INK, PALE, new_figure, styled
from krepes.proof.result import CEILING, TRAINING
from krepes.proof.scores import RUNGS
from krepes.proof.subject import MARGIN, PAIR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SECONDS = "seconds for each outcome"
"""Name of the lines that hold costs."""
QUARTERS, CLOSE = (0.25, 0.5, 0.75), 1.4


@styled
def ladder(table: pd.DataFrame) -> Figure:
    """Draw part of the ceiling against cost, each rung at its medians over the studies.

    Args:
        table: ``data, loss, outcome, score, mean``; costs under `SECONDS`, one training among them.

    Returns:
        The figure.
    """
    cost = _pivot(table, SECONDS)
    trainings = (cost.drop(index=TRAINING) / cost.loc[TRAINING]).median(axis=1)
    figure = new_figure(3.4)
    for ax, outcome in zip(figure.subplots(1, 2, sharex=True, sharey=True), (MARGIN, PAIR), strict=True):
        _steps(ax, parts_of_ceiling(_pivot(table, outcome)), trainings)
        ax.set_title(outcome, loc="left")
    figure.supxlabel("cost of one outcome, in trainings of the encoder; bars and band: half of the studies", fontsize=9)
    figure.supylabel("part of the noise ceiling", fontsize=9)
    return figure


def parts_of_ceiling(value: pd.DataFrame) -> pd.DataFrame:
    """Return LDS by score and study as parts of the noise ceiling; a study without one, where it is zero, has none."""
    known = value.loc[:, (value.loc[CEILING] > 0).to_numpy()]
    return known.drop(index=CEILING) / known.loc[CEILING]


def _pivot(table: pd.DataFrame, outcome: str) -> pd.DataFrame:
    return table[table["outcome"] == outcome].pivot_table(index="score", columns=["data", "loss"], values="mean")


def _steps(ax: Axes, parts: pd.DataFrame, trainings: pd.Series[float]) -> None:
    """Draw rungs as points with half of the studies as bars, and the best baseline of each study as a band."""
    from matplotlib.ticker import LogLocator, NullLocator

    rungs = [name for name in RUNGS if name in parts.index and name in trainings.index]
    rivals = parts.drop(index=[name for name in RUNGS if name in parts.index]).abs().max()
    low, middle, high = np.quantile(rivals, QUARTERS)
    ax.axhspan(low, high, color=PALE, linewidth=0)
    ax.axhline(middle, color=GREY, linewidth=0.8)
    ax.text(0.99, middle, "best baseline", transform=ax.get_yaxis_transform(), ha="right", va="bottom", fontsize=8)
    for name in rungs:
        of, x = parts.loc[name].dropna(), float(trainings[name])
        below, at, above = np.quantile(of, QUARTERS)
        ax.plot([x, x], [below, above], color=BLUE, linewidth=2)
        ax.plot(x, at, "o", color=BLUE)
        # Of two that lie close together the cheaper one is named on its left.
        left = any(x < float(trainings[other]) < CLOSE * x for other in rungs)
        where: dict[str, Any] = {"xytext": (-6 if left else 6, -3), "ha": "right" if left else "left"}
        ax.annotate(name, (x, at), textcoords="offset points", color=INK, **where)
    ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle="--")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.05)
    ax.margins(x=0.2)
