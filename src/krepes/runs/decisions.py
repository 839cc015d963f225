"""The decision of a probe on a run's surrogate, taken apart into landmarks that support and that oppose it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from krepes.audit.decision import Decision, explain_decision
from krepes.audit.probes import PROBE_ROWS
from krepes.errors import InvalidInputError
from krepes.runs.columns import LABEL
from krepes.runs.workspace import Workspace
from krepes.views.source import evenly_spaced

JUDGED = 2000
"""Held-out samples that judge the probes, at most."""


def decision(space: Workspace, ids: Sequence[Any], label: str | None = None) -> Decision:
    """Return which landmarks support and which oppose the decision of a probe for some samples.

    Args:
        space: The run.
        ids: Of the samples; they do not train the probe.
        label: Column of the classes; by default that of the settings, or the labels that the data brought along.

    Returns:
        The decisions, judged by the held-out samples.

    Raises:
        InvalidInputError: If nobody says what the classes are, or the training samples show only one.
    """
    column = label or space.settings.label or (LABEL if space.data.labels is not None else None)
    if column is None:
        raise InvalidInputError(
            "--decision explains what a classifier of classes decides, and the run has none. Pass --label COLUMN."
        )
    labels, X = space.of_train(column), space.samples(ids)
    rows = evenly_spaced(len(space.train), PROBE_ROWS)
    if space.asked is space.data:
        rows = rows[~torch.isin(space.train[rows], torch.tensor([space.asked.place(id) for id in ids]))]
    classes = set(labels[rows.numpy()].tolist())
    if len(classes) < 2:
        raise InvalidInputError(
            f"--label {column}: the {len(rows)} training samples of the probe show {len(classes)} class, at least two "
            f"are required. Choose another column."
        )
    held = evenly_spaced(len(space.test), JUDGED)
    known = space.of_test(column)[held.numpy()] if column in space.asked.names else None
    return explain_decision(
        space.model,
        X,
        (space.train_source(rows), labels[rows.numpy()]),
        space.of_landmarks(column),
        judged=(space.held_out(held), known) if len(held) else None,
        ids=list(ids),
    )
