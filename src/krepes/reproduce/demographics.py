"""Cross-demographic attribution (paper, figure on FairFace): whose landmark is each face anchored to?"""

from __future__ import annotations

import pandas as pd

from krepes.audit import cross_group, rankings
from krepes.figures import cross_group_heatmap
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.trial import Trial

KEYS = ("method", "test", "landmark")
METHODS = ("influence", "latent cosine", "kernel", "random")


def run(trial: Trial) -> Findings:
    """Return the share of each group's faces whose top landmark is of each group."""
    made = trial.experiment("fairface")
    model = trial.fit(made)
    found = rankings(model, made.test, k=1, seed=trial.seed)
    matrices = cross_group(found, made.landmark_labels(model), made.labels[1])
    rows = [
        (method, str(test), str(landmark), float(matrices[method].shares[i, j]))
        for method in METHODS
        for i, test in enumerate(matrices[method].groups)
        for j, landmark in enumerate(matrices[method].groups)
    ]
    pictures = {method.replace(" ", "-"): cross_group_heatmap(matrices[method]) for method in METHODS[:2]}
    return Findings(pd.DataFrame(rows, columns=[*KEYS, "value"]), pictures)


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the conflations that the paper names show beyond those of a random landmark."""
    shares = table.set_index(list(KEYS))["mean"].sort_index()
    verdicts = []
    for test, landmark in (
        ("Southeast Asian", "East Asian"),
        ("Indian", "Middle Eastern"),
        ("Middle Eastern", "White"),
    ):
        ours, chance, cosine = (shares[method, test, landmark] for method in ("influence", "random", "latent cosine"))
        claim = f"{test} anchored to {landmark}: {ours:.2f}, latent cosine {cosine:.2f}, random {chance:.2f}"
        verdicts.append((claim, bool(ours > chance)))
    own = table[(table["method"] == "influence") & (table["test"] == table["landmark"])]
    verdicts.append((f"in-group anchoring: mean diagonal {own['mean'].mean():.2f} > 1/7", own["mean"].mean() > 1 / 7))
    return verdicts


def _paper() -> pd.DataFrame:
    rows = [
        ("Black", "Black", 0.77),
        ("Southeast Asian", "East Asian", 0.33),
        ("Indian", "Middle Eastern", 0.23),
        ("Indian", "Latino_Hispanic", 0.22),
        ("Indian", "Indian", 0.30),
        ("Middle Eastern", "White", 0.31),
    ]
    return pd.DataFrame([("influence", *row) for row in rows], columns=[*KEYS, "paper"])


GROUPS = Target(
    name="groups",
    what="Cross-demographic attribution on FairFace (figure on representation bias)",
    data=("fairface",),
    keys=KEYS,
    across="landmark",
    run=run,
    paper=_paper(),
    note="faces of 32x32 in grey and a reduced ResNet-18 trained here, where the paper has colour at full size and a "
    "pretrained ResNet-34: skin tone is mostly gone, so figures are not comparable, only the method is. Rows are test "
    "faces, columns their first landmark; the shares of a random landmark stand beside.",
    judge=judge,
)
