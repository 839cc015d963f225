"""Label-free selection (paper, figure on MNIST): spectral entropy against a 10 % probe over Barlow Twins' lambda."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from krepes.audit import select_by_spectrum
from krepes.figures.style import BLUE, GREEN, ORANGE, PURPLE, new_figure, styled
from krepes.objectives import BarlowTwins
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.probes import probe_model
from krepes.reproduce.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = (1e-5, 1e-4, 1e-3, 5e-3, 2e-2, 1e-1, 1.0)
KEYS = ("lam", "measure")
ACCURACY = "probe accuracy, 10 % of labels"
SHOWN = {
    "entropy": ("entropy of AᵀA", BLUE),
    "entropy_kernel": ("entropy of AᵀKA", GREEN),
    "rankme": ("RankMe", ORANGE),
    ACCURACY: (ACCURACY, PURPLE),
}


def run(trial: Trial) -> Findings:
    """Return entropy, RankMe and the probe's accuracy for each value of the grid; one pass serves them all."""
    made = trial.experiment("mnist")
    first = trial.fit(made)
    models = {lam: first.refit(objective=BarlowTwins(lam=lam)) for lam in GRID}
    curve = select_by_spectrum(models).curve.set_index("value")
    rows = [(lam, str(name), float(value)) for lam, line in curve.iterrows() for name, value in line.items()]
    tenth = made.stream.n // 10
    rows += [(lam, ACCURACY, probe_model(model, made, tenth)) for lam, model in models.items()]
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether each criterion peaks within one step of the grid from the probe, and what following it costs."""
    curves = table.pivot(index="lam", columns="measure", values="mean").loc[list(GRID)]
    place = {measure: int(np.argmax(curves[measure])) for measure in SHOWN}
    best = GRID[place[ACCURACY]]
    verdicts = []
    for measure, (shown, _) in SHOWN.items():
        if measure == ACCURACY:
            continue
        near = abs(place[measure] - place[ACCURACY]) <= 1
        claim = f"{shown} peaks within one step of the probe: at lam = {GRID[place[measure]]:g}, the probe at {best:g}"
        verdicts.append((claim, near))
        lost = 100 * float(curves[ACCURACY].max() - curves[ACCURACY].iloc[place[measure]])
        verdicts.append((
            f"lam chosen by {shown} costs {lost:.2f} points of accuracy, at most half a point",
            lost <= 0.5,
        ))
    return verdicts


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw each criterion and the probe over the grid, the peak of each ringed."""
    figure = new_figure(5.2)
    for ax, (measure, (name, colour)) in zip(figure.subplots(len(SHOWN), 1, sharex=True), SHOWN.items(), strict=True):
        rows = table[table["measure"] == measure]
        ax.errorbar(rows["lam"], rows["mean"], rows["spread"], color=colour, marker="o", markersize=4, capsize=2)
        place = int(np.argmax(rows["mean"]))
        ax.plot(
            rows["lam"].iloc[place],
            rows["mean"].iloc[place],
            "o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor=colour,
        )
        ax.set_title(name, loc="left", fontsize=9)
        ax.set_xscale("log")
        ax.margins(y=0.25)
    figure.axes[-1].set_xlabel("λ of Barlow Twins (weight of the off-diagonal)")
    return figure


SPECTRAL = Target(
    name="spectral",
    what="Spectral entropy against a 10 % probe over Barlow Twins' lambda (figure on label-free selection)",
    data=("mnist",),
    keys=KEYS,
    across="measure",
    run=run,
    note="one encoder a seed, the objective of the kernel model varies; the paper shows curves of the entropy of AᵀA "
    "without figures. Damping of lowest loss for each value.",
    draw=draw,
    judge=judge,
)
