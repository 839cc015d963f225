"""How far to trust it: was the step solved, did the objective fall as predicted, do the landmarks suffice?"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.study import Study
from krepes.audit.wording import number, percent
from krepes.encoders.frozen import in_pieces
from krepes.linalg import top_eigenpairs
from krepes.views.source import RowsOf, evenly_spaced

SPANNED_ROWS = 500
LOWEST_GAIN, LOWEST_SPAN, FEWEST_SAMPLES = 0.25, 0.5, 30
MEANING = {
    "loss before": "the objective before the step",
    "loss after": "the objective after the step",
    "damping": "of the mean curvature",
    "absolute damping": "the λ of the linear system",
    "gain": "actual over predicted change of the objective; 1 is perfect",
    "residual": "of the linear solve, recomputed",
    "tolerance": "that it should have reached",
    "iterations": "the search for damping included",
    "accepted": "steps that lowered the objective and were taken",
    "spanned": "part of a typical sample's kernel in the landmarks' span",
    "spanned, low": "of the samples spanned worst, one in twenty is below",
    "spanned, high": "of the samples spanned best, one in twenty is above",
    "centred": "1 if the kernel is centred: without it nothing can repel",
    "test samples": "that shares and intervals are made of",
}


def measure(study: Study) -> Exhibit:
    """Return the figures of the solve, and how much of the test samples the landmarks span."""
    solution = study.model.solution_
    span = spanned(study)
    low, middle, high = (float(q) for q in span.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=span.dtype)))
    values = {
        "loss before": solution.loss_before,
        "loss after": solution.loss_after,
        "damping": solution.damping,
        "absolute damping": solution.damping_absolute,
        "gain": solution.gain,
        "residual": solution.residual,
        "tolerance": solution.tol,
        "iterations": solution.iterations,
        "accepted": len(solution.accepted),
        "spanned": middle,
        "spanned, low": low,
        "spanned, high": high,
        "centred": int(study.model.transforms_[0]),
        "test samples": study.t,
    }
    return Exhibit(pd.DataFrame([(name, float(value), MEANING[name]) for name, value in values.items()], columns=HEADS))


HEADS = ["measure", "value", "meaning"]


def spanned(study: Study) -> Tensor:
    """Return ``k_xᵀ K_mm⁺ k_x / k(x, x)``, ``(s,)``: the part of each sample's feature in the landmarks' span."""
    model, found = study.model, []
    eigenvalues, U = top_eigenpairs(model.K_mm_)
    whitening = U / eigenvalues.sqrt()
    for X in in_pieces(RowsOf(study.X_test, evenly_spaced(study.t, SPANNED_ROWS))):
        rows = model.kernel_.rows(X, model.prepared_, diagonal=True)
        assert rows.diagonal is not None
        captured = (rows.K.to("cpu", torch.float64) @ whitening).square().sum(1)
        found.append((captured / rows.diagonal.to("cpu", torch.float64).clamp_min(1e-300)).clamp(0, 1))
    return torch.cat(found)


def _values(table: pd.DataFrame) -> dict[str, float]:
    return dict(zip(table["measure"], table["value"], strict=True))


def sentence(table: pd.DataFrame) -> str:
    """Return whether the step was solved, by how much the objective fell, and what the landmarks span."""
    of = _values(table)
    span = f"the landmarks span {percent(of['spanned'])} of the kernel of a typical test sample"
    if not of["accepted"]:
        return f"No step lowered the objective, so nothing below explains a change; {span}."
    how = "to its tolerance" if of["residual"] <= of["tolerance"] else "not to its tolerance"
    fall = (
        f"lowers the objective by {percent(1 - of['loss after'] / of['loss before'])}"
        if of["loss before"] > of["loss after"] > 0
        else f"moves the objective from {number(of['loss before'])} to {number(of['loss after'])}"
    )
    return f"The step was solved {how} and {fall}, and {span}."


def warnings(table: pd.DataFrame) -> tuple[str, ...]:
    """Return what a reader must know before believing anything else."""
    of, found = _values(table), []
    if not of["accepted"]:
        found.append("The step was rejected because the objective did not fall. Raise the damping or check the data.")
    elif of["residual"] > of["tolerance"]:
        found.append(
            f"The solve stopped at a residual of {number(of['residual'])}; it should have reached "
            f"{number(of['tolerance'])}."
        )
    if of["accepted"] and of["gain"] < LOWEST_GAIN:
        found.append(f"The gain ratio is {number(of['gain'])}: the quadratic model misjudged the step.")
    if of["spanned"] < LOWEST_SPAN:
        found.append(f"The landmarks span {percent(of['spanned'])} of a typical sample. Use more of them.")
    if not of["centred"]:
        found.append(
            "The kernel is not centred: every influence is positive and nothing can repel. Centre it to read landmarks."
        )
    if of["test samples"] < FEWEST_SAMPLES:
        found.append(f"Only {int(of['test samples'])} test samples were given: shares and intervals below say little.")
    return tuple(found)


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return how much of a typical sample the landmarks span."""
    return percent(_values(table)["spanned"]), "of a typical sample's kernel lies in the landmarks' span"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if there is anything to warn of."""
    return "bad" if warnings(table) else "good"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return every figure with its meaning."""
    rows = tuple((row["measure"], number(row["value"], 4), row["meaning"]) for _, row in table.iterrows())
    return (View("The solve in figures", ("measure", "value", "meaning"), rows),)


def plain(table: pd.DataFrame) -> str:
    """Return the first warning, or that there is none and what the landmarks span."""
    first = warnings(table)[:1]
    of = _values(table)["spanned"]
    return first[0] if first else f"The step was solved, and the landmarks span {percent(of)} of a typical test sample."


def strength(table: pd.DataFrame) -> float:
    """Return the most there is if anything is to be warned of: the rest rests on it."""
    return 1.0 if warnings(table) else 0.0


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether the landmarks span a typical sample."""
    of = _values(table)
    estimate = Estimate(of["spanned"], of["spanned, low"], of["spanned, high"], "share")
    return (Finding("the landmarks span a typical sample", estimate, of["spanned"] >= LOWEST_SPAN),)


TRUST = Audit(
    name="trust",
    title="Trust: was the step solved, and do the landmarks suffice",
    asks="how far to trust the rest",
    needs=(),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    strength=strength,
    findings=findings,
    headline=headline,
    warnings=warnings,
    caveat="A solved step and well spanned samples are needed for a good explanation and do not make one: whether the "
    "surrogate decides like the encoder shows only with labels.",
    explains_step=False,
)
