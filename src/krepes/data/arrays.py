"""An ``.npy`` file as samples: mapped, never loaded whole, and float32 by the time an encoder sees it.

    float16, float32, float64, longdouble     the values
    bool, int8 ... int64, uint8 ... uint64    the values
    uint8, uint16 of three or more axes       pixels: divided by 255 or 65535, so that they lie in [0, 1]
    complex, text, dates, records, objects    refused

Either byte order, C and Fortran order, versions 1 to 3 of the format. A batch reads the rows it needs, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krepes.data.files import foreign, named, require_file
from krepes.errors import InvalidInputError
from krepes.storage.mapped import read, spans

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 2**20
PIXELS = {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}
KINDS = {
    "c": "complex numbers: split them into real and imaginary parts",
    "S": "texts: encode them as numbers",
    "U": "texts: encode them as numbers",
    "T": "texts: encode them as numbers",
    "M": "dates: turn them into numbers, such as days",
    "m": "durations: turn them into numbers, such as days",
    "V": "records: save a table as CSV or Parquet",
    "O": "Python objects, which are never unpickled: convert them to an array of one number type",
}


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """Samples along the first axis of a mapped array.

    Attributes:
        path: The file.
        stored: The array as the file holds it, ``(n, ...)``, mapped and read-only.
        scale: What pixels are divided by; 1 for everything else.
    """

    path: Path
    stored: np.ndarray[Any, Any]
    scale: float

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.stored.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array, ``(n, ...)``."""
        return tuple(int(length) for length in self.stored.shape)

    @property
    def ndim(self) -> int:
        """Number of axes, that of samples included."""
        return self.stored.ndim

    def take(self, indices: Tensor) -> Tensor:
        """Read some samples.

        Args:
            indices: ``(b,)``.

        Returns:
            ``(b, ...)``, float32; a number beyond its range is refused.
        """
        wanted = indices.cpu().numpy()
        found = np.empty((len(wanted), *self.stored.shape[1:]), dtype=np.float32)
        for part in spans(len(wanted), self.stored[:1].nbytes):
            rows = read(self.stored, wanted[part])
            with np.errstate(over="ignore", invalid="ignore"):
                found[part] = rows
            self._require_range(rows, found[part], indices[part])
        return torch.from_numpy(found).div_(self.scale) if self.scale != 1.0 else torch.from_numpy(found)

    def _require_range(self, rows: np.ndarray[Any, Any], values: np.ndarray[Any, Any], indices: Tensor) -> None:
        """Refuse numbers that float32 does not hold."""
        if rows.dtype.kind not in "iuf" or rows.dtype.itemsize <= 4:
            return
        lost = np.isinf(values) & np.isfinite(rows)
        if lost.any():
            first = int(indices[int(np.argwhere(lost)[0, 0])])
            raise InvalidInputError(
                f"{named(self.path)}: sample {first} holds {rows[lost][0]}, beyond ±3.4e38, the range of the "
                f"float32 that encoders compute in ({int(lost.sum())} such numbers). Rescale the array."
            )


def open_array(path: str | Path) -> ArrayFile:
    """Map an ``.npy`` file; nothing but its header is read.

    Args:
        path: One array of numbers, ``(n, ...)``, as `numpy.save` writes it.

    Returns:
        Its samples; what a `krepes.ViewStream` takes.

    Raises:
        InvalidInputError: If it is no such file, is cut off, or holds anything but real numbers.
    """
    path = require_file(path, "an .npy file")
    _require_header(path)
    cannot = foreign(f"{named(path)} cannot be read as .npy", "Write it again with numpy.save(path, array).")
    with cannot, np.errstate(over="raise"):  # a forged shape may be larger than an int64 counts
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    _require_samples(path, stored)
    # A Fortran-ordered map keeps its shape: only the way to a row through the file is longer.
    held = stored.offset + stored.nbytes
    if path.stat().st_size != held:
        raise InvalidInputError(
            f"{named(path)} has {path.stat().st_size:,} bytes, its header speaks of {held:,}. It must hold one array "
            f"and nothing after it: write each array to a file of its own."
        )
    scale = PIXELS.get(stored.dtype.newbyteorder("="), 1.0) if stored.ndim >= 3 else 1.0
    return ArrayFile(path, stored, scale)


def _require_header(path: Path) -> None:
    """Refuse what is no ``.npy`` file, or has a header so long that reading it is the attack."""
    with foreign(f"{named(path)} cannot be opened", "Check the file and its permissions."), path.open("rb") as handle:
        head = handle.read(12)
    if head[:2] == b"PK":
        raise InvalidInputError(f"{named(path)} is a zip file, perhaps .npz: save its one array with numpy.save.")
    if head[:6] == MAGIC and len(head) < 12:
        raise InvalidInputError(f"{named(path)} is cut off after {len(head)} bytes. Copy it again, whole.")
    if head[:6] != MAGIC:
        raise InvalidInputError(
            f"{named(path)} is no .npy file: it starts with {head[:6]!r}, not {MAGIC!r}. Write it with numpy.save."
        )
    length = int.from_bytes(head[8:10] if head[6] == 1 else head[8:12], "little")
    if length > LONGEST_HEADER:
        raise InvalidInputError(
            f"{named(path)} has a header of {length:,} bytes. At most {LONGEST_HEADER:,} are read: write it again "
            f"with numpy.save."
        )


def _require_samples(path: Path, stored: np.ndarray[Any, Any]) -> None:
    if stored.dtype.names or stored.dtype.kind in KINDS:
        kind = KINDS["V"] if stored.dtype.names else KINDS[stored.dtype.kind]
        raise InvalidInputError(f"{named(path)} has dtype {str(stored.dtype)[:80]}: it holds {kind}.")
    if stored.ndim == 0 or stored.size == 0:
        raise InvalidInputError(
            f"{named(path)} has shape {stored.shape}. At least one sample along the first axis, of at least one "
            f"number, is required: shape (n, ...)."
        )
