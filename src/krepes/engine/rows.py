r"""The one pass over the data: views in, kernel rows through, second moments out.

    views  ->  k̄_u = [k(x_u, z_1..z_q) ; 1]  ->  M_uv = E k̄_u k̄_vᵀ

The pass runs shard by shard. A shard is a fixed number of the stream's batches, its moments depend on nothing else, and
shards are merged in order: killed and resumed, a pass ends with the same bytes as an undisturbed one. Kept on disk is
the sum of the finished ones, one file whatever their number, with the fingerprint of each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from tqdm import tqdm

from krepes import batches
from krepes._checks import require_finite, require_range
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.engine.known import KnownRows, with_known
from krepes.engine.moments import Moments, MomentSum
from krepes.errors import InvalidInputError, RunFolderError
from krepes.kernels.base import Kernel
from krepes.storage.tensorfile import read_tensors, write_large

SUMS = "moments.safetensors"
Views = Iterable[tuple[Tensor, Batch]]
"""Batches ``(indices (b,), views (p, b, ...))``, as `krepes.views.ViewStream` yields: every leaf starts ``(p, b)``."""


@dataclass(frozen=True)
class Piece:
    """Rows of ``b`` samples: ``Kbar`` ``(p, b, q + 1)``, ``diagonal`` ``(p, b)``, flat inputs ``X`` ``(p, b, d)``."""

    Kbar: Tensor
    diagonal: Tensor | None
    X: Tensor | None


def collect_moments(
    views: Views,
    kernel: Kernel,
    prepared: Any,
    K: Tensor,
    *,
    known: KnownRows | None = None,
    inputs: bool = False,
    trace: bool = False,
    shards: str | Path | None = None,
    shard_batches: int = 64,
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
    progress: bool = True,
) -> Moments:
    """Return the moments of all samples in one pass.

    Args:
        views: The stream; its ``n``, if it has one, sets the end of the progress bar.
        kernel: The kernel.
        prepared: What ``kernel.prepare`` returned for the ``q`` landmark points.
        K: Gram matrix of the landmark points, ``(q, q)``.
        known: Rows that need not be computed.
        inputs: Also collect ``KX`` and ``XX``, for the kernel autoencoder.
        trace: Also collect ``E k(x, x)``, for kernel PCA.
        shards: A folder for the sum of finished shards, from which a later call resumes; ``None`` keeps nothing.
            A resumed pass draws the views of a finished shard again to recognise them, but evaluates no kernel.
        shard_batches: Batches of the stream in a shard.
        memory_budget: For rows and sums, bytes or text such as ``"2G"``; batches of the stream are cut to fit.
        progress: Show a bar with the rate and the time left.

    Returns:
        The moments, float64.

    Raises:
        InvalidInputError: If the stream is empty.
        RunFolderError: If the folder was filled from other data.
    """
    require_range(shard_batches, "shard_batches", low=1)
    key, budget = fingerprint_key(kernel, K, inputs=inputs, trace=trace), Budget.of(memory_budget)

    def moments(shard: Views) -> Moments:
        sums = MomentSum(K)
        for indices, X in shard:
            there = None if known is None else (indices, known)
            for piece in pieces(X, kernel, prepared, len(K), budget, known=there, inputs=inputs, trace=trace):
                sums.add(piece.Kbar, diagonal=piece.diagonal, X=piece.X)
        return sums.moments()

    file = None if shards is None else Path(shards) / SUMS
    total: Moments | None = None  # where there is a file, it is there alone while a shard is collected
    done = [] if file is None or not file.exists() else _load(file, K)[1]
    number = -1
    for number, shard in enumerate(in_shards(with_progress(views, "moments", progress), shard_batches)):
        watched = Watched(shard, key)
        if file is not None and number < len(done):
            watched.skip()
            watched.require(done[number], file)
            continue
        part = moments(shard if file is None else watched)
        total = _load(file, K)[0] if file is not None and done else total
        if total is None:
            total = part
        else:
            total += part
        del part
        if file is not None:
            done.append(watched.fingerprint)
            _save(file, total, done)
            total = None
    if number + 1 < len(done):
        raise RunFolderError(
            f"{file} holds a shard of another run: {len(done)} of them, and the stream of this call ends after "
            f"{number + 1}. Use another folder, or delete this one if its content is no longer wanted."
        )
    total = _load(file, K)[0] if file is not None and done else total
    if total is None:
        raise InvalidInputError("the stream of views is empty. At least one batch is required.")
    return total


def samples_within(budget: Budget, *, p: int, q: int, d: int = 0, sums: bool = True) -> int:
    """Return how many samples' rows fit a budget; without room for one it is refused.

    Args:
        budget: The memory budget.
        p: Views.
        q: Landmark points.
        d: Numbers of a flattened input, where the pass collects inputs.
        sums: Whether the moment sums must fit beside the rows.

    Returns:
        Samples, at least one.
    """
    # The most there is at once: all sums, those of a shard and their moments, and rows in three versions; float64.
    fixed = 3 * 8 * (p * p * (q + 1) ** 2 + (q + 1) * d) if sums else 0
    inputs = f" and d={d} inputs" if d else ""
    what = f"the rows of a sample against q={q} landmark points in p={p} views{inputs}"
    return budget.rows(3 * 8 * p * (q + 1 + d), what=what, fixed=fixed)


def pieces(
    X: Batch,
    kernel: Kernel,
    prepared: Any,
    q: int,
    budget: Budget,
    *,
    known: tuple[Tensor, KnownRows] | None = None,
    inputs: bool = False,
    trace: bool = False,
    sums: bool = True,
) -> Iterator[Piece]:
    """Yield the kernel rows of one batch ``(p, b, ...)`` of the stream, in pieces that fit the budget, on the CPU.

    Args:
        X: The batch.
        kernel: The kernel.
        prepared: The landmark points.
        q: Their number.
        budget: The memory budget.
        known: The samples' places in the stream ``(b,)``, and rows that need not be computed.
        inputs: Whether flat inputs are wanted.
        trace: Whether ``k(x, x)`` is wanted.
        sums: Whether moment sums must fit beside the rows.

    Yields:
        The rows.
    """
    p, b = batches.count(X), batches.count(_view(X, 0))
    size = samples_within(budget, p=p, q=q, d=input_size(_view(X, 0)) if inputs else 0, sums=sums)
    for start in range(0, b, size):
        # All views go through the network together, one after the other: wider products, and half as many.
        part = _joined(X, slice(start, start + size))
        if known is None:
            found = kernel.rows(part, prepared, diagonal=trace)
        else:
            found = with_known(part, known[0][start : start + size], known[1], kernel, prepared, trace)
        Kbar = torch.nn.functional.pad(found.K, (0, 1), value=1.0).unflatten(0, (p, -1)).cpu()
        require_finite(Kbar, "a batch of kernel rows")
        yield Piece(
            Kbar=Kbar,
            diagonal=None if found.diagonal is None or not trace else found.diagonal.unflatten(0, (p, -1)).cpu(),
            X=_flat(part).unflatten(0, (p, -1)).cpu() if inputs else None,
        )


def input_size(X: Batch) -> int:
    """Return ``d``, the numbers of one sample of ``X`` ``(b, ...)`` side by side."""
    return sum(leaf[0].numel() for leaf in pytree.tree_leaves(X) if isinstance(leaf, Tensor))


def with_progress(views: Views, what: str, show: bool) -> Views:
    """Yield the stream under a bar that counts samples, with the rate and the time left."""
    with tqdm(total=getattr(views, "n", None), unit=" samples", desc=what, disable=not show) as bar:
        for indices, X in views:
            yield indices, X
            bar.update(len(indices))


def in_shards(views: Views, size: int) -> Iterator[Views]:
    """Yield the stream in consecutive shards of ``size`` batches; each must be used up before the next is asked for."""
    stream = iter(views)
    for first in stream:
        yield chain([first], islice(stream, size - 1))


def fingerprint_key(kernel: Kernel, K: Tensor, **settings: Any) -> str:
    """Return what a shard depends on beside its views: the kernel, the landmarks' Gram matrix and the settings."""
    sha = hashlib.sha256(json.dumps([kernel.describe(), settings], sort_keys=True).encode())
    _digest(K, sha.update)
    return sha.hexdigest()


class Watched:
    """A shard's batches, whose views are hashed as they pass; `fingerprint` is final when they are used up."""

    def __init__(self, shard: Views, key: str) -> None:
        self._shard = shard
        self._sha = hashlib.sha256(key.encode())

    def __iter__(self) -> Iterator[tuple[Tensor, Batch]]:
        for indices, X in self._shard:
            for leaf in pytree.tree_leaves((indices, X)):
                _digest(leaf, self._sha.update)
            yield indices, X

    def skip(self) -> None:
        """Use the batches up for their fingerprint alone."""
        for _ in self:
            pass

    @property
    def fingerprint(self) -> str:
        """Hash of the key and of every view seen so far."""
        return self._sha.hexdigest()

    def require(self, fingerprint: str, path: Path) -> None:
        """Raise `RunFolderError` unless ``fingerprint``, read from ``path``, is that of this shard."""
        if fingerprint != self.fingerprint:
            raise RunFolderError(
                f"{path} holds a shard of another run: its fingerprint is {fingerprint[:12]}, the data, kernel, "
                f"landmarks and settings of this call give {self.fingerprint[:12]}. Use another folder, or delete "
                f"this one if its content is no longer wanted."
            )


def _save(path: Path, total: Moments, done: list[str]) -> None:
    tensors = {"M": total.M} if total.KX is None else {"M": total.M, "KX": total.KX}
    write_large(path, tensors, {"shards": done, "n": total.n, "trace": total.trace, "XX": total.XX})


def _load(path: Path, K: Tensor) -> tuple[Moments | None, list[str]]:
    """Return the moments of the shards that were finished before, and their fingerprints."""
    try:
        tensors, header = read_tensors(path)
        done = header.pop("shards")
        return Moments(M=tensors["M"], KX=tensors.get("KX"), K=K.to(torch.float64), **header), list(done)
    except (InvalidInputError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path} is not a readable shard of moments ({error}). Delete it and resume.") from error


def _view(X: Batch, u: int) -> Batch:
    return batches.map_tensors(lambda leaf: leaf[u], X)


def _joined(X: Batch, rows: slice) -> Batch:
    """Return all views ``(p b, ...)`` of some samples of ``X`` ``(p, n, ...)``, one view after the other."""
    return batches.map_tensors(lambda leaf: leaf[:, rows].flatten(0, 1), X)


def _flat(X: Batch) -> Tensor:
    """All leaves of a batch side by side, ``(b, d)``."""
    leaves = [leaf for leaf in pytree.tree_leaves(X) if isinstance(leaf, Tensor)]
    return torch.cat([leaf.flatten(1).to(torch.float64) for leaf in leaves], dim=1)


def _digest(leaf: Any, update: Callable[[Any], None]) -> None:
    if isinstance(leaf, Tensor):
        update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
        update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
