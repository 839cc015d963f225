"""Cross-group heat map: where each group's samples are anchored, beside what random landmarks would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from krepes.audit.groups import CrossGroup
from krepes.figures.style import GREY, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond this part of the scale the colour map is too dark for black text.
DARK = 0.6


@styled
def cross_group_heatmap(found: CrossGroup) -> Figure:
    """Draw shares as colours and numbers, lifts below them where they are beyond their null; last row: chance.

    Args:
        found: One matrix of `krepes.audit.cross_group`.

    Returns:
        The figure.
    """
    size = len(found.groups)
    shares = np.vstack([found.shares, found.expected])
    figure = new_figure(1.6 + 0.5 * (size + 1))
    ax = figure.add_subplot()
    most = max(1.0, np.ceil(20 * np.nanmax(shares))) / 20  # the largest share, rounded up: small ones are told apart
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    ax.axhline(size - 0.5, color="white", linewidth=6)
    for g in range(size + 1):
        for h in range(size):
            share = shares[g, h]
            if np.isnan(share):
                text = "–"
            else:
                lift = f"\n×{found.lift[g, h]:.1f}" if g < size and found.beyond[g, h] else ""
                text = f"{share:.2f}{lift}"
            ax.text(h, g, text, ha="center", va="center", fontsize=8, color="white" if share > DARK * most else "black")
    totals = found.counts.sum(1)
    rows = [f"{shorten(name, 16)} ({n:,})" for name, n in zip(found.groups, totals, strict=True)]
    ax.set_yticks(range(size + 1), [*rows, "random landmark"])
    rotation: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if size > 5 else {}
    ax.set_xticks(range(size), [shorten(name, 16) for name in found.groups], **rotation)
    ax.set(xlabel="group of the top landmark", ylabel="group of the test sample (samples)")
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    figure.colorbar(image, ax=ax, label="share of the row", fraction=0.04)
    ax.set_title(
        "×: lift over random landmarks, where it is beyond shuffled ones (corrected p ≤ 0.05)",
        fontsize=8.5,
        color=GREY,
        loc="left",
    )
    return figure
