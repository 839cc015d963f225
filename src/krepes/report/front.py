"""What comes first: may the explanation be trusted, three findings, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from krepes.audit.base import AuditResult
from krepes.audit.light import WORDS, Rule, light_of, rules
from krepes.audit.study import Study
from krepes.audit.wording import listing, text
from krepes.proof.result import UNREPEATABLE
from krepes.report.blocks import Cell, Table
from krepes.report.content import Front, Point, Step
from krepes.report.wording import heads

POINTS = 3


def front(study: Study, results: Mapping[str, AuditResult], missing: Mapping[str, str]) -> Front:
    """Return the first page of a part.

    Args:
        study: What was audited.
        results: Of the audits, by name.
        missing: Audits that could not be asked, and what to pass for them.

    Returns:
        The front.
    """
    found = rules(study, results)
    light = light_of(found)
    return Front(
        light, WORDS[light], _why(found), _table(found), _points(results), _steps(study, results, found, missing)
    )


def by_news(results: Mapping[str, AuditResult]) -> list[AuditResult]:
    """Return results, most news first; those with as much in the order of the registry."""
    return sorted(results.values(), key=lambda result: -result.news)


def _points(results: Mapping[str, AuditResult]) -> tuple[Point, ...]:
    return tuple(Point(one.plain, one.verdict, one.name) for one in by_news(results)[:POINTS])


def _why(found: Sequence[Rule]) -> str:
    measured = [rule for rule in found if rule.light != "grey"]
    worst = light_of(tuple(found))
    held = sum(rule.light == "green" for rule in measured)
    if held == len(measured):
        return f"All {held} rules that could be measured hold."
    failing = [f"{rule.asks.lower()} ({rule.measured})" for rule in measured if rule.light == worst]
    return f"{held} of {len(measured)} rules hold. Not {worst_word(worst)}: {'; '.join(failing)}."


def worst_word(light: str) -> str:
    """Return what a rule of this light is not."""
    return "met" if light == "red" else "fully met"


def _table(found: Sequence[Rule]) -> Table:
    rows = tuple(
        (Cell(rule.asks), Cell(rule.light, tone="muted" if rule.light == "grey" else ""), Cell(rule.measured))
        + (Cell(rule.bars), Cell(rule.remedy))
        for rule in found
    )
    return Table("The rules behind the light", heads("what must hold", "light", "measured", "bars", "what to do"), rows)


def _steps(
    study: Study, results: Mapping[str, AuditResult], found: Sequence[Rule], missing: Mapping[str, str]
) -> tuple[Step, ...]:
    """Return what to do: repair what the rules miss, follow the news, and look for oneself."""
    run, steps = study.run or "RUN", []
    for rule in found:
        if rule.light in {"amber", "red"} and rule.remedy:
            steps.append(Step(f"{rule.asks}: {rule.measured}. {rule.remedy}"))
    if not study.by_flags:
        return (*steps[:2], *_in_python(study, missing))
    sample = text(study.test_id(int(study.chosen[0])))
    hidden = [name for name in study.groups if name in study.hidden]
    if "proxy" in results and results["proxy"].verdict == "bad":
        again = "" if UNREPEATABLE in study.trust.values() else " --verify"
        steps.append(
            Step(
                f"See which rows would bring the groups of {text(hidden[0])} together if they were removed.",
                f'krepes curate {run} --outcome "group_distance {text(hidden[0])}" --drop 5%{again}',
            )
        )
    steps.append(Step("Ask about any sample, on the screen.", f"krepes explore {run}"))
    steps.append(Step("Ask about one sample here.", f"krepes explain {run} --row {sample}"))
    if study.counterfactual and not study.trust:
        steps.append(Step("Measure whether the rows named under removal may be believed.", f"krepes prove {run}"))
    if study.standing is None:
        steps.append(Step("See whether the findings stand with other seeds.", f"krepes report {run} --seeds 3"))
    return tuple(steps)


def _in_python(study: Study, missing: Mapping[str, str]) -> list[Step]:
    steps = [Step("Ask about other samples.", "attribute(model, X).to_frame()")]
    if missing:
        steps.append(Step(f"Not asked for lack of input: {listing(list(missing))}; each says below what to pass."))
    if study.counterfactual:
        steps.append(
            Step("Ask which rows bring two samples together.", "influence_of(model, similarity(model, first, second))")
        )
    return steps
