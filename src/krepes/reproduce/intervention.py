"""Influence by intervention: do scores of training rows predict encoders that were retrained without them?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from torch import Tensor

from krepes.figures.style import BLUE, GREY, INK, PALE, new_figure, spelled, styled
from krepes.proof.halves import Retrained
from krepes.proof.judging import prove
from krepes.proof.lds import spearman
from krepes.proof.result import CEILING, Proof
from krepes.proof.scores import RUNGS
from krepes.proof.subject import MARGIN, PAIR
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.ladder import SECONDS, ladder, parts_of_ceiling
from krepes.reproduce.overview import POSSIBLE, SLOPE, costs, studies
from krepes.reproduce.retraining import RECIPES, TRAIN, open_study
from krepes.reproduce.trial import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGER = {"adult-3000": ("adult", 3_000), "covertype-3000": ("covertype", 3_000)}
"""Studies with ten times as many training rows: how they are named, the data set and its rows."""
DATA = (*sorted(RECIPES), *LARGER)
ROWS = dict.fromkeys(RECIPES, TRAIN) | {name: rows for name, (_, rows) in LARGER.items()}
"""Training rows of each study."""
LOSSES = ("barlow_twins", "vicreg", "simclr", "byol")
KEYS = ("data", "loss", "outcome", "score")
MEMBERS = 4
SHOWN = ("mnist", "barlow_twins")
Line = tuple[str, str, str, str, float, float, float]
WARM, REPLAY, LAZY = 0.6, 0.7, 0.4
"""Parts of the noise ceiling that the rungs are held to."""


def run(trial: Trial) -> Findings:
    """Return the LDS of every rung and baseline in each study, what rungs cost, and the scatter of one study."""
    rows: list[Line] = []
    pictures, kept = {}, False
    for data, loss in ((name, loss) for name in trial.only or DATA for loss in losses_of(name)):
        source, count = LARGER.get(data, (data, TRAIN))
        folder = trial.encoders / "intervention" / f"{data}-{loss}-{trial.seed}"
        kept |= folder.is_dir()
        found = prove(
            open_study(source, trial.data_dir, trial.seed, loss=loss, train_rows=count),
            folder,
            halves=trial.scale.halves,
            retrainings=trial.scale.retrainings,
            members=MEMBERS,
            methods=methods_of(trial),
        )
        rows += [(data, loss, *line) for line in lines(found)]
        if (data, loss) == SHOWN:
            pictures["scatter"] = scatter(found.scores["warm"].scores[MARGIN], found.retrained, data)
    table = pd.DataFrame(rows, columns=[*KEYS, "value", "low", "high"])
    return Findings(table, pictures, kept)


def losses_of(data: str) -> tuple[str, ...]:
    """Return the losses that a data set is studied with: a larger study has the first two alone."""
    return LOSSES[:2] if data in LARGER else LOSSES


def methods_of(trial: Trial) -> list[str]:
    """Return the rungs of one seed: the first alone replays whole trainings, which takes as long as all the rest."""
    left_out = {*trial.without, *(["replay"] if trial.seed else [])}
    return [rung for rung in RUNGS if rung not in left_out]


def lines(found: Proof) -> list[tuple[str, str, float, float, float]]:
    """Return outcome, score, value and interval: of each LDS, of the slopes of rungs, and their seconds."""
    nothing = (float("nan"), float("nan"))
    columns = (found.table[name].tolist() for name in ("outcome", "score", "value", "low", "high"))
    rows = list(zip(*columns, strict=True))
    sloped = found.table[found.table["kind"] == "rung"]
    for outcome, score, value in zip(*(sloped[name].tolist() for name in ("outcome", "score", "slope")), strict=True):
        rows.append((f"{outcome}{SLOPE}", score, value, *nothing))
    if "replay" in found.scores:
        possible = found.table[found.table["score"] == CEILING].set_index("outcome")["value"]
        rows += [(f"{outcome}{POSSIBLE}", "replay", value, *nothing) for outcome, value in possible.items()]
    costs = found.costs()
    taken = costs["per outcome"].fillna(costs["seconds"]).tolist()
    return rows + [(SECONDS, score, value, *nothing) for score, value in zip(costs["score"], taken, strict=True)]


@styled
def scatter(scores: Tensor, found: Retrained, data: str) -> Figure:
    """Draw predicted against retrained margins over halves, for six test samples from the best to the worst predicted.

    Args:
        scores: Of the warm replay, ``(n, t)``.
        found: The retrained outcomes.
        data: Name of the data set.

    Returns:
        The figure.
    """
    predicted, retrained = found.member @ scores, found.outcomes[MARGIN].mean(1)
    predicted = predicted - predicted.mean(0) + retrained.mean(0)
    r = spearman(predicted, retrained)
    order = r.argsort(descending=True)
    chosen = [int(order[round(place * (len(order) - 1) / 5)]) for place in range(6)]
    figure = new_figure(4.4)
    for ax, sample in zip(figure.subplots(2, 3).flat, chosen, strict=True):
        ax.plot(predicted[:, sample], retrained[:, sample], "o", color=BLUE, markersize=3)
        ax.set_title(f"sample {sample}: ρ = {float(r[sample]):+.2f}", loc="left")
    figure.supxlabel("predicted margin: mean over halves plus the half's sum of row derivatives", fontsize=9)
    figure.supylabel(f"margin after retraining, {spelled(data)}", fontsize=9)
    return figure


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the LDS of every score as a part of the ceiling, one panel for each outcome, over all studies."""
    figure = new_figure(5.6)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    table = table[table["outcome"].isin([MARGIN, PAIR])]
    names = [name for name in table["score"].unique() if name != CEILING]
    for ax, outcome in zip(axes, (MARGIN, PAIR), strict=True):
        value = table[table["outcome"] == outcome].pivot_table(index="score", columns=["data", "loss"], values="mean")
        _points(ax, parts_of_ceiling(value).reindex(names))
        ax.set_title(outcome, loc="left")
    figure.supxlabel("LDS as a part of the noise ceiling; one point for each study, bar: their median", fontsize=9)
    return figure


def _points(ax: Axes, parts: pd.DataFrame) -> None:
    places = range(len(parts))
    colours = [BLUE if name in RUNGS else PALE for name in parts.index]
    ax.barh(places, parts.median(axis=1), color=colours)
    for place, (_, values) in zip(places, parts.iterrows(), strict=True):
        ax.plot(values, [place] * len(values), "o", color=INK, markersize=2)
    for line in (0.0, WARM):
        ax.axvline(line, color=GREY, linewidth=0.8, linestyle="--" if line else "-")
    ax.set_yticks(places, parts.index)
    if not ax.yaxis_inverted():
        ax.invert_yaxis()


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return in how many studies, larger ones apart, rungs reach their part of the ceiling and warm leads baselines."""
    verdicts: list[tuple[str, bool]] = []
    table = table[~table["data"].isin(LARGER)]
    for outcome in (MARGIN, PAIR) if len(table) else ():
        value = table[table["outcome"] == outcome].pivot_table(index="score", columns=["data", "loss"], values="mean")
        ceiling, count = value.loc[CEILING].to_numpy(), value.shape[1]
        rivals = value.drop(index=[CEILING, *(name for name in RUNGS if name in value.index)]).abs().max().to_numpy()
        possible = {"replay": _possible(table, outcome, value.columns)}
        known = ceiling > 0  # where retrainings do not agree at all, nothing can be predicted
        warm = value.loc["warm"].to_numpy()
        leads = int(np.sum(known & (warm >= WARM * ceiling) & (warm > rivals)))
        wanted = -(-7 * count // 10)
        verdicts.append((
            f"{outcome}: warm replay reaches {WARM:g} of the ceiling and leads every baseline in {leads} of {count} "
            f"studies (at least {wanted} wanted)",
            leads >= wanted,
        ))
        for rung, part in (("replay", REPLAY), ("lazy", LAZY)):
            if rung not in value.index:
                continue
            limit = possible.get(rung, ceiling)
            reached = int(np.sum((limit > 0) & (value.loc[rung].to_numpy() >= part * limit)))
            verdicts.append((
                f"{outcome}: {rung} reaches {part:g} of the ceiling in {reached} of {count} studies (at least half)",
                2 * reached >= count,
            ))
    return verdicts


def _possible(table: pd.DataFrame, outcome: str, studies: pd.Index) -> np.ndarray:
    """Return the ceilings of the seeds that have a replay, in the order of the studies; where none says so, of all."""
    of = table[table["outcome"] == outcome + POSSIBLE].set_index(["data", "loss"])["mean"].reindex(studies)
    overall = table[(table["outcome"] == outcome) & (table["score"] == CEILING)].set_index(["data", "loss"])["mean"]
    return np.asarray(of.fillna(overall.reindex(studies)), dtype=float)


INTERVENTION = Target(
    name="intervention",
    what="Which score of training rows predicts retraining? (beyond the paper)",
    data=DATA,
    keys=KEYS,
    across="score",
    run=run,
    note="300 training rows; 3,000 where the name says so, which the counts leave out. Ten outcomes of each kind in "
    "each seed, eight on CIFAR-10; replays of whole trainings in the first seed. In brackets: 95 % of a bootstrap over "
    "halves, where there is one seed. Slope: the retrained change over the predicted one; above one, sizes are "
    "underestimated. Seconds are those of a machine with other work. Encoders with one hidden layer of 256 units "
    "and 64 outputs, 60 full-batch steps; on CIFAR-10 three convolutions with batch norm, batches of 75. Every "
    "retraining has weights and views of its own. Rungs and gradient baselines explain one encoder trained on all "
    "rows (replay: the mean over four, none longer than their median, a rule that seed 0 of digits and MNIST "
    "chose). Warm: 60 steps of at most 512 rows without a projector, and but for BYOL four times as many from "
    "rewound weights. Lazy: 20 steps, the first 128 rows as landmarks. A pair has the product of its samples' "
    "similarities. TRAK has exact gradients, and the ridge that is best on every second half. Labels define the "
    "margin and the same-class count, nothing else. Steps, batches, landmarks and the rule for the step size were "
    "chosen on digits and one repetition of MNIST with Barlow Twins, seed 0, and left alone.",
    draw=draw,
    drawings={"ladder": ladder},
    digests={
        "Each study, a rung beside what can be known at all and beside the best baseline": studies,
        "What an outcome costs, medians over studies": partial(costs, rows=ROWS),
    },
    judge=judge,
    studies=True,
    beyond=True,
    optional=("replay",),
)
