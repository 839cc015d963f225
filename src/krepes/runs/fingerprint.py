"""What a run was fitted on, sample by sample: order, ids, values and columns, so that a later change is seen.

One 64-bit hash per sample and one digest per column tell which sample differs first and which columns changed, without
keeping the data. They notice edits; they are no protection against someone who forges a collision on purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.data.arrays import ArrayFile
from krepes.data.images import ImageFolder
from krepes.data.kept import one_by_one
from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError
from krepes.runs.columns import LABEL
from krepes.runs.dataset import Dataset
from krepes.storage.mapped import read, spans

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
ROWS = 65_536
"""Rows of a column that are hashed at a time."""
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Of a data set.

    Attributes:
        rows: One hash per sample, of its id and all its values, labels included, ``(n,)``.
        columns: One digest per column, ids under ``(ids)``, values that are no table under ``(samples)``.
    """

    rows: Hashes
    columns: dict[str, str]

    @classmethod
    def of(cls, dataset: Dataset) -> Fingerprint:
        """Read a data set once and return its fingerprint."""
        rows, columns = np.zeros(dataset.n, dtype=np.uint64), {}
        for name, hashes in _parts(dataset):
            rows = _mixed(rows, hashes)
            columns[name] = hashlib.sha256(hashes.tobytes()).hexdigest()[:32]
        return cls(rows, columns)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the hashes as a tensor, for a file."""
        return {"rows": torch.from_numpy(self.rows.view(np.int64).copy())}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], columns: dict[str, str]) -> Fingerprint:
        """Return the fingerprint that `to_tensors` wrote."""
        return cls(tensors["rows"].numpy().view(np.uint64), dict(columns))

    def difference(self, other: Fingerprint, ids: Any) -> str | None:
        """Return the first difference in words, or ``None``.

        Args:
            other: Of the data as they are now.
            ids: Their ids.

        Returns:
            What was added, removed, edited or moved, with the first sample that shows it.
        """
        added = sorted(set(other.columns) - set(self.columns))
        gone = sorted(set(self.columns) - set(other.columns))
        if added or gone:
            return "; ".join(
                [f"columns {listed} are new" for listed in [_some(added)] if added]
                + [f"columns {listed} are gone" for listed in [_some(gone)] if gone]
            )
        if len(self.rows) != len(other.rows):
            return f"there are {len(other.rows):,} samples, the run was fitted with {len(self.rows):,}"
        if np.array_equal(self.rows, other.rows):
            return None
        differ = np.flatnonzero(self.rows != other.rows)
        first = f"the first is sample {int(differ[0])}, id {ids[int(differ[0])]}"
        if np.array_equal(np.sort(self.rows), np.sort(other.rows)):
            return f"the same samples stand in another order: {len(differ):,} have moved, {first}"
        changed = [name for name in self.columns if self.columns[name] != other.columns[name]]
        return f"{len(differ):,} samples differ in {_some(changed)}; {first}"


def _parts(dataset: Dataset) -> Iterator[tuple[str, Hashes]]:
    """Yield the name and the hashes of each thing that is known of all samples, one after the other."""
    yield "(ids)", _joined(_of_values(_texts(dataset.ids, start)) for start in range(0, dataset.n, ROWS))
    if dataset.table is not None:
        for name, column in one_by_one(dataset.table):
            yield str(name), _joined(_of_values(column.iloc[i : i + ROWS]) for i in range(0, dataset.n, ROWS))
    if dataset.arrays is not None:
        yield "(samples)", _of_samples(dataset.arrays)
    if dataset.labels is not None:
        yield f"({LABEL})", _of_values(pd.Series(dataset.labels, dtype=object))


def _texts(ids: Any, start: int) -> pd.Series[Any]:
    return pd.Series([str(id) for id in ids[start : start + ROWS]], dtype=object)


def _joined(pieces: Iterator[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, dtype=np.uint64), *pieces])


def _of_values(column: pd.Series[Any]) -> Hashes:
    """Return one hash per value of a column; numbers by value, everything else by its text."""
    plain = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
    values = column if plain else column.astype(object).where(column.notna(), None).map(repr)
    hashes = pd.util.hash_pandas_object(values.reset_index(drop=True), index=False, categorize=True)
    return np.asarray(hashes, dtype=np.uint64)


def _of_samples(arrays: Any) -> Hashes:
    """Return one hash per sample of arrays, per text and its tokens, or per file of a folder of images."""
    hashes = [int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") for content in _bytes(arrays)]
    return np.asarray(hashes, dtype=np.uint64)


def _bytes(arrays: Any) -> Iterator[bytes]:
    if isinstance(arrays, ImageFolder):
        yield from (arrays.content(i) for i in range(len(arrays)))
        return
    if isinstance(arrays, TokenizedTexts):
        yield from (
            text.encode("utf-8", "surrogatepass") + arrays.ids(i).tobytes() for i, text in enumerate(arrays.texts)
        )
        return
    if not isinstance(arrays, (ArrayFile, Tensor, np.ndarray)):
        raise InvalidInputError(
            f"samples that are a {type(arrays).__name__} cannot be recognised: pass arrays or a folder."
        )
    plain = arrays.stored if isinstance(arrays, ArrayFile) else np.asarray(arrays)
    for part in spans(len(plain), plain[:1].nbytes):
        yield from (np.ascontiguousarray(sample).tobytes() for sample in read(plain, part))


def _mixed(rows: Hashes, hashes: Hashes) -> Hashes:
    """Return a hash of two, in which order matters (the constant is 2^64 over the golden ratio)."""
    with np.errstate(over="ignore"):
        mixed = rows ^ (hashes + np.uint64(0x9E3779B97F4A7C15) + (rows << np.uint64(6)) + (rows >> np.uint64(2)))
    return np.asarray(mixed, dtype=np.uint64)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
