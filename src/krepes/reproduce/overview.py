"""The intervention at a glance: every study in two lines, and what each rung costs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from krepes.proof.result import CEILING, TRAINING
from krepes.proof.scores import RUNGS
from krepes.proof.subject import MARGIN, PAIR
from krepes.reproduce.ladder import SECONDS
from krepes.reproduce.tables import figure

SLOPE, POSSIBLE = ", slope", ", ceiling of the same seeds"
"""What lines add to the name of an outcome that hold the calibration, and the ceiling of seeds with a replay."""


def studies(table: pd.DataFrame) -> pd.DataFrame:
    """Return each study and outcome with its ceiling, its rungs and the best of its baselines.

    Args:
        table: ``data, loss, outcome, score, mean, spread``, and ``low, high`` where there is one seed.

    Returns:
        One row a study and outcome: cells in words; the baseline is the one of the largest size, with its sign.
    """
    cells = table.assign(cell=[figure(row) for row in table.to_dict("records")]).set_index(["data", "loss", "outcome"])
    rungs, lines = [name for name in reversed(RUNGS) if name in set(table["score"])], []
    for data, loss in dict.fromkeys(zip(table["data"], table["loss"], strict=True)):
        for outcome in (MARGIN, PAIR):
            of = cells.loc[[(data, loss, outcome)]].set_index("score")
            slopes = cells.loc[[(data, loss, outcome + SLOPE)]].set_index("score")["mean"]
            rivals = of["mean"].drop(index=[name for name in (*RUNGS, CEILING) if name in of.index])
            best = str(rivals.abs().idxmax())
            said = [str(of["cell"].get(name, "–")) for name in rungs]
            slope = float(slopes.get("warm", float("nan")))
            lines.append((data, loss, outcome, float(of["mean"][CEILING]), *said, f"{of['cell'][best]} {best}", slope))
    return pd.DataFrame(lines, columns=["data", "loss", "outcome", "ceiling", *rungs, "best baseline", "slope of warm"])


def costs(table: pd.DataFrame, rows: Mapping[str, int]) -> pd.DataFrame:
    """Return what one outcome costs by each rung, medians over the studies of as many rows.

    Args:
        table: ``data, loss, outcome, score, mean``.
        rows: Training rows of each data set.

    Returns:
        One row for each number of rows and rung, one training beside them.
    """
    of = table[table["outcome"] == SECONDS]
    of = of.assign(rows=of["data"].map(rows))
    training = of[of["score"] == TRAINING].set_index(["data", "loss"])["mean"]
    lines = []
    for n, part in of.groupby("rows"):
        for rung in (*(name for name in reversed(RUNGS) if name in set(part["score"])), TRAINING):
            taken = part[part["score"] == rung].set_index(["data", "loss"])["mean"]
            own = training.reindex(taken.index)
            each = float(taken.median())
            thousand = float("nan") if rung == TRAINING else each / (float(str(n)) / 1000)
            lines.append((f"{n:,}", rung, len(taken), each, thousand, float((taken / own).median())))
    names = ["rows", "rung", "studies", "seconds for an outcome", "for an outcome and 1,000 rows", "in trainings"]
    return pd.DataFrame(lines, columns=names)
