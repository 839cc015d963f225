"""Label consistency (paper, table 2): do the top landmarks share the test sample's class, and do neighbours too?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import latent_cosine
from krepes.audit import consistency_readings, label_consistency, predicted_labels, rankings
from krepes.audit.consistency import DEPTHS, READINGS, TRUE
from krepes.audit.rankings import first, landmark_samples
from krepes.encoders import FrozenEncoder
from krepes.figures.style import GREY, MARKERS, SERIES, new_figure, spelled, styled
from krepes.model import Krepes
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.consistency_claims import CLAIMS, DATA, DEFAULT, KEYS, PAPER, WITHIN, paper
from krepes.reproduce.probes import LABELLED
from krepes.reproduce.trial import Experiment, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFITS: dict[str, dict[str, Any]] = {
    "damping 0.01": {"damping": 0.01},
    "h = 32": {"h": 32},
    "spectral contrastive": {"objective": "spectral"},
}
FITS: dict[str, dict[str, Any]] = {
    "uniform landmarks": {"landmarks": "uniform"},
    "kernel neither centred nor normalised": {"centre": False, "cosine": False},
}
UNTRAINED = "untrained encoder"


def run(trial: Trial) -> Findings:
    """Return consistency at every K under every reading of "class", by our settings and the paper's preset.

    At K = 1 one setting is changed at a time as well.
    """
    tables = []
    for name in DATA:
        made = trial.experiment(name)
        model = trial.fit(made, h=trial.scale.wide)
        tables.append(_readings(trial, made, model).assign(data=name, setting=DEFAULT))
        theirs = trial.fit(made, h=trial.scale.wide, preset="paper")
        tables.append(_readings(trial, made, theirs).assign(data=name, setting=PAPER))
        for setting, (other, changed) in _variants(trial, made, model).items():
            tables.append(_first(trial, changed, other).assign(data=name, setting=setting))
    found = pd.concat(tables, ignore_index=True).rename(columns={"estimate": "value"})
    return Findings(found[[*KEYS, "value"]])


def _readings(trial: Trial, made: Experiment, model: Krepes) -> pd.DataFrame:
    """Return every metric of true classes, and of a probe's predictions those that the paper's caption names."""
    top = {**rankings(model, made.test, k=max(DEPTHS), seed=trial.seed), WITHIN: surrogate_neighbours(made, model)}
    test, landmarks = _predicted(made, model)
    truth = made.landmark_labels(model)
    table = consistency_readings(top, (truth, landmarks), (made.labels[1], test), depths=DEPTHS)
    return table[(table["labels"] == TRUE) | (table["metric"] != "hit_rate")]


def surrogate_neighbours(made: Experiment, model: Krepes, k: int = max(DEPTHS)) -> Tensor:
    """Return the landmarks whose embedding by the surrogate is nearest to that of each test sample, ``(t, k)``."""
    Z_test, Z_landmarks = (model.embed(X) for X in (made.test, landmark_samples(model)))
    return first(latent_cosine(Z_test, Z_landmarks), k)


def _predicted(made: Experiment, model: Krepes) -> list[list[Any]]:
    """Return what a probe on the encoder predicts for test samples and landmarks; it saw the label of neither."""
    encoder = FrozenEncoder(made.encoder)
    rows = torch.arange(min(LABELLED, made.stream.n))
    rows = rows[~torch.isin(rows, model.landmarks_)]
    samples = (made.stream.plain(rows), made.test, made.stream.plain(model.landmarks_))
    E_train, E_test, E_landmarks = (encoder.encode(X).float() for X in samples)
    return predicted_labels(E_train, made.labels[0][rows.numpy()], E_test, E_landmarks)


def _first(trial: Trial, made: Experiment, model: Krepes) -> pd.DataFrame:
    """Return the precision of the first landmark, of true classes."""
    top = rankings(model, made.test, k=1, seed=trial.seed)
    table = label_consistency(top, made.landmark_labels(model), made.labels[1], depths=(1,))
    return table[table["metric"] == "precision"].assign(labels=TRUE)


def _variants(trial: Trial, made: Experiment, model: Krepes) -> dict[str, tuple[Krepes, Experiment]]:
    """Return models with one thing changed, each with its experiment: what moves consistency?"""
    refits = {setting: (model.refit(**changes), made) for setting, changes in REFITS.items()}
    fits = {setting: (trial.fit(made, h=trial.scale.wide, **changes), made) for setting, changes in FITS.items()}
    untrained = trial.untrained(made)
    return {**refits, **fits, UNTRAINED: (trial.fit(untrained, h=trial.scale.wide), untrained)}


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether influence is ahead of every baseline at K = 1, and by more than the deviation over seeds."""
    chosen = (table["metric"] == "precision") & (table["k"] == 1) & (table["setting"] == DEFAULT)
    first = table[chosen & (table["labels"] == TRUE)].set_index(["data", "method"]).fillna({"spread": 0.0})
    verdicts = []
    for rival in ("random", "kernel", "latent cosine"):
        ours, theirs = (first.xs(method, level="method") for method in ("influence", rival))
        lead = ours["mean"] - theirs["mean"]
        clear = lead > (ours["spread"] ** 2 + theirs["spread"] ** 2) ** 0.5
        figures = ", ".join(f"{name} {ours['mean'][name]:.3f} against {theirs['mean'][name]:.3f}" for name in DATA)
        verdicts.append((
            f"influence ahead of {rival} at K = 1, true labels, by more than the deviation over seeds: {figures}",
            bool(clear.all()),
        ))
    return verdicts


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw Precision@K: a row of panels per reading, a column per data set, a line per method, dotted the paper's."""
    figure = new_figure(7.2)
    precision = table[(table["metric"] == "precision") & (table["setting"] == DEFAULT)]
    panels = figure.subplots(len(READINGS), len(DATA), sharex=True, sharey="col")
    for row, reading in zip(panels, READINGS, strict=True):
        for ax, name in zip(row, DATA, strict=True):
            part = precision[(precision["data"] == name) & (precision["labels"] == reading)]
            for number, (method, rows) in enumerate(part.groupby("method", sort=False)):
                style: dict[str, Any] = {"color": SERIES[number], "marker": MARKERS[number], "markersize": 3}
                ax.errorbar(range(len(rows)), rows["mean"], rows["spread"], label=method, capsize=2, **style)
                told = rows.reset_index()["paper"].dropna()
                if method != WITHIN:  # the other reading of the paper's one baseline, whose line is drawn already
                    ax.plot(told.index, told, color=SERIES[number], linestyle="dotted", linewidth=1)
            ax.set_title(f"{spelled(name)}, {reading}", loc="left", fontsize=8)
        row[0].set_ylabel("Precision@K")
    for ax in panels[-1]:
        ax.set_xticks(range(len(DEPTHS)), [str(k) for k in DEPTHS])
        ax.set_xlabel("K")
    figure.axes[0].plot([], [], color=GREY, linestyle="dotted", linewidth=1, label="dotted: the paper's figures")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


CONSISTENCY = Target(
    name="consistency",
    what="Label consistency against similarity baselines (table 2)",
    data=DATA,
    keys=KEYS,
    across="method",
    run=run,
    paper=paper(),
    note="encoders trained here by Barlow Twins without labels; default kernel (centred, cosine), h = 128, damping of "
    "lowest loss, nothing tuned on labels. Labels of sample / landmark: true, or predicted by a linear probe on the "
    "encoder that saw neither; predictions raise every ranking, so the paper's figures stand beside all three. "
    "Its baseline is neighbours in the SSL latent space: of the encoder (latent cosine) or of the surrogate. "
    "Rows of another setting than these and the paper's preset change one thing, to see what moves consistency; "
    "where landmarks or encoder change, so do the baselines. Label consistency rewards similarity, so "
    "it cannot be the only judge: see `intervention`.",
    draw=draw,
    judge=judge,
    claims=CLAIMS,
)
