"""MNIST: 60,000 and 10,000 handwritten digits, 28x28 grey (LeCun, Cortes, Burges)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from krepes.data.local import NamedImages, data_root, locate, read_verified, require_split
from krepes.errors import InvalidInputError

PREFIX = {"train": "train", "test": "t10k"}
FOLDERS = ("mnist", "MNIST/raw", ".")
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
UINT8 = 8


def load(data_dir: str | Path | None = None, split: str = "train", *, verify: bool = True) -> NamedImages:
    """Read MNIST from its idx files, packed or not, in ``mnist/``, torchvision's ``MNIST/raw/`` or the folder itself.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names.
        split: ``"train"`` or ``"test"``.
        verify: Check the sha256 of the unpacked files.

    Returns:
        The digits, ``(n, 1, 28, 28)``.
    """
    require_split(split, tuple(PREFIX), "mnist")
    root = data_root(data_dir)
    images = _idx(root, f"{PREFIX[split]}-images-idx3-ubyte", verify)
    labels = _idx(root, f"{PREFIX[split]}-labels-idx1-ubyte", verify)
    pixels = torch.from_numpy(images)[:, None]
    ids = tuple(f"mnist/{split}/{i}" for i in range(len(pixels)))
    return NamedImages(f"mnist/{split}", pixels, labels.astype(str), ids)


def _idx(root: Path, name: str, verify: bool) -> np.ndarray:
    """Return the array of an idx file: two zero bytes, type, number of axes, their lengths (big-endian int32), data."""
    candidates = [f"{folder}/{name}{suffix}" for folder in FOLDERS for suffix in (".gz", "")]
    path = locate(root, candidates, f"{name}.gz of MNIST")
    content = read_verified(path, SHA256[name] if verify else None)
    axes = content[3] if len(content) > 3 else 0
    shape = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    if content[:3] != bytes([0, 0, UINT8]) or len(content) != 4 + 4 * axes + math.prod(shape):
        raise InvalidInputError(
            f"{path} is no idx file of bytes: its header says {shape}, it has {len(content)} bytes."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
