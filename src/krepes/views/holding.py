"""Samples that are held while others pass by: in memory while they are few, else in temporary files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes import batches
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.storage import mapped
from krepes.views.stream import ViewStream

SHARE = 1 / 8
"""Part of a budget that samples of one purpose are held in memory up to."""


def memory_of(count: int, each: int, budget: Budget) -> int:
    """Return the bytes of memory that so many samples of ``each`` bytes take all the time: none if they are in a file.

    Args:
        count: How many samples.
        each: Bytes of one.
        budget: The memory budget.

    Returns:
        Bytes.
    """
    return count * each if budget.fits(count * each, share=SHARE) else 0


def held(read: Callable[[Tensor], Batch], indices: Tensor, budget: Budget) -> Batch:
    """Return samples that are looked at again and again.

    Args:
        read: Returns the samples of some indices ``(b,)``.
        indices: All of them.
        budget: The memory budget; samples of more than an eighth of it are mapped from temporary files.

    Returns:
        A batch of tensors, or of mapped arrays that go with their last use.
    """
    each = batches.sample_bytes(read(indices[:1]))
    if budget.fits(len(indices) * each, share=SHARE):
        return read(indices)
    return in_file(read, indices.split(budget.rows(4 * each, what="a sample", share=SHARE)))


def held_views(stream: ViewStream, indices: Tensor, budget: Budget) -> Batch:
    """Return all views of some samples, looked at again and again.

    Args:
        stream: The views.
        indices: The samples, ``(m,)``.
        budget: As in `held`.

    Returns:
        A batch of ``p m``: ``u m + l`` is view ``u`` of sample ``l``.
    """
    m, flat = len(indices), partial(batches.map_tensors, lambda x: x.flatten(0, 1))
    each = batches.sample_bytes(flat(stream.views_of(indices[:1])))
    if budget.fits(stream.p * m * each, share=SHARE):
        return flat(stream.views_of(indices))

    def read(places: Tensor) -> Batch:
        view = int(places[0]) // m
        return batches.map_tensors(lambda x: x[view], stream.views_of(indices[places % m]))

    size = budget.rows(4 * stream.p * each, what="a sample in all its views", share=SHARE)
    return in_file(read, [part for view in torch.arange(stream.p * m).split(m) for part in view.split(size)])


def in_file(read: Callable[[Tensor], Batch], parts: Sequence[Tensor]) -> Batch:
    """Return samples as a batch of arrays that are mapped from temporary files.

    Args:
        read: Returns the samples of some indices ``(b,)``.
        parts: Indices that are read at a time.

    Returns:
        All samples; `batches.take` keeps no page of them in memory. Token batches are padded to the longest of them.
    """
    files: list[np.ndarray[Any, Any]] = []
    start, c = 0, sum(map(len, parts))
    for part in parts:
        leaves, nesting = pytree.tree_flatten(read(part))
        if not files:
            files = [mapped.scratch((c, *leaf.shape[1:]), _numpy(leaf)) for leaf in leaves]
        for i, leaf in enumerate(leaves):
            values = leaf.detach().cpu()
            if values.shape[1:] != files[i].shape[1:]:
                values, files[i] = _of_one_length(values, files[i], start)
            mapped.write(files[i], start, _plain(values).numpy())
        start += len(part)
    return pytree.tree_unflatten(files, nesting)


def _of_one_length(values: Tensor, file: np.ndarray[Any, Any], start: int) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Return tokens ``(b, length)`` and the file of those before them at one length: zeros behind, as in `padded`.

    Args:
        values: The new ones.
        file: Holds ``start`` samples so far.
        start: How many.

    Returns:
        Both at the greater length.

    Raises:
        InvalidInputError: If they differ in more than a length.
    """
    if values.ndim != 2 or file.ndim != 2:
        raise InvalidInputError(
            f"samples have shapes {tuple(file.shape[1:])} and {tuple(values.shape[1:])}: all samples "
            f"must have one shape; only batches of tokens may differ in length."
        )
    missing = file.shape[1] - values.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(values, (0, missing)), file
    longer = mapped.scratch((len(file), values.shape[1]), file.dtype)
    for rows in mapped.spans(start, longer[:1].nbytes):
        longer[rows, : file.shape[1]] = file[rows]
        mapped.release(longer)
        mapped.release(file)
    return values, longer


def _numpy(like: Tensor) -> np.dtype[Any]:
    """Return the type of values in a file."""
    return _plain(like[:0].cpu()).numpy().dtype


def _plain(values: Tensor) -> Tensor:
    """Return values in a type that NumPy has; float32 holds every bfloat16."""
    return values.float() if values.dtype == torch.bfloat16 else values
