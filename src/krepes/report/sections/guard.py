"""Sections that explain what the objective added have nothing to say where it added nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from krepes.audit.study import Study
from krepes.report.content import Section

Make = Callable[[Study], Section]
NOTHING = (
    "There is nothing to attribute: no step lowered the objective, so no landmark moved any sample. Fit again with "
    "more damping, or check the data and its views."
)


def explains_a_step(key: str, title: str) -> Callable[[Make], Make]:
    """Return a decorator: without a step, scores are all zero and their order is an accident, so none is shown."""

    def decorate(make: Make) -> Make:
        @wraps(make)
        def section(study: Study) -> Section:
            return make(study) if study.moved else Section(key, title, NOTHING)

        return section

    return decorate
