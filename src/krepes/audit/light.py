"""May this explanation be trusted? A light by stated rules: each has its number, its bars, and what to do about it.

It judges the explanation, not the encoder: bad news about an encoder can be told by a report that deserves trust.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from krepes.audit.base import AuditResult
from krepes.audit.study import Study
from krepes.audit.wording import count, number, percent

Light = Literal["green", "amber", "red", "grey"]
ORDER: tuple[Light, ...] = ("grey", "green", "amber", "red")
WORDS: dict[Light, str] = {
    "green": "Green: the explanation may be read as it stands",
    "amber": "Amber: read with care",
    "red": "Red: do not rely on this explanation",
    "grey": "Grey: nothing could be measured",
}
GAIN, SPAN, SAMPLES, ALIKE, STABLE = (0.25, 0.0), (0.5, 0.2), (100, 30), (0.9, 0.75), (0.8, 0.5)
"""From where on a number is green, and from where on amber."""


@dataclass(frozen=True)
class Rule:
    """One condition of trust.

    Attributes:
        asks: What must hold.
        measured: The number, in words.
        bars: From where on it is green, and amber.
        light: What that makes; grey if it was not measured, which turns no light.
        remedy: What to do where it is not green; empty where it is.
    """

    asks: str
    measured: str
    bars: str
    light: Light
    remedy: str = ""


def rules(study: Study, results: Mapping[str, AuditResult]) -> tuple[Rule, ...]:
    """Return every rule with its number.

    Args:
        study: What was audited.
        results: Of the audits, by name; ``trust`` among them, ``faithfulness`` where it could be asked.

    Returns:
        The rules.
    """
    if "trust" not in results:
        return ()
    table = results["trust"].table
    of = dict(zip(table["measure"], table["value"], strict=True))
    more = "a larger -m" if study.by_flags else "a larger m="
    return (
        _step(of),
        _solved(of),
        _barred(
            "The landmarks stand for a typical sample",
            of["spanned"],
            SPAN,
            percent,
            f"Fit again with {more}: now {study.m}.",
        ),
        _faithful(study, results.get("faithfulness")),
        _barred(
            "Enough held-out samples",
            of["test samples"],
            SAMPLES,
            lambda value: f"{value:,.0f}",
            f"Hold out more: {'--holdout' if study.by_flags else 'holdout='}.",
        ),
        _centred(study, of),
        _same_data(study),
        _stable(study),
    )


def light_of(found: tuple[Rule, ...]) -> Light:
    """Return the light: the worst of all rules that were measured."""
    return max((rule.light for rule in found), key=ORDER.index, default="grey")


def _barred(asks: str, value: float, bars: tuple[float, float], write: Callable[[float], str], remedy: str) -> Rule:
    light: Light = "green" if value >= bars[0] else "amber" if value >= bars[1] else "red"
    said = f"green from {write(bars[0])}, amber from {write(bars[1])}"
    return Rule(asks, write(value), said, light, "" if light == "green" else remedy)


def _step(of: Mapping[str, float]) -> Rule:
    asks, bars = "The objective fell as predicted", f"green from {GAIN[0]} of the predicted fall, amber above 0"
    if not of["accepted"]:
        return Rule(asks, "no step was taken", bars, "red", "Raise the damping, or check the data and its views.")
    light: Light = "green" if of["gain"] >= GAIN[0] else "amber" if of["gain"] > GAIN[1] else "red"
    measured = f"{number(of['gain'], 2)} of the predicted fall"
    return Rule(asks, measured, bars, light, "" if light == "green" else "Raise the damping.")


def _solved(of: Mapping[str, float]) -> Rule:
    asks, bars = "The equations were solved", "green up to the tolerance, amber up to ten times it"
    ratio = of["residual"] / of["tolerance"] if of["tolerance"] > 0 else float(of["residual"] > 0)
    light: Light = "green" if ratio <= 1 else "amber" if ratio <= 10 else "red"
    measured = f"error {number(of['residual'], 2)}, tolerance {number(of['tolerance'], 2)}"
    return Rule(asks, measured, bars, light, "" if light == "green" else "Raise the damping, or allow more iterations.")


def _faithful(study: Study, result: AuditResult | None) -> Rule:
    asks = "The surrogate decides like the encoder"
    if study.encoder is None:
        return Rule(asks, "not asked: a kernel was given, no encoder", "", "grey")
    if result is None:
        what = "--label COLUMN" if study.by_flags else "labels="
        return Rule(asks, "not measured", "amber while it is not measured", "amber", f"Pass {what}.")
    table = result.table
    same = float(table[table["measure"] == "same decision"]["estimate"].iloc[0])
    more = "a larger -m, or --init encoder" if study.by_flags else "a larger m=, or init='encoder'"
    return _barred(asks, same, ALIKE, percent, f"Fit again with {more}.")


def _centred(study: Study, of: Mapping[str, float]) -> Rule:
    asks, bars = "Landmarks can repel", "green if the kernel is centred, else amber"
    if of["centred"]:
        return Rule(asks, "the kernel is centred", bars, "green")
    return Rule(
        asks, "the kernel is not centred", bars, "amber", f"Pass {'--centre' if study.by_flags else 'centre=True'}."
    )


def _same_data(study: Study) -> Rule:
    asks, bars = "The data are those of the fit", "green without a note, else amber"
    if not study.notes:
        return Rule(asks, "nothing to note", bars, "green")
    return Rule(asks, count(len(study.notes), "note"), bars, "amber", study.notes[0])


def _stable(study: Study) -> Rule:
    asks, bars = "Findings stand in other runs", f"green from {percent(STABLE[0])}, amber from {percent(STABLE[1])}"
    found = study.standing
    if found is None or not found.found:
        how = "krepes report DATA --seeds 3" if study.by_flags else "standing=compare(...)"
        return Rule(asks, "not measured: one run", bars, "grey", f"{how} repeats it with other seeds.")
    share = found.stable / len(found.found)
    light: Light = "green" if share >= STABLE[0] else "amber" if share >= STABLE[1] else "red"
    measured = f"{found.stable} of {count(len(found.found), 'finding')} in {found.everywhere}"
    return Rule(asks, measured, bars, light, "" if light == "green" else "Believe only those that stand in every run.")
