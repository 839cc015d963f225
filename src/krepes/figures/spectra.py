"""Singular values of embeddings, relative to the largest: how evenly the dimensions are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from krepes.figures.style import BLUE, GREY, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def singular_values(embeddings: Mapping[str, Tensor]) -> Figure:
    """Draw singular values on a logarithmic scale.

    Args:
        embeddings: Two sets, ``(t, h)`` each, by name: before and after.

    Returns:
        The figure.
    """
    figure = new_figure(2.5)
    ax = figure.add_subplot()
    for (name, Z), colour, line in zip(embeddings.items(), (GREY, BLUE), ("dashed", "solid"), strict=False):
        values = torch.linalg.svdvals(Z)
        values = values[values > 1e-12 * values[0]] / values[0]
        ax.plot(range(1, len(values) + 1), values, color=colour, linestyle=line, marker="o", markersize=3, label=name)
    ax.set(yscale="log", xlabel="dimension", ylabel="singular value / largest")
    ax.legend(loc="lower left")
    return figure
