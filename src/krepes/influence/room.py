"""What a replayed step takes of memory: a loss needs its batch whole, and a derivative the graphs of its passes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from krepes import batches
from krepes.budget import Budget
from krepes.encoders.recording import Recording
from krepes.influence.warm import LARGEST
from krepes.model import Krepes
from krepes.views import ViewStream

logger = logging.getLogger("krepes")

GRAPHS = 3
"""Passes whose tensors a differentiated step keeps: forward, backward, and what goes back through both."""


def beyond_room(
    model: Krepes, stream: ViewStream, method: str, *, batch: int | None, recordings: Sequence[Recording]
) -> str | None:
    """Return what a step of a rung takes where that is more than the model's budget, ``None`` where it fits.

    Args:
        model: A fitted model of an encoder.
        stream: The training data.
        method: ``"warm"`` or ``"replay"``; others have no such steps.
        batch: Samples of a warm step, if they were given.
        recordings: Of the training, for a replay.

    Returns:
        The beginning of a sentence.
    """
    if method not in {"warm", "replay"} or (method == "replay" and not recordings):
        return None
    size = min((batch or LARGEST) if method == "warm" else recordings[0].recipe.batch_size, stream.n)
    tangent, budget = getattr(model.base_kernel_, "tangent", None), Budget.of(model.memory_budget)
    each = batches.sample_bytes(stream.source.take(torch.arange(1)))
    inside = each if tangent is None else tangent.bytes_per_sample
    need = Budget(int(stream.p * size * (each + GRAPHS * inside)))
    return None if budget.fits(need.bytes) else f"a step takes about {need} and the memory budget is {budget}"


def say_beyond(model: Krepes, stream: ViewStream, method: str, **sizes: Any) -> None:
    """Say before the work that the steps of a rung that was asked for take more than the budget; see `beyond_room`."""
    found = beyond_room(model, stream, method, **sizes)
    if found is not None:
        logger.warning(
            "influence by %s: %s: memory will exceed it. Method lazy takes less; or fit with a larger memory budget.",
            method,
            found,
        )
