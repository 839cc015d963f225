"""What of a memory budget is left for a model, and how many samples a pass may take of it at a time."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from krepes import batches
from krepes.budget import Budget
from krepes.model import Krepes
from krepes.runs.dataset import Dataset
from krepes.runs.settings import flag
from krepes.views import ViewStream
from krepes.views.holding import memory_of

logger = logging.getLogger("krepes")

VERSIONS = 8
"""Versions of a view that an augmentation of images holds at a time."""


def within_budget(stream: ViewStream, budget: Budget) -> ViewStream:
    """Return the same views in batches that take a quarter of a budget, or as they are if they take less.

    Args:
        stream: Its batches are those of a training, which a loss needs whole.
        budget: The memory budget.

    Returns:
        Views for a pass, which may take any number of samples at a time.
    """
    one = stream.source.take(torch.arange(1))
    # A sample, its views and their stack; an augmentation of images holds several versions of a view at a time.
    copies = 2 * stream.p + 1 + (VERSIONS if isinstance(one, Tensor) and one.ndim == 4 else 0)
    each = copies * batches.sample_bytes(one)
    return stream.with_batch_size(budget.rows(each, what="a sample and its views", share=1 / 4, most=stream.batch_size))


def beside_held(model: Krepes, dataset: Dataset, stream: ViewStream) -> int:
    """Return what is left of a model's budget beside what is in memory all the time: table, reference and landmarks.

    Args:
        model: Not fitted yet.
        dataset: The data.
        stream: Their views.

    Returns:
        Bytes; at least a quarter of the budget, which is said where it is too little.
    """
    budget = Budget.of(model.memory_budget)
    each = batches.sample_bytes(stream.source.take(torch.arange(1)))
    samples = (min(model.reference, stream.n), model.m * stream.p)
    held = dataset.held + sum(memory_of(count, each, budget) for count in samples)
    left = max(budget.bytes - held, budget.bytes // 4)
    if left > budget.bytes - held:
        logger.warning(
            "the data, the reference and the landmarks take %s of the %s of %s: memory will exceed it. Raise it, or "
            "pass a smaller %s or %s.",
            Budget(held),
            budget,
            flag("memory"),
            flag("reference"),
            flag("m"),
        )
    return left
