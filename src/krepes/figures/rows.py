"""Row-diff table: a test row beside the rows of its landmarks, darker where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from krepes.audit.features import FeatureSpace, agreement
from krepes.errors import InvalidInputError
from krepes.figures.style import ATTRACTIVE, GREY, ORANGE, PALE, REPULSIVE, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME, ROW = 1.6, 0.25  # width of the names in cells, height of a row in inches


@styled
def row_diffs(
    row: pd.DataFrame,
    landmark_rows: pd.DataFrame,
    scores: Tensor,
    space: FeatureSpace,
    *,
    landmark_ids: Sequence[Any] | None = None,
) -> Figure:
    """Draw one test row and its landmarks as a table, original columns downwards.

    Args:
        row: The test row, a table of one row.
        landmark_rows: The landmarks to show, ``k`` rows, best first.
        scores: Their influence scores, ``(k,)``.
        space: Says how far two values agree: the shade of a cell is their disagreement.
        landmark_ids: Written over the landmarks; by default the index of ``landmark_rows``.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If there is not exactly one test row, or not one score a landmark.
    """
    k = len(landmark_rows)
    if len(row) != 1 or len(scores) != k:
        raise InvalidInputError(
            f"needs one test row and a score a landmark, got {len(row)} rows, {len(scores)} and {k}."
        )
    ids = list(landmark_rows.index) if landmark_ids is None else list(landmark_ids)
    differs = dict(zip(space.defined, (1 - agreement(space.encode(row), space.encode(landmark_rows))).T, strict=True))
    letters = max(6, int(88 / (k + 1 + NAME)))
    figure = new_figure(ROW * (len(space.names) + 2) + 0.35)
    ax = figure.add_subplot()
    ax.set(xlim=(-NAME, k + 1), ylim=(len(space.names), -2))
    ax.axis("off")
    ax.text(0.5, -1.4, "test row", ha="center", va="center", fontweight="bold", fontsize=8.5)
    for column in range(k):
        score = float(scores[column])
        colour = ATTRACTIVE if score >= 0 else REPULSIVE
        ax.text(column + 1.5, -1.4, shorten(ids[column], letters), ha="center", va="center", fontsize=8.5)
        ax.text(column + 1.5, -0.5, f"{score:+#.3g}", ha="center", va="center", color=colour, fontweight="bold")
    for line, name in enumerate(space.names):
        ax.axhline(line, color=PALE, linewidth=0.6)
        ax.text(-NAME, line + 0.5, shorten(name, 22), va="center", fontsize=8.5, color=GREY)
        values = [row[name].iloc[0], *landmark_rows[name]]
        for column, value in enumerate(values):
            shade = float(differs[name][column - 1]) if column and name in differs else 0.0
            ax.fill_between([column, column + 1], line, line + 1, color=ORANGE, alpha=0.75 * shade, linewidth=0)
            ax.text(column + 0.5, line + 0.5, shorten(value, letters), ha="center", va="center", fontsize=8.5)
    ax.set_title("shaded: the landmark differs from the test row", fontsize=8.5, color=GREY, loc="right")
    return figure
