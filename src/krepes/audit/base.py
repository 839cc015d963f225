"""What an audit is: what it needs, a tidy table, and a sentence, a verdict and views that are functions of that table.

Command line, report, JSON export and reference page loop over `krepes.registry.AUDITS` and know nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from krepes.audit.study import Study
from krepes.audit.wording import number, percent, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Unit = Literal["share", "gap", "number"]
Verdict = Literal["good", "bad", "neutral"]
Need = Literal[
    "labels", "classes", "groups", "table", "hidden groups", "predictions", "concepts", "encoder", "training data"
]
NEWS: dict[str, int] = {"good": 0, "neutral": 1, "bad": 2}
NEEDS: dict[str, tuple[Callable[[Study], bool], str, str]] = {
    "labels": (lambda study: study.label_of is not None, "--label COLUMN", "labels=(training, test)"),
    "classes": (
        lambda study: study.label_of is not None and len(set(study.label_of[0])) > 1,
        "--label COLUMN with two values or more",
        "labels=(training, test) of two classes or more",
    ),
    "groups": (lambda study: bool(study.groups), "--group COLUMN", "groups={name: (training, test)}"),
    "table": (lambda study: study.tables is not None, "a table as data", "tables=(training rows, test rows)"),
    "hidden groups": (
        lambda study: any(name in study.hidden for name in study.groups),
        "--sensitive COLUMN to krepes fit",
        "groups={name: ...} and hidden=[name], a column that the encoder does not see",
    ),
    "predictions": (lambda study: study.predictions is not None, "--predictions COLUMN", "predictions=[...]"),
    "concepts": (
        lambda study: bool(study.concepts),
        "--concept COLUMN=VALUE",
        "concepts=[ConceptVector.fit(...), ...]",
    ),
    "encoder": (lambda study: study.encoder is not None, "an encoder instead of --kernel", "an encoder as kernel"),
    "training data": (lambda study: study.landmarks is not None, "the data of the run", "stream=, the training data"),
}
"""For each need: whether a study has it, and what to pass for it on the command line and in Python."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, or without one, and how to write it."""

    value: float
    low: float | None = None
    high: float | None = None
    unit: Unit = "number"

    def __str__(self) -> str:
        if pd.isna(self.value):
            return "–"
        writers: dict[str, Callable[[float], str]] = {"share": percent, "gap": signed, "number": number}
        write = writers[self.unit]
        ends = "" if self.low is None or self.high is None else f" [{write(self.low)}, {write(self.high)}]"
        return f"{write(self.value)}{ends}"


@dataclass(frozen=True)
class Finding:
    """One thing that an audit found or did not find, by a name that is the same in every run.

    Attributes:
        name: What was looked for.
        estimate: How much of it there is.
        stands: Whether that is beyond what chance, or the audit's own bar, explains.
    """

    name: str
    estimate: Estimate
    stands: bool


@dataclass(frozen=True)
class View:
    """A part of an audit's table as a person reads it.

    Attributes:
        caption: What it shows, one line.
        columns: Heads.
        rows: Cells: texts, whole numbers and estimates.
        folded: Whether a reader has to ask for it.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    folded: bool = False


@dataclass(frozen=True)
class Exhibit:
    """What an audit measured.

    Attributes:
        table: Tidy: one row per thing measured, with its baselines.
        figures: Functions that draw it, by caption.
    """

    table: pd.DataFrame
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditResult:
    """An audit of a study: everything but the figures follows from the table.

    Attributes:
        name: Of the audit.
        title: Its heading.
        table: Tidy.
        sentence: What was found, in plain words with its numbers.
        verdict: Whether that is good or bad news, or neither.
        headline: One figure and what it counts, or ``None``.
        caveat: What the sentence does not say.
        warnings: What a reader must know before believing anything else.
        views: The table as a person reads it.
        figures: Functions that draw it, by caption.
        plain: What was found in one short sentence, without statistics.
        news: How much of it a reader would not have expected, 0 to 3: bad news above neutral above good.
        findings: One by one, to compare with those of another run.
    """

    name: str
    title: str
    table: pd.DataFrame
    sentence: str
    verdict: Verdict
    headline: tuple[str, str] | None
    caveat: str
    warnings: tuple[str, ...]
    views: tuple[View, ...]
    figures: Mapping[str, Callable[[], Figure]]
    plain: str
    news: float
    findings: tuple[Finding, ...]

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(text)}</p>" for text in (self.sentence, *self.warnings, self.caveat) if text)
        return f"<h4>{escape(self.title)}</h4>{said}{self.table.to_html(index=False, float_format='{:.4g}'.format)}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, the table as records."""
        names = ("name", "title", "plain", "sentence", "verdict", "news", "caveat", "warnings", "table")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Audit:
    """One question that can be asked of a study.

    Attributes:
        name: Short, as in `krepes.registry.AUDITS`.
        title: The heading: a word, a colon, the question.
        asks: What it finds out, to complete "to see ...".
        needs: What a study must have.
        compute: Measures.
        sentence: Of the table.
        verdict: Of the table.
        views: Of the table.
        caveat: What the sentence does not say.
        headline: Of the table: one figure and what it counts.
        warnings: Of the table: what a reader must know first.
        plain: Of the table: one short sentence without statistics; by default the sentence.
        strength: Of the table: how strong the news is among audits of the same verdict, -1 to 1; below 0 it gives way.
        findings: Of the table: each thing found or not, to compare runs by.
        numbers: Of the table: by name what two models can be compared by, for what-if answers; none by default.
        explains_step: Whether it reads what the objective added: without a step there is nothing to read.
    """

    name: str
    title: str
    asks: str
    needs: tuple[Need, ...]
    compute: Callable[[Study], Exhibit]
    sentence: Callable[[pd.DataFrame], str]
    verdict: Callable[[pd.DataFrame], Verdict]
    views: Callable[[pd.DataFrame], tuple[View, ...]]
    caveat: str
    headline: Callable[[pd.DataFrame], tuple[str, str] | None] = lambda table: None
    warnings: Callable[[pd.DataFrame], tuple[str, ...]] = lambda table: ()
    plain: Callable[[pd.DataFrame], str] | None = None
    strength: Callable[[pd.DataFrame], float] = lambda table: 0.0
    findings: Callable[[pd.DataFrame], tuple[Finding, ...]] = lambda table: ()
    numbers: Callable[[pd.DataFrame], dict[str, float]] = lambda table: {}
    explains_step: bool = True

    def missing(self, study: Study) -> str | None:
        """Return why a study cannot be asked, and what to pass; ``None`` if it can."""
        if self.explains_step and not study.moved:
            return (
                "There is nothing to attribute: no step lowered the objective, so no landmark moved any sample. Fit "
                "again with more damping, or check the data and its views."
            )
        for need in self.needs:
            has, flag, argument = NEEDS[need]
            if not has(study):
                return f"Not part of this audit: to see {self.asks}, pass {flag if study.by_flags else argument}."
        return None

    def __call__(self, study: Study) -> AuditResult:
        """Return the result for a study that has what is needed."""
        found = self.compute(study)
        verdict, strength = self.verdict(found.table), self.strength(found.table)
        return AuditResult(
            self.name,
            self.title,
            found.table,
            self.sentence(found.table),
            verdict,
            self.headline(found.table),
            self.caveat,
            self.warnings(found.table),
            self.views(found.table),
            found.figures,
            (self.plain or self.sentence)(found.table),
            NEWS[verdict] + min(max(strength, -0.99), 0.99),
            self.findings(found.table),
        )


def run_audits(study: Study, audits: Mapping[str, Audit]) -> tuple[dict[str, AuditResult], dict[str, str]]:
    """Ask every audit of a study.

    Args:
        study: What is audited.
        audits: By name.

    Returns:
        The results of those it can be asked, and for the others what is missing.
    """
    missing = {name: reason for name, audit in audits.items() if (reason := audit.missing(study)) is not None}
    return {name: audit(study) for name, audit in audits.items() if name not in missing}, missing
