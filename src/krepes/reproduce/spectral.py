"""Label-free selection (paper, figure on MNIST): which criterion picks the encoder that a probe would pick?"""

from __future__ import annotations

import pandas as pd

from krepes.audit import select_by_spectrum
from krepes.audit.selection import CRITERIA, RECOMMENDED
from krepes.kernels.memory import features_kept
from krepes.reproduce import grids
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.grids import PROBE, STRONG
from krepes.reproduce.probes import ModelProbe
from krepes.reproduce.spectral_claims import CHOSEN_ON, CLAIMS, INPUT, ONE, PRESET, judge
from krepes.reproduce.spectral_figure import draw, draw_lambdas
from krepes.reproduce.trial import FEATURES, Trial

KEYS = ("data", "grid", "at", "measure")


@features_kept(FEATURES)
def run(trial: Trial) -> Findings:
    """Return criteria and probe of every value of every grid, and what each criterion's pick costs."""
    rows: list[tuple[str, str, str, str, float]] = []
    for data in grids.DATA:
        for grid in grids.GRIDS:
            rows += _rows(data, grid, grids.curve(trial, data, grid))
        rows.append((data, INPUT, "–", PROBE, grids.input_accuracy(trial, grids.base(data, trial.seed))))
    for preset in (None, "paper"):
        more = PRESET if preset else ""
        rows += _rows(CHOSEN_ON, STRONG + more, grids.curve(trial, CHOSEN_ON, STRONG, preset))
        rows += _rows(CHOSEN_ON, ONE + more, _one_encoder(trial, preset))
    rows += _rows(CHOSEN_ON, "lam" + PRESET, grids.curve(trial, CHOSEN_ON, "lam", "paper"))
    pixels = grids.input_accuracy(trial, grids.strong(trial.seed))
    rows.append((CHOSEN_ON, f"{INPUT} of {STRONG}", "–", PROBE, pixels))
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]))


def _rows(data: str, grid: str, found: pd.DataFrame) -> list[tuple[str, str, str, str, float]]:
    shown = found.assign(collapsed=(found["collapsed"] != "").astype(float)).set_index("value")
    rows = [(data, grid, str(at), str(name), float(x)) for at, line in shown.iterrows() for name, x in line.items()]
    return rows + [(data, grid, row, name, x) for row, name, x in grids.costs(found)]


def _one_encoder(trial: Trial, preset: str | None) -> pd.DataFrame:
    """Return the curve of one encoder for all values, whose kernel model's objective varies."""
    made = grids.experiment(trial, grids.strong(trial.seed))
    first, accuracy = grids.kernel_model(trial, made, preset), ModelProbe(made)
    lams = grids.values_of(STRONG)
    models = {f"{lam:g}": first.refit(objective=grids.barlow_twins(preset, lam=lam)) for lam in lams}
    found = select_by_spectrum(models).curve[["value", "entropy", "entropy_kernel", "rankme"]]
    return found.assign(**{PROBE: [accuracy(model) for model in models.values()]}, collapsed="")


SPECTRAL = Target(
    name="spectral",
    what="Label-free selection: what the pick of each criterion costs in points of a probe (figure on MNIST)",
    data=grids.DATA,
    keys=KEYS,
    across="measure",
    run=run,
    note="one small encoder per value (an MLP, on CIFAR-10 three convolutions; 3,000 training rows, 2,000 there; 8 "
    f"epochs unless they vary), the same at every scale. They are no better than their input, so they test a criterion "
    f"more than the paper's claims; `{STRONG}`, where it was run, has the stored encoder's recipe for MNIST with 8,000 "
    f"training rows, and `{INPUT}` is a probe on the input with the same labels. Kernel models have {grids.M} "
    f"landmarks and {grids.H} dimensions on {grids.ROWS:,} rows, Barlow Twins, with the training's lambda where it "
    "varies. The probe "
    "sees the labels of all training rows (the paper: 10 % of MNIST); it is on the encoder, but on the kernel model, "
    "with 5,000 labels, where one encoder serves all values. `spread weight` is that of VICReg's variance: 0 is made "
    "to collapse, by ten times the learning rate, on CIFAR-10 thirty times (tried on two other seeds, after ten times "
    "had not collapsed in an earlier table). `random value` is the mean cost of the values that the alarm leaves: "
    f"where it is small, the grid tests little. The recommended criterion, {CRITERIA[RECOMMENDED]}, was chosen on the "
    "first seed of MNIST's small encoders.",
    draw=draw_lambdas,
    drawings={"grids": draw},
    judge=judge,
    claims=CLAIMS,
)
