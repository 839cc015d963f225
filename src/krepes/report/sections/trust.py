"""How far to trust it: does the surrogate decide like the encoder, did the solve work, do the landmarks suffice?"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from krepes.audit import faithfulness, label_consistency
from krepes.figures import consistency_curves
from krepes.linalg import top_eigenpairs
from krepes.report.content import Block, Cell, Facts, Headline, Paragraph, Section, Table, Warnings
from krepes.report.evidence import Evidence
from krepes.report.pictures import drawn
from krepes.report.wording import cell, estimate, heads, listing, method_cell, number, percent
from krepes.views.source import evenly_spaced

# More rows make a probe hardly better, and none of the numbers below.
PROBE_ROWS, COVERAGE_ROWS = 5000, 500
LOWEST_GAIN, LOWEST_COVERAGE, FEWEST_SAMPLES = 0.25, 0.5, 30
SHARES = {"surrogate accuracy", "encoder accuracy", "same decision"}
KEY, TITLE = "trust", "How far to trust it"
CAVEAT = (
    "A solved step and well spanned samples are needed for a good explanation and do not make one: whether the "
    "surrogate decides like the encoder shows only with labels."
)
PROBE_CAVEAT = (
    "Agreement of linear probes shows that the surrogate keeps what those labels need; it does not show that every "
    "single explanation is right."
)
NO_LABELS = "To compare the surrogate with the encoder, pass labels=(training, test) to build_report."


def trust(evidence: Evidence) -> Section:
    """Return the section on how far the explanations can be trusted."""
    probes = _faithfulness(evidence)
    coverage = kernel_coverage(evidence)
    spanned = f"the landmarks span {percent(float(coverage.median()))} of the kernel of a typical test sample"
    finding = f"{_solved(evidence)}, and {spanned}."
    headline = Headline(percent(float(coverage.median())), "of a typical sample's kernel lies in the landmarks' span")
    if probes is not None:
        same = _of(probes, "same decision")
        finding = (
            f"Linear probes on the surrogate and on the encoder decide alike for {percent(same['estimate'])} of the "
            f"test samples ({percent(same['low'])} to {percent(same['high'])}); {_solved(evidence)}, and {spanned}."
        )
        headline = Headline(percent(same["estimate"]), "of test samples: probes on surrogate and encoder agree")
    blocks: list[Block] = [Warnings(tuple(found))] if (found := _warnings(evidence, coverage, probes)) else []
    blocks.append(_story(evidence, coverage))
    blocks += [Paragraph(NO_LABELS)] if probes is None else [_probe_table(probes)]
    return Section(
        KEY,
        TITLE,
        finding[0].upper() + finding[1:],
        CAVEAT if probes is None else PROBE_CAVEAT,
        (*blocks, *_consistency(evidence)),
        headline,
    )


def kernel_coverage(evidence: Evidence) -> Tensor:
    """Return ``k_xᵀ K_mm⁺ k_x / k(x, x)``, ``(s,)``: the part of each sample's feature in the landmarks' span."""
    model = evidence.model
    rows = model.kernel_.rows(evidence.test(evenly_spaced(evidence.t, COVERAGE_ROWS)), model.prepared_, diagonal=True)
    assert rows.diagonal is not None
    eigenvalues, U = top_eigenpairs(model.K_mm_)
    captured = (rows.K.to("cpu", torch.float64) @ (U / eigenvalues.sqrt())).square().sum(1)
    return (captured / rows.diagonal.to("cpu", torch.float64).clamp_min(1e-300)).clamp(0, 1)


def _faithfulness(evidence: Evidence) -> pd.DataFrame | None:
    """Return the comparison of probes, trained on at most 5,000 rows; nothing without labels, encoder or data."""
    if evidence.label_of is None or evidence.encoder is None or evidence.data is None:
        return None
    train, test = evidence.label_of
    rows = evenly_spaced(evidence.n, PROBE_ROWS)
    chosen = [train[i] for i in rows.tolist()]
    if len(set(chosen)) < 2:
        return None
    X_test = evidence.test(torch.arange(evidence.t))
    return faithfulness(evidence.model, evidence.data.plain(rows), chosen, X_test, test)


def _of(table: pd.DataFrame, measure: str) -> pd.Series[float]:
    return table[table["measure"] == measure].iloc[0]


def _solved(evidence: Evidence) -> str:
    solution = evidence.model.solution_
    if not solution.accepted:
        return "no step lowered the objective, so nothing below explains a change"
    fall = 1 - solution.loss_after / solution.loss_before if solution.loss_before > 0 else float("nan")
    how = "to its tolerance" if solution.converged else "not to its tolerance"
    return f"the step was solved {how} and lowers the objective by {percent(fall)}"


def _story(evidence: Evidence, coverage: Tensor) -> Facts:
    solution = evidence.model.solution_
    low, middle, high = (float(q) for q in coverage.quantile(torch.tensor([0.05, 0.5, 0.95], dtype=coverage.dtype)))
    return Facts((
        ("Objective", f"{number(solution.loss_before, 5)} before the step, {number(solution.loss_after, 5)} after"),
        ("Damping", f"{number(solution.damping)} of the mean curvature ({number(solution.damping_absolute)} absolute)"),
        ("Gain ratio", f"{number(solution.gain)}: actual over predicted change of the objective; 1 is perfect"),
        ("Residual", f"{number(solution.residual)}, recomputed; tolerance {number(solution.tol)}"),
        ("Iterations", f"{solution.iterations:,}, the search for damping included"),
        ("Kernel spanned", f"{percent(middle)} in the middle, {percent(low)} to {percent(high)} for nine in ten"),
    ))


def _warnings(evidence: Evidence, coverage: Tensor, probes: pd.DataFrame | None) -> list[str]:
    solution, model, found = evidence.model.solution_, evidence.model, []
    if not solution.accepted:
        found.append("The step was rejected because the objective did not fall. Raise the damping or check the data.")
    elif not solution.converged:
        found.append(f"The solve stopped at a residual of {number(solution.residual)}; {number(solution.tol)} was due.")
    if solution.accepted and solution.gain < LOWEST_GAIN:
        found.append(f"The gain ratio is {number(solution.gain)}: the quadratic model misjudged the step.")
    if float(coverage.median()) < LOWEST_COVERAGE:
        found.append(f"The landmarks span {percent(float(coverage.median()))} of a typical sample. Use more of them.")
    if not model.centre:
        found.append("The kernel is not centred: every influence is positive and nothing can repel.")
    if evidence.t < FEWEST_SAMPLES:
        found.append(f"Only {evidence.t} test samples were given: shares and intervals below say little.")
    if probes is not None and _of(probes, "accuracy gap")["high"] < 0:
        gap = -_of(probes, "accuracy gap")["estimate"]
        found.append(f"A probe on the surrogate is {percent(gap)} less accurate than on the encoder.")
    return found


def _probe_table(probes: pd.DataFrame) -> Table:
    names = {
        "surrogate accuracy": "accuracy of a probe on the surrogate",
        "encoder accuracy": "accuracy of a probe on the encoder (baseline)",
        "accuracy gap": "difference, surrogate minus encoder",
        "same decision": "both decide alike",
        "tau over classes": "Kendall's τ of class probabilities, mean over samples",
    }
    rows = tuple(
        (Cell(names[row["measure"]]), estimate(row, as_percent=row["measure"] in SHARES), cell(int(row["n"])))
        for _, row in probes[probes["measure"].isin(list(names))].iterrows()
    )
    return Table("Surrogate against encoder, 95 % intervals", heads("measure", "estimate", "samples"), rows)


def _consistency(evidence: Evidence) -> list[Block]:
    """Return whether top landmarks share the class of their sample, beside the baselines."""
    if evidence.label_of is None or not evidence.moved or not evidence.rankings:
        return []
    train, test = evidence.label_of
    table = label_consistency(evidence.rankings, evidence.of_landmarks(train), test)
    precision = table[table["metric"] == "precision"]
    depths = [k for k in (1, 5, 10) if k in set(precision["k"])]
    rows = []
    for method in evidence.rankings:
        of_method = precision[precision["method"] == method].set_index("k")
        rows.append((method_cell(method), *(estimate(of_method.loc[k], as_percent=True) for k in depths)))
    caption = "Share of a sample's first K landmarks that have its class, by what ranks them"
    columns = heads("ranked by", *(f"K = {k}" for k in depths))
    alt = f"Precision, majority and hit rate over K for {listing(list(evidence.rankings))}; numbers in the table above."
    return [Table(caption, columns, tuple(rows)), drawn(consistency_curves(table), alt)]
