"""The candidates among which landmarks are chosen: read once, held in memory or in a file, whatever their number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
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


@contextmanager
def open_pool(
    read: Callable[[Tensor], Batch], indices: Tensor, budget: Budget, *, raw: int, kept: int
) -> Generator[Batch, None, None]:
    """Lend the samples ``indices`` as one batch for the passes of a selector.

    Up to a quarter of the budget they are read at once and held in memory. Beyond, they are read in pieces; what is
    kept of them goes to a temporary file if it takes more than a quarter of the budget itself, so that the budget never
    decides which landmarks are chosen. Batches of tokens may differ in length from piece to piece.

    Args:
        read: Returns the samples of some indices ``(b,)`` as the selector shall see them.
        indices: The candidates, ``(c,)``.
        budget: The memory budget.
        raw: Bytes per sample while it is read.
        kept: Bytes per sample of what ``read`` returns.

    Yields:
        A batch of ``c`` samples, in memory or mapped from a file that is removed on leaving, also after an error; of a
        mapped one `batches.take` keeps no page in memory.
    """
    c = len(indices)
    if budget.fits(c * max(raw, kept), share=1 / 4):
        yield read(indices)
        return
    parts = indices.split(budget.rows(raw + kept, what="a candidate", share=1 / 8))
    if budget.fits(c * kept, share=1 / 4):
        yield batches.concatenate([read(part) for part in parts])
        return
    with tempfile.TemporaryDirectory(prefix="krepes-") as folder:
        yield _on_disk(read, parts, c, Path(folder))


def _on_disk(read: Callable[[Tensor], Batch], parts: tuple[Tensor, ...], c: int, folder: Path) -> Batch:
    """Return all candidates as a batch of mapped arrays."""
    files: list[np.ndarray[Any, Any]] = []
    start = 0
    for number, part in enumerate(parts):
        leaves, nesting = pytree.tree_flatten(read(part))
        if not files:
            files = [_new_file(folder / str(i), c, leaf) for i, leaf in enumerate(leaves)]
        for i, leaf in enumerate(leaves):
            values, place = leaf.detach().cpu(), folder / f"{i}-{number}"
            if values.shape[1:] != files[i].shape[1:]:
                values, files[i] = _of_one_length(values, files[i], start, place)
            mapped.write(files[i], start, _plain(values).numpy())
        start += len(part)
    return pytree.tree_unflatten(files, nesting)


def _of_one_length(
    values: Tensor, file: np.ndarray[Any, Any], start: int, place: Path
) -> tuple[Tensor, np.ndarray[Any, Any]]:
    """Return tokens ``(b, length)`` and the file of those before them at one length: zeros behind, as in `padded`.

    Args:
        values: The new ones.
        file: Holds ``start`` samples so far.
        start: How many.
        place: For a new file, where the new ones are longer.

    Returns:
        Both at the greater length.

    Raises:
        InvalidInputError: If they differ in more than a length.
    """
    if values.ndim != 2 or file.ndim != 2:
        raise InvalidInputError(
            f"candidates for landmarks have shapes {tuple(file.shape[1:])} and {tuple(values.shape[1:])}: all samples "
            f"must have one shape; only batches of tokens may differ in length."
        )
    missing = file.shape[1] - values.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(values, (0, missing)), file
    longer = mapped.new_file(place, (len(file), values.shape[1]), file.dtype)
    for rows in mapped.spans(start, longer[:1].nbytes):
        longer[rows, : file.shape[1]] = file[rows]
        mapped.release(longer)
        mapped.release(file)
    return values, longer


def _new_file(path: Path, c: int, like: Tensor) -> np.ndarray[Any, Any]:
    """Return an array of ``c`` samples in a new file."""
    return mapped.new_file(path, (c, *like.shape[1:]), _plain(like[:0].cpu()).numpy().dtype)


def _plain(values: Tensor) -> Tensor:
    """Return values in a type that NumPy has; float32 holds every bfloat16."""
    return values.float() if values.dtype == torch.bfloat16 else values
