"""One figure for each kind of result: what a sample is made of, which samples would change it, columns, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from krepes.figures.style import ATTRACTIVE, BLUE, GREY, INK, PALE, REPULSIVE, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
VERDICTS = {"good": ("good", ATTRACTIVE), "bad": ("look", REPULSIVE), "neutral": ("note", BLUE)}


@styled
def landmark_bars(frame: pd.DataFrame) -> Figure:
    """Draw the landmarks that attract and repel each sample, one panel per sample.

    Args:
        frame: Columns ``sample``, ``landmark`` and ``score``, as `krepes.attribution.Attribution.to_frame` gives them.

    Returns:
        The figure.
    """
    return _panels(frame, "sample", "landmark", "score", "influence score: attracts above zero, repels below")


@styled
def influence_bars(frame: pd.DataFrame) -> Figure:
    """Draw the training samples that raise and lower each outcome, one panel per outcome.

    Args:
        frame: Columns ``outcome``, ``id`` and ``influence``, as `krepes.influence.Influence.top` gives them.

    Returns:
        The figure.
    """
    return _panels(frame, "outcome", "id", "influence", "influence: raises the outcome above zero, lowers it below")


@styled
def kind_bars(frame: pd.DataFrame) -> Figure:
    """Draw how many columns of a table are of each kind; dropped ones are grey.

    Args:
        frame: Columns ``column``, ``kind`` and ``note``, as `krepes.data.Schema.to_frame` gives them.

    Returns:
        The figure.
    """
    counts = frame["kind"].value_counts()
    dropped = set(frame[frame["note"].str.startswith("dropped")]["kind"]) | {"ignored"}
    figure = new_figure(0.8 + 0.3 * len(counts))
    ax = figure.add_subplot()
    colours = [PALE if kind in dropped else BLUE for kind in counts.index]
    ax.barh(range(len(counts)), counts, color=colours)
    ax.set_yticks(range(len(counts)), [str(kind) for kind in counts.index])
    ax.invert_yaxis()
    ax.set_xlabel("columns; grey: the encoder does not see them")
    return figure


@styled
def verdict_board(rows: Sequence[tuple[str, str, str]]) -> Figure:
    """Draw the verdicts of a report, one line each: a word, never by colour alone.

    Args:
        rows: Title, verdict and headline of each section.

    Returns:
        The figure.
    """
    figure = new_figure(0.4 + 0.32 * max(1, len(rows)))
    ax = figure.add_subplot()
    for place, (title, verdict, headline) in enumerate(rows):
        word, colour = VERDICTS[verdict]
        ax.text(0.0, -place, word, color=colour, fontweight="bold", va="center")
        ax.text(0.1, -place, shorten(title, 48), color=INK, va="center")
        ax.text(0.62, -place, shorten(headline, 44), color=GREY, va="center")
    ax.set(xlim=(0, 1), ylim=(-len(rows) + 0.4, 0.6))
    ax.axis("off")
    return figure


def _panels(frame: pd.DataFrame, panel: str, name: str, value: str, label: str) -> Figure:
    parts = list(frame.groupby(panel, sort=False))[:MOST_PANELS]
    longest = max(len(part) for _, part in parts)
    figure = new_figure(0.6 + len(parts) * (0.45 + 0.24 * longest))
    axes = figure.subplots(len(parts), 1, squeeze=False)[:, 0]
    for ax, (title, part) in zip(axes, parts, strict=True):
        _bars(ax, [shorten(one, 24) for one in part[name]], part[value].tolist())
        ax.set_title(shorten(title, 60), loc="left")
    axes[-1].set_xlabel(label)
    return figure


def _bars(ax: Axes, names: list[str], values: list[float]) -> None:
    places = range(len(names))
    ax.barh(places, values, color=[ATTRACTIVE if value > 0 else REPULSIVE for value in values], height=0.7)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.axvline(0, color=INK, linewidth=0.8)
