"""The questions of a workspace that name samples: what one is made of, and outcomes whose causes can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from krepes.attribution import attribute
from krepes.audit.features import FeatureSpace
from krepes.audit.study import Study
from krepes.concepts import ConceptVector
from krepes.engine.init import ENCODER
from krepes.errors import KrepesError
from krepes.figures import landmark_strips, render
from krepes.influence import How, Outcome, pull, similarity
from krepes.influence import toward as along
from krepes.influence.ladder import MEMBERS, METHODS
from krepes.processes import current
from krepes.runs.proving import best_rung, trust_in_rows
from krepes.runs.retraining import how_to_replay
from krepes.runs.uses import column_uses
from krepes.runs.workspace import Workspace, column_and_value
from krepes.storage.files import publish
from krepes.views import ViewStream
from krepes.views.source import evenly_spaced


def made_of(space: Workspace, ids: Sequence[Any], k: int) -> pd.DataFrame:
    """Return the landmarks that attract and that repel some samples, at most ``k`` of each, none listed twice."""
    found = attribute(space.model, space.samples(ids), ids=list(ids))
    return found.both(min(k, found.m))


def picture_strip(space: Workspace, ids: Sequence[Any], k: int, path: Path) -> Path:
    """Draw samples beside the landmarks that attract them, then those that repel them; return the picture's path."""
    found = attribute(space.model, space.samples(ids), ids=list(ids))
    top, against = (found.top(min(k, found.m), by=by) for by in ("score", "repulsive"))
    samples, landmarks = space.pictures(ids)
    picture = landmark_strips(
        samples.repeat_interleave(2, 0),
        landmarks,
        torch.stack([top.indices, against.indices], 1).flatten(0, 1),
        torch.stack([top.scores, against.scores], 1).flatten(0, 1),
        sample_names=[str(id) for id in ids for _ in range(2)],
        sample_notes=["attracted by", "repelled by"] * len(ids),
        landmark_names=[str(id) for id in space.model.landmark_ids_],
    )
    if not current().first:
        return path
    return publish(path, lambda temporary: temporary.write_bytes(render(picture)))


def similarity_of(space: Workspace, first: Any, second: Any) -> Outcome:
    """Return the cosine of two samples as an outcome."""
    return similarity(
        space.model, space.samples([first]), space.samples([second]), name=f"similarity of {first} and {second}"
    )


def pull_to_group(space: Workspace, id: Any, column: str, value: str) -> Outcome:
    """Return how much closer a sample lies to a group than to the others."""
    group, others = space.members(column, value)
    return pull(space.model, space.samples([id]), group, others, name=f"pull of {id} towards {column}={value}")


def along_concept(space: Workspace, id: Any, column: str, value: str) -> Outcome:
    """Return how far a sample lies along the direction that separates a group from the others."""
    found = concept(space, column, value, "--toward")
    name = f"place of {id} along concept:{column}={value}"
    return along(space.model, space.samples([id]), found.v, in_model=space.model.init != ENCODER, name=name)


LOOKED_AT = 20_000
"""Held-out samples that audits and report look at, at most."""
SECONDS = 120.0
"""What "auto", or the rung that a proof found best, may take for the influence of a report."""


def concept(space: Workspace, column: str, value: str, asked_by: str = "--concept") -> ConceptVector:
    """Return the direction that separates training samples of a group from the others."""
    group, others = space.members(column, value, asked_by)
    return ConceptVector.fit(space.model, group, others, name=f"{column}={value}")


def study(
    space: Workspace,
    *,
    groups: Sequence[str] = (),
    label: str | None = None,
    predictions: str | None = None,
    concepts: Sequence[str] = (),
    shown: int = 12,
    k: int = 5,
    counterfactual: bool = True,
    method: str | None = None,
    by_proof: bool = False,
) -> Study:
    """Return what audits and report see of a workspace.

    Args:
        space: The workspace.
        groups: Columns whose values are groups; sensitive columns of the settings come first.
        label: Column that judges; by default that of the settings.
        predictions: Column with the classes that a classifier gave.
        concepts: ``column=value`` each.
        shown: Samples to show one by one.
        k: Landmarks to show of each sign.
        counterfactual: Whether to pass over the training data again.
        method: By which rung of influence; by default one that is quick.
        by_proof: Take the one that predicted retraining best by default, where the run was proved and if it takes two
            minutes at most.

    Returns:
        The study.
    """
    held_out, space = len(space.test), looked_at(space)
    label = label or space.settings.label
    named = list(dict.fromkeys([*space.settings.sensitive, *groups]))
    space.require_columns(named, label)
    ideas = [column_and_value(text) for text in concepts]
    proved = best_rung(space.folder, shown, SECONDS) if by_proof and counterfactual and method is None else None
    proved, how, replayed = _replaying(space, method, proved)
    return Study(
        space.model,
        space.test_source,
        test_ids=space.test_ids,
        train_ids=space.train_ids,
        stream=space.stream,
        tables=space.tables,
        features=_features(space),
        groups={name: space.pair(name, "--group") for name in named},
        labels=None if label is None else space.pair(label),
        hidden=space.hidden,
        texts=space.texts,
        tokenizer=space.tokenizer,
        predictions=None if predictions is None else space.of_test(predictions, "--predictions"),
        concepts=[concept(space, *pair) for pair in ideas],
        inputs=space.asked.kind,
        shown=min(shown, len(space.test)),
        k=min(k, len(space.model.landmark_ids_)),
        counterfactual=counterfactual,
        method=method,
        proved=proved,
        how=how,
        replayed=replayed,
        seed=space.settings.seed,
        by_flags=True,
        notes=space.notes,
        trust={method: said for method in METHODS if (said := trust_in_rows(space, method))},
        columns=column_uses(space, named, label),
        run=str(space.folder),
        title=f"KREPES report on {space.title}",
        drawn_from=None if held_out == len(space.test) else held_out,
        preset=space.settings.preset,
    )


def _replaying(space: Workspace, method: str | None, proved: str | None) -> tuple[str | None, How, ViewStream]:
    """Return the rung of a proof, unless it cannot be prepared here, and what influence needs beside the model."""
    limits: dict[str, Any] = {"members": MEMBERS, "seconds": SECONDS}
    if proved is not None:
        with suppress(KrepesError):
            return proved, *how_to_replay(space, proved, **limits)
    return None, *how_to_replay(space, method or "lazy", **limits)


def looked_at(space: Workspace) -> Workspace:
    """Return a workspace with so many held-out samples as audits look at, evenly spaced, or as it is if it has fewer.

    Shares of 20,000 samples have an error of 0.35 points at most; time and memory of audits grow with their number.
    """
    if len(space.test) <= LOOKED_AT:
        return space
    return replace(space, test=space.test[evenly_spaced(len(space.test), LOOKED_AT)])


def _features(space: Workspace) -> FeatureSpace | None:
    """Return how columns are compared if the settings say so, else nothing: the study then looks for itself."""
    if space.tables is None or space.settings.agreement == "indicator":
        return None
    return FeatureSpace.of(space.tables[0], agreement=space.settings.agreement)
