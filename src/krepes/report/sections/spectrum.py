"""Spectrum: how many dimensions of the embedding does the model use, before and after the objective?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from krepes.audit import rankme, spectral_entropy
from krepes.figures.style import BLUE, GREY, new_figure, styled
from krepes.report.content import Cell, Headline, Section, Table
from krepes.report.evidence import Evidence
from krepes.report.pictures import drawn
from krepes.report.wording import NONE, heads, number
from krepes.views.source import evenly_spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEY, TITLE = "spectrum", "Spectrum: how many dimensions are used"
SAMPLES = 2000


def spectrum(evidence: Evidence) -> Section:
    """Return the section on spectral entropy and RankMe."""
    model = evidence.model
    if model.h < 2:
        return Section(
            KEY, TITLE, "The embedding has a single dimension, so there is no spectrum: fit with h of 2 or more."
        )
    X = evidence.test(evenly_spaced(evidence.t, SAMPLES))
    K = model.kernel_rows(X)
    start, end = K @ model.A0_, K @ model.A_ + model.gamma_
    before, after = rankme(start), rankme(end)
    most = min(K.shape[0], model.h)
    change = "more" if after > before else "fewer" if after < before else "as many"
    finding = (
        f"The embeddings of the test samples use {number(after)} of {most} possible dimensions by RankMe, {change} "
        f"{'than' if change != 'as many' else 'as'} the {number(before)} of kernel principal components."
    )
    alt = f"Singular values of the embeddings, largest first, before and after the step; RankMe {number(after)}."
    picture = drawn(_curves({"kernel principal components": start, "after the step": end}), alt)
    return Section(
        KEY,
        TITLE,
        finding,
        "More dimensions are not better in themselves: the number helps to compare models of the same size on the same "
        "data, and to notice collapse.",
        (_table(evidence, X, before, after), picture),
        Headline(f"{number(after)} of {most}", f"dimensions used; {number(before)} before the objective"),
    )


def _table(evidence: Evidence, X: object, before: float, after: float) -> Table:
    model = evidence.model
    rows = []
    for name, A, rank in (
        ("kernel principal components (start, baseline)", model.A0_, before),
        ("after the step", model.A_, after),
    ):
        entropies = (_entropy(A.T @ A), _entropy(A.T @ model.K_mm_ @ A))
        rows.append((Cell(name), *(Cell(number(x), x) for x in (*entropies, rank))))
    if evidence.encoder is not None:
        E = evidence.encoder.encode(X)
        rows.append((Cell("encoder (baseline)"), NONE, NONE, Cell(number(rankme(E)), rankme(E))))
    caption = "Normalised spectral entropy of the coefficients (1: all dimensions alike) and RankMe of the embeddings"
    return Table(caption, heads("model", "H(AᵀA)", "H(AᵀKA)", "RankMe"), tuple(rows))


def _entropy(G: Tensor) -> float:
    return spectral_entropy((G + G.T) / 2)


@styled
def _curves(embeddings: dict[str, Tensor]) -> Figure:
    """Draw singular values, relative to the largest, on a logarithmic scale."""
    figure = new_figure(2.5)
    ax = figure.add_subplot()
    for (name, Z), colour, line in zip(embeddings.items(), (GREY, BLUE), ("dashed", "solid"), strict=False):
        values = torch.linalg.svdvals(Z)
        values = values[values > 1e-12 * values[0]] / values[0]
        ax.plot(range(1, len(values) + 1), values, color=colour, linestyle=line, marker="o", markersize=3, label=name)
    ax.set(yscale="log", xlabel="dimension", ylabel="singular value / largest")
    ax.legend(loc="lower left")
    return figure
