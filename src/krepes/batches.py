"""A batch is any nesting of dicts, tuples and lists of tensors that share their first axis.

Encoders take a tensor, a tuple or a dict; arrays may be memory-mapped and far larger than memory. These few functions
are all that the rest of the package needs to know about it. Any other mapping, such as a tokenizer's ``BatchEncoding``,
is taken as well and comes out as a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from krepes._checks import require_finite
from krepes.errors import InvalidInputError
from krepes.storage.mapped import read

MASK = "attention_mask"
"""Key of a batch of tokens that says which of them are no padding, ``(n, length)``."""
Batch = Any
"""A tensor or numpy array ``(n, ...)``, or a mapping, tuple or list of such with one common ``n``."""


def plain(X: Batch) -> Batch:
    """Return the batch with every mapping in it as a dict: torch's own tree functions know no other.

    Args:
        X: A batch.

    Returns:
        The same tensors and arrays, nested in dicts, tuples and lists.

    Example:
        >>> from collections import UserDict
        >>> plain(UserDict(a=1, b=(UserDict(c=2),)))
        {'a': 1, 'b': ({'c': 2},)}
    """
    if isinstance(X, Mapping):
        return {key: plain(value) for key, value in X.items()}
    if isinstance(X, (tuple, list)):
        parts = [plain(value) for value in X]
        return type(X)(*parts) if hasattr(X, "_fields") else type(X)(parts)  # a named tuple takes one argument each
    return X


def leaves(X: Batch) -> list[Any]:
    """Return all that is nested in a batch, in its order."""
    return pytree.tree_leaves(plain(X))


def count(X: Batch) -> int:
    """Return ``n``, the common length of the first axis.

    Args:
        X: A batch.

    Returns:
        The number of samples.

    Raises:
        InvalidInputError: If there is no array, an array has no first axis, or the lengths differ.

    Example:
        >>> count({"a": torch.zeros(3, 2), "b": torch.zeros(3)})
        3
    """
    arrays = [leaf for leaf in leaves(X) if isinstance(leaf, (Tensor, np.ndarray))]
    if not arrays or any(leaf.ndim == 0 for leaf in arrays):
        raise InvalidInputError(
            f"a batch needs at least one tensor or array with a sample axis, got {type(X).__name__}. "
            f"Pass a tensor (n, ...), or a dict or tuple of them."
        )
    lengths = {int(leaf.shape[0]) for leaf in arrays}
    if len(lengths) > 1:
        raise InvalidInputError(f"the arrays of a batch must share their first axis, got lengths {sorted(lengths)}.")
    return lengths.pop()


def sample_bytes(X: Batch) -> int:
    """Return the bytes of one sample of a batch with at least one.

    Example:
        >>> sample_bytes({"a": torch.zeros(3, 2), "b": torch.zeros(3)})
        12
    """
    return sum(leaf[:1].nbytes for leaf in pytree.tree_leaves(X) if isinstance(leaf, (Tensor, np.ndarray)))


def take(X: Batch, rows: slice | Tensor | np.ndarray) -> Batch:
    """Return the chosen samples, as tensors; of a mapped file only they are read, and none of its pages stays.

    Args:
        X: A batch of ``n`` samples.
        rows: A slice, or integer indices ``(b,)``.

    Returns:
        A batch of tensors, ``(b, ...)`` each.

    Example:
        >>> take(torch.arange(5), torch.tensor([3, 1]))
        tensor([3, 1])
    """

    def pick(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf[rows] if isinstance(rows, slice) else leaf[torch.as_tensor(rows, device=leaf.device)]
        if isinstance(leaf, np.ndarray):
            where = rows if isinstance(rows, slice) else np.asarray(rows)
            return torch.from_numpy(read(leaf, where, _native(leaf.dtype)))  # a copy: it may be mapped read-only
        return leaf

    return pytree.tree_map(pick, plain(X))


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that torch takes: this machine's byte order, and float64 for C's long double."""
    return np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize > 8 else dtype.newbyteorder("=")


def chunks(X: Batch, size: int) -> Iterator[tuple[slice, Batch]]:
    """Yield ``(slice, samples)`` pieces of at most ``size`` samples, in order.

    Args:
        X: A batch of ``n`` samples.
        size: Samples in a piece.

    Yields:
        Each slice of ``range(n)`` with its samples.
    """
    n = count(X)
    for start in range(0, n, size):
        piece = slice(start, min(start + size, n))
        yield piece, take(X, piece)


def map_tensors(function: Callable[[Tensor], Tensor], X: Batch) -> Batch:
    """Return ``X`` with ``function`` applied to each of its tensors."""
    return pytree.tree_map(lambda leaf: function(leaf) if isinstance(leaf, Tensor) else leaf, plain(X))


def concatenate(pieces: list[Batch]) -> Batch:
    """Return the batches joined along the sample axis; token batches are padded to the longest of them."""
    return pytree.tree_map(lambda *leaves: torch.cat(leaves), *padded([plain(piece) for piece in pieces]))


def padded(pieces: list[Batch]) -> list[Batch]:
    """Return batches of tokens, each ``(b, length)``, at one length: zeros behind, which the mask leaves out.

    Args:
        pieces: Batches; those that are no dict with an ``attention_mask`` come back as they are.

    Returns:
        The same samples.

    Example:
        >>> short = {"input_ids": torch.tensor([[5]]), "attention_mask": torch.tensor([[1]])}
        >>> long = {"input_ids": torch.tensor([[6, 7]]), "attention_mask": torch.tensor([[1, 1]])}
        >>> padded([short, long])[0]
        {'input_ids': tensor([[5, 0]]), 'attention_mask': tensor([[1, 0]])}
    """
    if not all(isinstance(piece, dict) and MASK in piece for piece in pieces):
        return pieces
    lengths = [piece[MASK].shape[1] for piece in pieces]
    longest = max(lengths, default=0)

    def pad(leaf: Any, length: int) -> Any:
        if not isinstance(leaf, Tensor) or leaf.ndim != 2 or leaf.shape[1] != length:
            return leaf
        return torch.nn.functional.pad(leaf, (0, longest - length))

    return [{key: pad(leaf, n) for key, leaf in piece.items()} for piece, n in zip(pieces, lengths, strict=True)]


def trimmed(X: Batch) -> Batch:
    """Return a batch of tokens without the columns that are padding in all its samples; any other as it is."""
    if not isinstance(X, dict) or not isinstance(X.get(MASK), Tensor) or X[MASK].ndim != 2:
        return X
    length = X[MASK].shape[1]
    used = X[MASK].any(0).nonzero()
    last = int(used[-1]) + 1 if len(used) else 1
    return {
        key: leaf[:, :last] if isinstance(leaf, Tensor) and leaf.shape[1:2] == (length,) else leaf
        for key, leaf in X.items()
    }


def require_usable(X: Batch, what: str) -> None:
    """Raise `InvalidInputError` if ``X`` is empty or holds NaN or infinity."""
    if count(X) == 0:
        raise InvalidInputError(f"{what} holds no sample. At least one is required.")
    for leaf in leaves(X):
        if isinstance(leaf, Tensor):
            require_finite(leaf, what)
