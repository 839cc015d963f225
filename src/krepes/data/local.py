"""Public data sets from a local folder: which file, is it the one, and what to do if it is not there.

Checksums are of a file's content after unpacking, so that one sum serves however a file was compressed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from krepes.data.files import foreign, require_file
from krepes.errors import InvalidInputError

VARIABLE = "KREPES_DATA"


@dataclass(frozen=True, eq=False)
class NamedTable:
    """A public table.

    Attributes:
        name: Of the data set and the part, such as ``adult/train``.
        frame: The attributes, ``n`` rows, without the label.
        labels: Names of the classes, ``(n,)``; for evaluation only.
    """

    name: str
    frame: pd.DataFrame
    labels: np.ndarray[Any, Any]

    @property
    def ids(self) -> tuple[str, ...]:
        """Name and row number in the part of each row, which never change."""
        return tuple(f"{self.name}/{row}" for row in self.frame.index)


@dataclass(frozen=True, eq=False)
class NamedImages:
    """Public images.

    Attributes:
        name: Of the data set and the part, such as ``mnist/train``.
        pixels: ``(n, c, height, width)``, uint8.
        labels: Names of the classes, ``(n,)``; for evaluation only.
        ids: A name for each image, which never changes.
        attributes: What else is known of each image, ``n`` rows, or an empty table; for evaluation only.
    """

    name: str
    pixels: Tensor
    labels: np.ndarray[Any, Any]
    ids: tuple[str, ...]
    attributes: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def X(self) -> Tensor:
        """The images in [0, 1], float32: four times the memory of ``pixels``, and a new tensor at each call."""
        return self.pixels / 255.0


def data_root(data_dir: str | Path | None) -> Path:
    """Return ``data_dir`` or, without one, the folder that the variable KREPES_DATA names.

    Args:
        data_dir: The folder that holds the data sets, or None.

    Returns:
        The folder.

    Raises:
        InvalidInputError: If neither is given, or there is no such folder.
    """
    chosen = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    if not chosen:
        raise InvalidInputError(
            f"no data folder was named. Pass --data-dir (in Python data_dir), or set the environment variable "
            f"{VARIABLE} to the folder that holds the data sets."
        )
    if not Path(chosen).is_dir():
        raise InvalidInputError(f"the data folder {chosen} does not exist. Correct data_dir or {VARIABLE}.")
    return Path(chosen)


def find(root: Path, candidates: Sequence[str]) -> Path | None:
    """Return the first of ``candidates``, paths below ``root``, that exists, or None."""
    return next((root / name for name in candidates if (root / name).exists()), None)


def locate(root: Path, candidates: Sequence[str], what: str) -> Path:
    """Return the first of ``candidates`` that exists, or say what to download and where to put it.

    Args:
        root: The data folder.
        candidates: Paths below it.
        what: The thing to download.

    Returns:
        The path.

    Raises:
        InvalidInputError: If none exists.
    """
    path = find(root, candidates)
    if path is None:
        places = "\n".join(f"  {root / candidate}" for candidate in candidates)
        raise InvalidInputError(f"{what} was not found. Download it and put it at one of these places:\n{places}")
    return path


def read_verified(path: Path, sha256: str | None) -> bytes:
    """Return a file's content, unpacked if its name ends in ``.gz``, once its checksum holds.

    Args:
        path: The file.
        sha256: What the content's checksum must be; None to take it as it is.

    Returns:
        The content.
    """
    content = require_file(path, "the published file").read_bytes()
    if path.suffix == ".gz":
        with foreign(f"{path} is no complete gzip file", "Download it again."):
            content = gzip.decompress(content)
    require_sum(content, sha256, str(path))
    return content


def require_sum(content: bytes, sha256: str | None, what: str) -> None:
    """Raise `InvalidInputError` unless ``content`` has this checksum; None means that any will do."""
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise InvalidInputError(
            f"{what} is not the published file: the sha256 of its {len(content):,} bytes is {found}, it must be "
            f"{sha256}. Download it again, or pass verify=False to use it as it is."
        )


def require_split(split: str, known: Sequence[str], name: str) -> None:
    """Raise `InvalidInputError` unless ``split`` is one of the parts that the data set has."""
    if split not in known:
        raise InvalidInputError(f"{name} has no part {split!r}. Its parts are {', '.join(known)}.")


def part_of(table: NamedTable, split: str) -> NamedTable:
    """Return all of a table without an official split, or a part: every fifth row, in a fixed random order, is test.

    Args:
        table: All rows.
        split: ``"all"``, ``"train"`` (80 %) or ``"test"`` (20 %).

    Returns:
        Its rows, in their order; their ids are still those of the whole table.
    """
    require_split(split, ("all", "train", "test"), table.name)
    if split == "all":
        return table
    is_test = np.random.default_rng(0).permutation(len(table.frame)) % 5 == 0
    rows = np.flatnonzero(is_test == (split == "test"))
    return NamedTable(table.name, table.frame.iloc[rows], table.labels[rows])
