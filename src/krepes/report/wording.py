"""Cells of a report's tables: each carries its text and the number it is sorted by."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from krepes.audit.base import Estimate
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, text
from krepes.report.blocks import Cell, Tone
from krepes.report.content import Section

OURS = {"influence", "directional"}
NONE = Cell("–", None, "muted")


def cell(value: Any, *, tone: Tone = "", shade: int = 0) -> Cell:
    """Return a cell of a text, a plain number or an estimate."""
    if isinstance(value, Estimate):
        return NONE if np.isnan(value.value) else Cell(str(value), float(value.value), tone, shade)
    is_number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_)) and not np.isnan(float(value))
    return Cell(text(value), float(value) if is_number else None, tone, shade)


def method_cell(method: str) -> Cell:
    """Return the name of a ranking, ours marked."""
    return Cell(METHODS.get(method, method), None, "ours" if method in OURS else "")


def heads(*names: str) -> tuple[Cell, ...]:
    """Return plain table heads."""
    return tuple(Cell(name) for name in names)


def missing(key: str, title: str, what: str, study: Study, *, flag: str, argument: str) -> Section:
    """Return a section that says what to pass to get it, to the person who reads it."""
    return Section(key, title, f"Not part of this report: to see {what}, pass {flag if study.by_flags else argument}.")
