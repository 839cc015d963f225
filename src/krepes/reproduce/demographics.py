"""Cross-demographic attribution (paper, figure on FairFace): whose landmark is each face anchored to?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from krepes.audit import CrossGroup, cross_group, rankings
from krepes.audit.shuffles import LEVEL
from krepes.figures import cross_group_heatmap
from krepes.kernels.memory import features_kept
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.claims import Claim, Reading, p_over_seeds
from krepes.reproduce.trial import FEATURES, READ, Experiment, Trial, side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = ("setting", "method", "measure", "test", "landmark")
METHODS = ("influence", "latent cosine", "kernel", "random")
SHARE, P = "share", "p"
ALL, OWN = "all", "their own"
NAMED = (
    ("Southeast Asian", "East Asian"),
    ("Indian", "Middle Eastern"),
    ("Indian", "Latino_Hispanic"),
    ("Middle Eastern", "White"),
)
"""Pairs that the paper names, the group of the face first."""


@features_kept(FEATURES)
def run(trial: Trial) -> Findings:
    """Return the share of each group's faces whose top landmark is of each group, and its p by shuffled landmarks."""
    made = trial.experiment("fairface")
    pictures: dict[str, Figure] = {}
    rows = side_by_side(partial(_shares, trial, made, pictures))
    return Findings(rows[[*KEYS, "value"]], pictures)


def _shares(trial: Trial, made: Experiment, pictures: dict[str, Figure], preset: str | None) -> pd.DataFrame:
    """Return the rows of one setting; heat maps of ours are added to ``pictures``."""
    model = trial.fit(made, preset=preset)
    found = rankings(model, made.test, k=1, seed=trial.seed)
    matrices = cross_group(found, made.landmark_labels(model), made.labels[1], seed=trial.seed)
    if preset is None:
        pictures |= {method.replace(" ", "-"): _heatmap(matrices[method]) for method in METHODS[:2]}
    rows = [(method, *row) for method in METHODS for row in _rows(matrices[method], method)]
    return pd.DataFrame(rows, columns=[*KEYS[1:], "value"])


def _heatmap(matrix: CrossGroup) -> Figure:
    """Draw a matrix, its groups as a reader writes them."""
    return cross_group_heatmap(replace(matrix, groups=[str(name).replace("_", ", ") for name in matrix.groups]))


def _rows(matrix: CrossGroup, method: str) -> list[tuple[str, str, str, float]]:
    """Return the shares, and for influence their p: of each pair, and of all faces with their own group."""
    pairs = [(i, j) for i in range(len(matrix.groups)) for j in range(len(matrix.groups))]
    names = [str(name) for name in matrix.groups]
    rows = [(SHARE, names[i], names[j], float(matrix.shares[i, j])) for i, j in pairs]
    rows.append((SHARE, ALL, OWN, float(matrix.own.observed[0])))
    if method == "influence":
        rows += [(P, names[i], names[j], float(matrix.p[i, j])) for i, j in pairs]
        rows.append((P, ALL, OWN, float(matrix.own.p[0])))
    return rows


def _beyond(setting: str, test: str, landmark: str) -> Reading:
    """Return a reading that holds if the share is above that of random landmarks, and beyond shuffled ones."""

    def judge(table: pd.DataFrame) -> tuple[bool, str]:
        of = table[(table["setting"] == setting) & (table["test"] == test) & (table["landmark"] == landmark)]
        values = of.set_index(["measure", "method"])["mean"]
        ours, cosine, chance = (float(values[SHARE, m]) for m in ("influence", "latent cosine", "random"))
        p = float(p_over_seeds(float(values[P, "influence"]), table))
        said = f"{ours:.2f}, latent cosine {cosine:.2f}, random {chance:.2f}, shuffled landmarks p = {p:.2g}"
        return ours > chance and p <= LEVEL, said

    return Reading(f"{setting}: beyond shuffled landmarks", judge)


def _largest(setting: str, test: str, landmark: str) -> Reading:
    """Return a reading that holds if no other group but the face's own has a larger share, as the figure is read."""

    def judge(table: pd.DataFrame) -> tuple[bool, str]:
        of = table[(table["setting"] == setting) & (table["method"] == "influence") & (table["measure"] == SHARE)]
        row = of[of["test"] == test].set_index("landmark")["mean"].drop(index=test).astype(float)
        column = of[(of["landmark"] == landmark) & ~of["test"].isin([landmark, ALL])]["mean"].astype(float)
        said = f"{row[landmark]:.2f}, the largest is {row.idxmax()} with {row.max():.2f}"
        return row.idxmax() == landmark, f"{said}; faces of any group have {column.min():.2f} to {column.max():.2f}"

    return Reading(f"{setting}: the largest share but for their own", judge)


def _claim(sentence: str, test: str, landmark: str) -> Claim:
    why = (
        "A share above that of random landmarks counts where shuffles of the landmarks' groups rarely reach it; the "
        "largest share of a row is always somebody's, and it is the same group in most rows where its landmarks are "
        "near to everyone."
    )
    kinds = (_largest, _beyond) if test != landmark and test != ALL else (_beyond,)
    return Claim(sentence, tuple(kind(setting, test, landmark) for setting in READ for kind in kinds), why)


def _paper() -> pd.DataFrame:
    rows = [
        ("Black", "Black", 0.77),
        ("Southeast Asian", "East Asian", 0.33),
        ("Indian", "Middle Eastern", 0.23),
        ("Indian", "Latino_Hispanic", 0.22),
        ("Indian", "Indian", 0.30),
        ("Middle Eastern", "White", 0.31),
    ]
    return pd.DataFrame([("paper", "influence", SHARE, *row) for row in rows], columns=[*KEYS, "paper"])


GROUPS = Target(
    name="groups",
    what="Cross-demographic attribution on FairFace (figure on representation bias)",
    data=("fairface",),
    keys=KEYS,
    across="landmark",
    run=run,
    paper=_paper(),
    note="faces of 32x32 in grey and a small convolutional network trained here, where the paper has colour at full "
    "size and a pretrained ResNet-34: skin tone is mostly gone, so figures are not comparable, only the method is. "
    "Rows are test faces, columns their first landmark; the shares of a random landmark stand beside, and for "
    "influence the p of each share against shuffles of the landmarks' groups, twice the mean over seeds. `setting` is "
    "ours or the paper's preset, at the same sizes.",
    claims=(
        *(_claim(f"{test} faces are anchored to {landmark} landmarks", test, landmark) for test, landmark in NAMED),
        _claim("Black faces are anchored to Black landmarks", "Black", "Black"),
        _claim("Faces are anchored to landmarks of their own group", ALL, OWN),
    ),
)
