"""Where samples come from: arrays in memory or mapped from disk, a map-style Dataset, a DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from krepes import batches
from krepes.batches import Batch
from krepes.data.arrays import ArrayFile
from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError


class Source(Protocol):
    """Samples that can be had by index."""

    @property
    def n(self) -> int:
        """Number of samples."""

    def take(self, indices: Tensor) -> Batch:
        """Return the samples ``indices`` ``(b,)`` as tensors ``(b, ...)``, without labels."""


@dataclass(frozen=True)
class ArraySource:
    """Samples along the first axis of arrays or tensors, nested in mappings, tuples or lists."""

    X: Batch

    @property
    def n(self) -> int:
        """Number of samples."""
        return batches.count(self.X)

    def take(self, indices: Tensor) -> Batch:
        """Return the samples ``indices``: only they are read from a mapped file."""
        return batches.take(self.X, indices)


@dataclass(frozen=True)
class DatasetSource:
    """Items of a map-style Dataset; of an item ``(sample, label, ...)`` only the sample is kept.

    Attributes:
        dataset: Has ``__getitem__`` and ``__len__``.
        collate: Joins whole items to a batch, labels and all, as the DataLoader's does; by default samples are stacked.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any] | None = None

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def take(self, indices: Tensor) -> Batch:
        """Return the samples ``indices``, joined to a batch."""
        wanted = indices.tolist()
        many = getattr(self.dataset, "__getitems__", None)
        items = many(wanted) if many is not None else [self.dataset[i] for i in wanted]
        samples = [_first(item) for item in items]
        try:
            return batches.plain(default_collate(samples) if self.collate is None else _first(self.collate(items)))
        except (TypeError, RuntimeError, KeyError) as error:
            found = sorted({str(tuple(s.shape)) if hasattr(s, "shape") else type(s).__name__ for s in samples})
            raise InvalidInputError(
                f"samples {wanted[0]} to {wanted[-1]} of the data set do not stack into one batch: found "
                f"{', '.join(found[:5])} ({error}). Every sample must be a tensor, an array, or a dict of them, "
                f"all of one shape: resize, pad or convert in the data set's transform."
            ) from error


@dataclass(frozen=True, init=False)
class RowsOf:
    """Some samples of a larger source, in a chosen order; each batch reads only its own from disk.

    Attributes:
        source: All samples.
        indices: The chosen ones, ``(n,)``, int64.

    Example:
        >>> RowsOf(np.arange(8.0), torch.tensor([6, 2, 4])).take(torch.tensor([0, 2]))
        tensor([6., 4.], dtype=torch.float64)
    """

    source: Source
    indices: Tensor

    def __init__(self, data: Any, indices: Any) -> None:
        """Choose samples of whatever `as_source` takes; refuse indices that it has not."""
        source, chosen = as_source(data)[0], torch.as_tensor(indices, dtype=torch.int64).reshape(-1).cpu()
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < source.n:
            raise InvalidInputError(
                f"rows between {int(chosen.min())} and {int(chosen.max())} were chosen of {source.n} samples. "
                f"Each must be between 0 and {source.n - 1}."
            )
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "indices", chosen)

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.indices)

    def take(self, indices: Tensor) -> Batch:
        """Return the samples ``indices`` of the chosen ones."""
        return self.source.take(self.indices[indices.cpu()])


@dataclass(frozen=True)
class Through:
    """Samples of a source, each batch with a function applied as it is read: nothing is held between batches.

    Attributes:
        source: The samples.
        function: Takes and returns a batch of ``b`` samples, such as the ``plain`` of an augmentation.

    Example:
        >>> Through(ArraySource(torch.arange(4.0)), torch.square).take(torch.tensor([3, 1]))
        tensor([9., 1.])
    """

    source: Source
    function: Callable[[Batch], Batch]

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.source.n

    def take(self, indices: Tensor) -> Batch:
        """Return the samples ``indices``, after the function."""
        return batches.plain(self.function(self.source.take(indices)))


def all_of(X: Any) -> Batch:
    """Return all samples of a source as one batch, held in memory; a batch as it is."""
    return X.take(torch.arange(X.n)) if isinstance(X, (RowsOf, Through)) else X


def _first(item: Any) -> Any:
    """Return the sample of ``(sample, label, ...)``."""
    return item[0] if isinstance(item, (tuple, list)) else item


def as_source(data: Any) -> tuple[Source, int | None]:
    """Return the samples of ``data`` by index.

    Args:
        data: A tensor, an array (mapped or not), a mapping, tuple or list of them, an `ArrayFile`, `TokenizedTexts`, a
            map-style Dataset, a DataLoader, `RowsOf` any of these, or any other `Source`.

    Returns:
        The source, and the batch size if ``data`` is a DataLoader.

    Raises:
        InvalidInputError: If samples cannot be had by index, or the DataLoader draws only a part of its Dataset.
    """
    if isinstance(data, DataLoader):
        return _of_loader(data)
    if isinstance(data, (ArrayFile, ArraySource, DatasetSource, RowsOf, Through, TokenizedTexts)):
        return data, None
    if isinstance(data, IterableDataset):
        raise InvalidInputError(
            f"{type(data).__name__} is an IterableDataset: its samples have no index, so their views cannot be "
            f"replayed. Pass a map-style Dataset (with __getitem__ and __len__) or an array."
        )
    if isinstance(data, TensorDataset):
        return ArraySource(data.tensors[0]), None
    if isinstance(data, (Tensor, np.ndarray, Mapping, tuple, list)):
        _require_numbers(data)
        return ArraySource(batches.plain(data)), None
    if hasattr(data, "__getitem__") and isinstance(data, Sized) and isinstance(data, Dataset):
        return DatasetSource(data), None
    if isinstance(getattr(data, "n", None), int) and callable(getattr(data, "take", None)):
        return data, None
    raise InvalidInputError(
        f"{type(data).__name__} is no source of samples. Pass a tensor or array (n, ...), a dict or tuple of them, "
        f"a map-style torch Dataset with a length, or a DataLoader."
    )


def _of_loader(loader: DataLoader[Any]) -> tuple[Source, int | None]:
    source, _ = as_source(loader.dataset)
    if loader.batch_size is None or not isinstance(loader.sampler, (SequentialSampler, RandomSampler)):
        name = type(loader.sampler).__name__ if loader.batch_size else type(loader.batch_sampler).__name__
        raise InvalidInputError(
            f"the DataLoader draws by {name}, which may leave out or repeat samples, while a stream gives every sample "
            f"of the data set once. Pass torch.utils.data.Subset(dataset, indices) instead."
        )
    if loader.collate_fn is not default_collate and isinstance(source, DatasetSource):
        source = DatasetSource(source.dataset, loader.collate_fn)
    return source, loader.batch_size


def _require_numbers(data: Batch) -> None:
    """Refuse what is no dense array of real numbers, before it fails deep inside torch or is read without its mask."""
    for leaf in batches.leaves(data):
        if isinstance(leaf, str):
            raise InvalidInputError(
                "the source holds a str, and an encoder takes tokens. Of texts pass krepes.data.tokenized(texts), with "
                "the tokenizer of your encoder if it is not the one of this package; leave any other text out."
            )
        if not isinstance(leaf, (Tensor, np.ndarray)):
            raise InvalidInputError(
                f"the source holds a {type(leaf).__name__}, but only tensors and arrays (n, ...) can be indexed by "
                f"sample. Convert it with torch.as_tensor, or leave it out."
            )
        problem = _of_tensor(leaf) if isinstance(leaf, Tensor) else _of_array(leaf)
        if problem:
            raise InvalidInputError(f"an array has dtype {leaf.dtype}: {problem}.")


def _of_array(leaf: np.ndarray[Any, Any]) -> str:
    """Return why an array cannot be used and what to do, or nothing."""
    if leaf.dtype.kind == "c":
        return "complex numbers. Split them into real and imaginary parts"
    if leaf.dtype.kind not in "fiub":
        return "ragged rows, or no numbers. Encode or pad them to one shape first"
    if isinstance(leaf, np.ma.MaskedArray) and np.ma.getmaskarray(leaf).any():
        return "and masked entries, whose values mean nothing. Fill or drop them first"
    return ""


def _of_tensor(leaf: Tensor) -> str:
    """Return why a tensor cannot be used and what to do, or nothing."""
    if leaf.is_complex():
        return "complex numbers. Split them by torch.view_as_real"
    if leaf.is_nested or leaf.layout != torch.strided:
        return f"stored as {leaf.layout}, not as one dense block. Call to_dense() or pad it first"
    if leaf.is_quantized:
        return "quantised numbers. Call dequantize() first"
    return "on the meta device, without values. Load them first" if type(leaf) is Tensor and leaf.is_meta else ""


def sample_shapes(X: Batch) -> Any:
    """Return shape and type of one sample, in the nesting of ``X``, as plain JSON values."""
    return pytree.tree_map(lambda leaf: {"shape": list(leaf.shape[1:]), "dtype": str(leaf.dtype)}, X)


def evenly_spaced(n: int, size: int) -> Tensor:
    """Return at most ``size`` indices spread over ``range(n)``, first and last among them."""
    return torch.linspace(0, n - 1, min(n, size), dtype=torch.float64).round().long()
