"""The rung of influence that a study takes by itself: the best of a proof, a quick lazy replay, else the surrogate."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from krepes.errors import InvalidInputError, KrepesError
from krepes.influence import How, Influence, influence_of
from krepes.influence.costs import lazy_operations

if TYPE_CHECKING:
    from krepes.audit.study import Study

logger = logging.getLogger("krepes")

QUICK, LONG = 20_000, 2e11
"""Rows over which a replay may pass with other views by default, all draws together, and operations of its steps."""


def quick_influence(study: Study) -> Influence:
    """Return the influence of every training row on every bond of a study; details say why it is no better rung."""
    how = study.how or How()
    stream = study.stream if study.replayed is None else study.replayed
    ask = partial(
        influence_of, study.model, study.bonds, stream=stream, ids=study.train_ids, progress=study.model.progress
    )
    if study.method is not None:
        return ask(method=study.method, how=how)
    if study.proved is not None:
        try:
            return ask(method=study.proved, how=how)
        except KrepesError as error:
            logger.warning("%s, which a proof found best, cannot answer here: %s", study.proved, error)
    try:
        _require_quick(study, how)
        return ask(method="lazy", how=replace(how, draws=max(1, min(how.draws, QUICK // study.n))))
    except KrepesError as error:
        found = ask(method="surrogate")
        return replace(found, details={**found.details, "no replay": str(error).split(". ")[0]})


def _require_quick(study: Study, how: How) -> None:
    """Refuse a lazy replay that takes minutes by itself, whatever the number of rows."""
    d = 0 if study.embeddings is None else study.embeddings[0].shape[1]
    work = lazy_operations(min(256, len(study.model.K_mm_)), d, how.steps or 20, len(study.bonds))
    if work > LONG:
        raise InvalidInputError(
            f"a lazy replay of {len(study.bonds)} outcomes in {d} dimensions takes about {work / 5e9:.0f} s"
        )
