"""What an intervention test found: a table, its costs, and in words what to trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from krepes.proof.halves import Retrained
from krepes.proof.scores import RUNGS, Scored

CEILING, TRAINING = "noise ceiling", "one training"
TRUSTED, SIGN = 0.6, 0.3
"""Parts of the noise ceiling from which rows, or only their sign, are worth trusting."""
FEWEST = 10
"""Halves below which nothing is said."""
UNREPEATABLE = "cannot be measured here: nobody knows how the encoder was trained, so no training can be repeated"
"""What is said of trust in the rows of a run without a recipe."""


@dataclass(frozen=True)
class Proof:
    """What the test found.

    Attributes:
        table: Columns ``outcome, score, kind, value, low, high, slope, seconds``: the LDS of every score with its
            bootstrap interval, and its calibration; the line of the noise ceiling has only a value.
        halves: How many halves were retrained.
        training: Seconds of one training on all rows.
        left_out: Methods without scores, and why.
        scores: By name of the method.
        retrained: What came of the halves.
    """

    table: pd.DataFrame
    halves: int
    training: float
    left_out: Mapping[str, str]
    scores: Mapping[str, Scored] = field(repr=False)
    retrained: Retrained = field(repr=False)

    @property
    def outcomes(self) -> list[str]:
        """Names of the outcomes."""
        return list(self.retrained.outcomes)

    def verdict(self, outcome: str, rung: str | None = None) -> str:
        """Return what to trust about an outcome, in words.

        Args:
            outcome: One of `outcomes`, such as ``"pair similarity"``.
            rung: Whose answers are judged; by default those of the rung that did best.

        Returns:
            One sentence with its figures.
        """
        of = self.table[self.table["outcome"] == outcome].set_index("score")
        rungs, rivals = of[of["kind"] == "rung"], of[of["kind"] == "baseline"]["value"].abs()
        if not len(rungs):
            return f"nothing is known of row-level causes here: no rung has scores ({'; '.join(self.left_out)})."
        best = str(rungs["value"].idxmax()) if rung is None else rung
        value, low = float(rungs["value"][best]), float(rungs["low"][best])
        rival, other = str(rivals.idxmax()), float(rivals.max())
        return in_words(best, value, low, float(of["value"][CEILING]), rival, other, self.halves)

    def costs(self) -> pd.DataFrame:
        """Return what each rung took beside one training.

        Returns:
            Columns ``score, seconds, per outcome, per outcome and 1,000 rows, trainings``: all outcomes together, one
            of them, one of them for each thousand rows, and all together as a multiple of one training.
        """
        n = self.retrained.member.shape[1]
        count = sum(values.shape[2] for values in self.retrained.outcomes.values())
        taken = [(name, self.scores[name].seconds) for name in RUNGS if name in self.scores]
        lines = [
            (name, seconds, seconds / count, 1000 * seconds / (count * n), seconds / self.training)
            for name, seconds in taken
        ]
        lines.append((TRAINING, self.training, float("nan"), float("nan"), 1.0))
        columns = ["score", "seconds", "per outcome", "per outcome and 1,000 rows", "trainings"]
        return pd.DataFrame(lines, columns=columns)


def counted(halves: int) -> str:
    """Return '1 half' or '60 halves'."""
    return f"{halves} {'half' if halves == 1 else 'halves'}"


def in_words(best: str, value: float, low: float, ceiling: float, rival: str, other: float, halves: int) -> str:
    """Return the verdict on a rung's LDS, with the lower bound of its interval and its strongest rival."""
    part = value / ceiling if ceiling > 0 else 0.0
    figures = (
        f"{best} reaches {value:.2f} of a possible {ceiling:.2f} over {counted(halves)}, at least {low:.2f}; the best "
        f"baseline, {rival}, {other:.2f}"
    )
    if halves < FEWEST:
        return f"too few halves to say what to trust here, at least {FEWEST} are needed: {figures}."
    if low <= 0 or part < SIGN:
        return f"do not trust row-level causes here: {figures}."
    if part < TRUSTED or value <= other:
        return f"trust only the sign of row-level causes here: {figures}."
    return f"trust row-level causes here: {figures}."
