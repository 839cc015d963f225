"""Faithfulness: does a linear probe on the surrogate decide as one on the encoder does?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Unit, Verdict, View
from krepes.audit.faithfulness import SAMPLES, faithfulness
from krepes.audit.probes import PROBE_ROWS
from krepes.audit.study import Study
from krepes.audit.wording import percent, signed, text
from krepes.views.source import evenly_spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "surrogate accuracy": "accuracy of a probe on the surrogate",
    "encoder accuracy": "accuracy of a probe on the encoder (baseline)",
    "accuracy gap": "difference, surrogate minus encoder",
    "same decision": "both decide alike",
    "tau flattened": "Kendall's τ of probabilities, samples and classes at once",
    "tau over classes": "Kendall's τ of class probabilities, mean over samples",
}
OF_CLASS = "Kendall's τ over samples"
MOST_CLASSES = 10
"""Classes that have a row each; of more, the lowest and the highest are shown."""
UNITS: dict[str, Unit] = {"accuracy gap": "gap", "tau flattened": "gap", "tau over classes": "gap"}


def measure(study: Study) -> Exhibit:
    """Return accuracies, agreement and rank correlations of two probes."""
    assert study.label_of is not None and study.data is not None
    train, test = study.label_of
    rows = evenly_spaced(study.n, PROBE_ROWS)
    labels = [train[i] for i in rows.tolist()]
    table = faithfulness(study.model, study.train(rows), labels, study.X_test, test)
    return Exhibit(table, {"Linear probes on surrogate and encoder": partial(_draw, table)})


def _of(table: pd.DataFrame, name: str) -> pd.Series[float]:
    return table[table["measure"] == name].iloc[0]


def sentence(table: pd.DataFrame) -> str:
    """Return how often the probes agree, and how far the surrogate falls behind."""
    same, gap = _of(table, "same decision"), _of(table, "accuracy gap")
    sure = gap["high"] < 0 or gap["low"] > 0
    side = "more" if gap["estimate"] > 0 else "less"
    accurate = (
        f"is {percent(abs(gap['estimate']))} {side} accurate than"
        if sure
        else "is not surely more or less accurate than"
    )
    return (
        f"Linear probes on the surrogate and on the encoder decide alike for {percent(same['estimate'])} of the test "
        f"samples ({percent(same['low'])} to {percent(same['high'])}); the surrogate's {accurate} the encoder's "
        f"({percent(_of(table, 'surrogate accuracy')['estimate'])} and "
        f"{percent(_of(table, 'encoder accuracy')['estimate'])})."
    )


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return how often the probes agree."""
    return percent(_of(table, "same decision")["estimate"]), "of test samples: probes on surrogate and encoder agree"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if the surrogate is surely less accurate, else good."""
    return "bad" if _of(table, "accuracy gap")["high"] < 0 else "good"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the measures of all classes together, then the rank correlation of each class."""
    rows = [
        (
            NAMES[row["measure"]],
            Estimate(row["estimate"], row["low"], row["high"], UNITS.get(row["measure"], "share")),
            *(Estimate(row[beside], unit=UNITS.get(row["measure"], "share")) for beside in ("apart", "ceiling")),
            int(row["n"]),
        )
        for _, row in table[table["measure"].isin(list(NAMES))].iterrows()
    ]
    rows += _of_classes(table[table["measure"] == SAMPLES])
    caption = (
        "Surrogate against encoder, 95 % intervals; beside it probes that share no label, each with half of them: "
        "surrogate and encoder, and the encoder with itself, which bounds it"
    )
    header = ("measure", "estimate", "each half of the labels", "encoder with itself", "samples")
    return (View(caption, header, tuple(rows)),)


def _of_classes(part: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return a row for each class, or one with the range over all if there are many."""
    if len(part) <= MOST_CLASSES:
        return [
            (
                f"{OF_CLASS}, class {text(row['class'], 20)}",
                Estimate(row["estimate"], row["low"], row["high"], "gap"),
                *(Estimate(row[beside], unit="gap") for beside in ("apart", "ceiling")),
                int(row["n"]),
            )
            for _, row in part.iterrows()
        ]
    known = part.dropna(subset="estimate")
    of = f"{len(known)} of {len(part)}" if len(known) < len(part) else f"{len(part)}"
    ends = tuple(_range(known, name) for name in ("estimate", "apart", "ceiling"))
    return [(f"{OF_CLASS}, range over {of} classes", *ends, int(part["n"].iloc[0]))]


def _range(part: pd.DataFrame, name: str) -> str:
    """Return the lowest and the highest of a column, each with its class."""
    known = part.dropna(subset=name).sort_values(name, kind="stable")
    ends = (
        [f"{signed(row[name])} ({text(row['class'], 16)})" for _, row in known.iloc[[0, -1]].iterrows()]
        if len(known)
        else []
    )
    return " to ".join(ends) or "–"


def _draw(table: pd.DataFrame) -> Figure:
    from krepes.figures import faithfulness_bars

    return faithfulness_bars(table)


def plain(table: pd.DataFrame) -> str:
    """Return how often the probes agree."""
    same = _of(table, "same decision")["estimate"]
    less = ", and is surely less accurate" if verdict(table) == "bad" else ""
    return f"The surrogate decides like the encoder for {percent(same)} of the test samples{less}."


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return whether the surrogate is as accurate as the encoder, and how often both decide alike."""
    row = _of(table, "same decision")
    estimate = Estimate(float(row["estimate"]), float(row["low"]), float(row["high"]), "share")
    return (Finding("the surrogate decides like the encoder", estimate, verdict(table) == "good"),)


FAITHFULNESS = Audit(
    name="faithfulness",
    title="Faithfulness: does the surrogate decide like the encoder",
    asks="whether the surrogate decides like the encoder",
    needs=("classes", "encoder", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    findings=findings,
    headline=headline,
    caveat="Agreement of linear probes shows that the surrogate keeps what those labels need; it does not show that "
    "every single explanation is right.",
    explains_step=False,
)
