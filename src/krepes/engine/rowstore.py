r"""Kernel rows on disk, for the objectives that need them again and again: written once, mapped and streamed after.

A store is a folder of ``rows-00000.npy``, ... of shape ``(n_shard, p, q)``, ``K.npy``, and ``store.json``, which lists
the finished shards with their fingerprints. The column of ones is added on reading.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.engine.known import KnownRows
from krepes.engine.rows import (
    Views,
    Watched,
    fingerprint_key,
    in_shards,
    pieces,
    with_progress,
)
from krepes.errors import InvalidInputError, RunFolderError
from krepes.kernels.base import Kernel
from krepes.storage.files import publish, publish_bytes
from krepes.storage.mapped import read

VERSION = 1


@dataclass(frozen=True)
class RowStore:
    """Rows of ``n`` samples in ``p`` views; satisfies `krepes.objectives.base.RowSource`.

    Attributes:
        path: The folder.
        K: Gram matrix of the landmark points, ``(q, q)``, float64.
        shards: The mapped arrays, ``(n_shard, p, q)`` each.
        budget: What objectives may keep of the rows in memory.
        temporary: The folder that is removed with the last use of these rows, or ``None`` if they stay.
    """

    path: Path
    K: Tensor
    shards: tuple[np.ndarray[Any, Any], ...]
    budget: Budget = DEFAULT_BUDGET
    temporary: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Path, *, memory_budget: MemoryBudget = DEFAULT_BUDGET) -> RowStore:
        """Open a finished store.

        Args:
            path: The folder that `store_rows` filled.
            memory_budget: What objectives may keep of the rows in memory.

        Returns:
            The store; rows stay on disk until they are asked for.

        Raises:
            RunFolderError: If the folder is no store, or its pass was not finished.
        """
        path = Path(path)
        manifest = _read_manifest(path)
        if not manifest["complete"]:
            raise RunFolderError(
                f"the pass that fills {path} stopped after {len(manifest['shards'])} shards. "
                f"Call store_rows again with the same arguments: it resumes there."
            )
        try:
            shards = tuple(
                np.load(_shard_path(path, number), mmap_mode="r") for number in range(len(manifest["shards"]))
            )
            K = torch.from_numpy(np.load(path / "K.npy"))
        except (OSError, EOFError, ValueError) as error:
            raise RunFolderError(f"the row store {path} is damaged: {error}. Delete it and store again.") from error
        return cls(path=path, K=K, shards=shards, budget=Budget.of(memory_budget))

    @property
    def n(self) -> int:
        """Number of samples."""
        return sum(len(shard) for shard in self.shards)

    @property
    def p(self) -> int:
        """Number of views."""
        return int(self.shards[0].shape[1])

    def batches(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield ``K̄``, ``(p, b, q + 1)``, float64: ``size`` samples per batch, fewer in the last, in stream order.

        Args:
            size: Samples in a batch; how the rows were cut into shards does not show.
            chosen: Numbers of the batches to read; by default all.

        Yields:
            The augmented rows.
        """
        require_range(size, "size", low=1)
        for number in range(-(-self.n // size)) if chosen is None else chosen:
            start = number * size
            rows = torch.from_numpy(self._read(start, start + size)).to(torch.float64)
            yield torch.nn.functional.pad(rows.transpose(0, 1), (0, 1), value=1.0)

    def _read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Return the rows ``start:stop`` as one array ``(b, p, q)``, whichever shards they lie in."""
        edges = np.cumsum([0, *(len(shard) for shard in self.shards)])
        found = [
            read(shard, slice(max(start - low, 0), stop - low))
            for shard, (low, high) in zip(self.shards, pairwise(edges.tolist()), strict=True)
            if low < stop and start < high
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)


def store_rows(
    views: Views,
    kernel: Kernel,
    prepared: Any,
    K: Tensor,
    path: str | Path,
    *,
    known: KnownRows | None = None,
    dtype: torch.dtype = torch.float32,
    shard_batches: int = 64,
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
    progress: bool = True,
) -> RowStore:
    """Write the kernel rows of all samples in one pass, resuming where an earlier call with this ``path`` stopped.

    Args:
        views: The stream; its ``n``, if it has one, sets the end of the progress bar.
        kernel: The kernel.
        prepared: What ``kernel.prepare`` returned for the ``q`` landmark points.
        K: Gram matrix of the landmark points, ``(q, q)``.
        path: The folder to fill; it must be new, or begun by the same data, kernel and settings.
        known: Rows that need not be computed.
        dtype: Type on disk, float32 or float64.
        shard_batches: Batches of the stream in a file.
        memory_budget: For the rows of a batch, bytes or text such as ``"2G"``; batches of the stream are cut to fit.
        progress: Show a bar with the rate and the time left.

    Returns:
        The finished store.

    Raises:
        InvalidInputError: If the stream is empty or ``dtype`` cannot be stored.
        RunFolderError: If the folder was filled from other data.
    """
    if dtype not in {torch.float32, torch.float64}:
        raise InvalidInputError(f"rows cannot be stored as {dtype}: pass torch.float32 or torch.float64.")
    require_range(shard_batches, "shard_batches", low=1)
    path = Path(path)
    key, budget = fingerprint_key(kernel, K, dtype=str(dtype)), Budget.of(memory_budget)
    done: list[str] = _read_manifest(path)["shards"] if (path / "store.json").exists() else []

    def rows(shard: Views) -> Iterator[np.ndarray[Any, Any]]:
        for indices, X in shard:
            there = None if known is None else (indices, known)
            for piece in pieces(X, kernel, prepared, len(K), budget, known=there, sums=False):
                yield piece.Kbar[..., :-1].transpose(0, 1).to("cpu", dtype).numpy()

    number = -1
    for number, shard in enumerate(in_shards(with_progress(views, "rows", progress), shard_batches)):
        watched, file = Watched(shard, key), _shard_path(path, number)
        if number < len(done):
            watched.skip()
            watched.require(done[number], file)
        else:
            publish(file, partial(_write_rows, rows=rows(watched)))
            done.append(watched.fingerprint)
            _write_manifest(path, done, complete=False)
    if number < 0:
        raise InvalidInputError("the stream of views is empty. At least one batch is required.")
    if number + 1 < len(done):
        raise RunFolderError(
            f"{path} holds {len(done)} shards, but the stream of this call ends after {number + 1}: it was filled from "
            f"more data. Use another folder, or delete this one if its content is no longer wanted."
        )
    publish(path / "K.npy", lambda temporary: _save_array(temporary, K))
    _write_manifest(path, done, complete=True)
    return RowStore.open(path, memory_budget=budget)


def join_stores(parts: Sequence[Path], path: Path) -> None:
    """Make one store of several finished ones over the same landmarks, their rows in the order of ``parts``.

    Args:
        parts: Folders that `store_rows` filled, on the same disk; they stay as they are.
        path: The folder of the whole.

    Raises:
        RunFolderError: If a part was not finished.
    """
    done: list[str] = []
    for part in parts:
        manifest = _read_manifest(part)
        if not manifest["complete"]:
            raise RunFolderError(f"the rows in {part} are not finished. Run all parts to their end first.")
        for number, fingerprint in enumerate(manifest["shards"]):
            _link(_shard_path(part, number), _shard_path(path, len(done)))
            done.append(fingerprint)
    _link(parts[0] / "K.npy", path / "K.npy")
    _write_manifest(path, done, complete=True)


def _link(old: Path, new: Path) -> None:
    """Let a file have a second name, which an interrupted call may have given it before."""
    new.unlink(missing_ok=True)
    new.hardlink_to(old)


def _write_rows(path: Path, rows: Iterable[np.ndarray[Any, Any]]) -> None:
    """Write arrays ``(b, p, q)`` one after another into one npy file, holding one of them at a time."""
    n = 0
    with path.open("wb") as handle:
        for piece in rows:
            header = {"descr": piece.dtype.str, "fortran_order": False, "shape": piece.shape}
            if n == 0:
                np.lib.format.write_array_header_1_0(handle, header)
            handle.write(np.ascontiguousarray(piece).data)
            n += len(piece)
        # numpy pads the header so that the first axis may grow: the true length fits into the same bytes.
        handle.seek(0)
        np.lib.format.write_array_header_1_0(handle, {**header, "shape": (n, *piece.shape[1:])})


def _shard_path(path: Path, number: int) -> Path:
    return path / f"rows-{number:05d}.npy"


def _save_array(path: Path, K: Tensor) -> None:
    with path.open("wb") as handle:
        np.save(handle, K.detach().to("cpu", torch.float64).numpy())


def _write_manifest(path: Path, shards: list[str], *, complete: bool) -> None:
    text = json.dumps({"version": VERSION, "complete": complete, "shards": shards}, indent=1)
    publish_bytes(path / "store.json", text.encode())


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((path / "store.json").read_text())
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} is not a row store: {error}. Pass a folder that store_rows filled.") from error
    if manifest.get("version") != VERSION:
        raise RunFolderError(
            f"{path} is a row store of version {manifest.get('version')}, this is {VERSION}. Store the rows again."
        )
    return manifest
