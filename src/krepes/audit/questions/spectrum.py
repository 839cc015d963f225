"""Spectrum: how many dimensions of the embedding does the model use, before and after the objective?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.spectrum import rankme, spectral_entropy
from krepes.audit.study import Study
from krepes.audit.wording import number
from krepes.views.source import RowsOf, evenly_spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 2000
END, ENCODER = "after the step", "encoder (baseline)"
STARTS = {
    "pca": "kernel principal components (start, baseline)",
    "kaiming": "random coefficients (start, baseline)",
    "encoder": "the encoder itself (start, baseline)",
}
NONE = (float("nan"), float("nan"))


def measure(study: Study) -> Exhibit:
    """Return spectral entropies and RankMe before and after the step, and RankMe of the encoder."""
    model = study.model
    X = RowsOf(study.X_test, evenly_spaced(study.t, SAMPLES))
    K, solution = model.model_rows(X), model.solution_
    embeddings = {STARTS[model.init]: K @ solution.theta0[:-1], END: K @ solution.theta[:-1] + model.gamma_}
    rows = []
    for (name, Z), A in zip(embeddings.items(), (model.A0_, model.A_), strict=True):
        spread = model.h_ > 1 and bool(A.any())
        entropies = (_entropy(A.T @ A), _entropy(A.T @ model.K_mm_ @ A)) if spread else NONE
        rows.append((name, *entropies, rankme(Z), min(Z.shape)))
    if study.encoder is not None and model.init != "encoder":
        E = study.encoder.encode(X)
        rows.append((ENCODER, *NONE, rankme(E), min(E.shape)))
    table = pd.DataFrame(rows, columns=["model", "entropy", "entropy_kernel", "rankme", "possible"])
    return Exhibit(table, {"Singular values of the embeddings": partial(_draw, embeddings)})


def sentence(table: pd.DataFrame) -> str:
    """Return how many dimensions are used after the step, and before it."""
    by: Any = table.set_index("model")
    start = str(table["model"].iloc[0])
    before, after = by.loc[start, "rankme"], by.loc[END, "rankme"]
    change = "more than" if after > before else "fewer than" if after < before else "as many as"
    return (
        f"The embeddings of the test samples use {number(after)} of {int(by.loc[END, 'possible'])} possible "
        f"dimensions by RankMe, {change} the {number(before)} of {start.split(' (')[0]}."
    )


def numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return the criteria after the step."""
    after: Any = table.set_index("model").loc[END]
    names = {"RankMe": "rankme", "H(AᵀA)": "entropy", "H(AᵀKA)": "entropy_kernel"}
    return {name: float(after[key]) for name, key in names.items()}


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return the dimensions used after the step."""
    by: Any = table.set_index("model")
    used = f"{number(by.loc[END, 'rankme'])} of {int(by.loc[END, 'possible'])}"
    return used, f"dimensions used; {number(table['rankme'].iloc[0])} before the objective"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if the embeddings fell to a single dimension out of several."""
    after: Any = table.set_index("model").loc[END]
    return "bad" if after["possible"] > 2 and after["rankme"] < 1.5 else "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the three criteria, one row per model."""
    rows = tuple(
        (row["model"], *(Estimate(float(row[name])) for name in ("entropy", "entropy_kernel", "rankme")))
        for _, row in table.iterrows()
    )
    caption = "Normalised spectral entropy of the coefficients (1: all dimensions alike) and RankMe of the embeddings"
    return (View(caption, ("model", "H(AᵀA)", "H(AᵀKA)", "RankMe"), rows),)


def _entropy(G: Tensor) -> float:
    return spectral_entropy((G + G.T) / 2)


def _draw(embeddings: dict[str, Tensor]) -> Figure:
    from krepes.figures.spectra import singular_values

    return singular_values({name.split(" (")[0]: Z for name, Z in embeddings.items()})


def plain(table: pd.DataFrame) -> str:
    """Return how many dimensions are used."""
    after: Any = table.set_index("model").loc[END]
    return f"The embeddings use {number(after['rankme'])} of {int(after['possible'])} possible dimensions."


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether more than one dimension is used."""
    after: Any = table.set_index("model").loc[END]
    return (Finding("more than one dimension is used", Estimate(float(after["rankme"])), verdict(table) != "bad"),)


SPECTRUM = Audit(
    name="spectrum",
    title="Spectrum: how many dimensions are used",
    asks="how many dimensions are used",
    needs=(),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    findings=findings,
    headline=headline,
    numbers=numbers,
    caveat="More dimensions are not better in themselves: the number helps to compare models of the same size on the "
    "same data, and to notice collapse.",
    explains_step=False,
)
