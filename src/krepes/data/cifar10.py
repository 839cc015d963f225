"""CIFAR-10: 50,000 and 10,000 pictures of ten classes, 32x32 in colour (Krizhevsky 2009).

The "python version" is a set of pickles, and nothing from outside is ever unpickled: take the "binary version".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from krepes.data.files import foreign
from krepes.data.local import NamedImages, data_root, find, locate, require_split, require_sum
from krepes.errors import InvalidInputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
FOLDERS = ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", ".")
# Of the decoded pictures of a batch, (10000, 32, 32, 3), and of the labels of a part, a byte each.
SHA256 = {
    "data_batch_1": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
    "data_batch_2": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
    "data_batch_3": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
    "data_batch_4": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
    "data_batch_5": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
    "test_batch": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    "train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
    "test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
}
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE


def load(data_dir: str | Path | None = None, split: str = "train", *, verify: bool = True) -> NamedImages:
    """Read CIFAR-10 from its binary version or from lossless mosaics.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names. It holds ``cifar-10-batches-bin/`` with
            ``data_batch_1.bin`` and so on, or ``cifar10/`` with ``data_batch_1.webp`` and so on (tiles of 32x32 in
            reading order) and ``labels.npz`` (``train``, ``test``).
        split: ``"train"`` or ``"test"``.
        verify: Check the sha256 of the decoded pictures and of the labels, the same for both layouts.

    Returns:
        The pictures, ``(n, 3, 32, 32)``.

    Raises:
        InvalidInputError: If there are not as many labels as pictures.
    """
    require_split(split, tuple(BATCHES), "cifar10")
    root = data_root(data_dir)
    mosaic = find(root, [f"{folder}/{BATCHES[split][0]}.webp" for folder in FOLDERS])
    pictures, labels = _mosaics(mosaic.parent, split) if mosaic else _records(root, split)
    if verify:
        for name, batch in pictures.items():
            require_sum(batch.tobytes(), SHA256[name], f"the decoded pictures of {name}")
        require_sum(labels.tobytes(), SHA256[split], f"the labels of cifar10/{split}")
    pixels = torch.from_numpy(np.concatenate(list(pictures.values()))).permute(0, 3, 1, 2).contiguous()
    if len(labels) != len(pixels) or not np.isin(labels, range(len(CLASSES))).all():
        raise InvalidInputError(
            f"cifar10/{split} has {len(pixels)} pictures but {len(labels)} labels, or labels beyond 0 to 9. Download "
            f"it again."
        )
    ids = tuple(f"cifar10/{split}/{i}" for i in range(len(labels)))
    return NamedImages(f"cifar10/{split}", pixels, np.array(CLASSES)[labels], ids)


def _mosaics(folder: Path, split: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return pictures ``(n, 32, 32, 3)`` by batch, cut from the mosaics, and labels ``(n,)``."""
    pictures = {}
    for name in BATCHES[split]:
        path = folder / f"{name}.webp"
        with foreign(f"{path} cannot be decoded", "Download it again."), Image.open(path, formats=["WEBP"]) as image:
            mosaic = np.array(image.convert("RGB"))
        rows, columns = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
        tiles = mosaic.reshape(rows, SIDE, columns, SIDE, 3).transpose(0, 2, 1, 3, 4)
        pictures[name] = np.ascontiguousarray(tiles).reshape(-1, SIDE, SIDE, 3)
    with foreign(f"{folder / 'labels.npz'} cannot be read", "Download it again."):
        with np.load(folder / "labels.npz", allow_pickle=False) as stored:
            return pictures, stored[split]


def _records(root: Path, split: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return pictures ``(n, 32, 32, 3)`` by batch and labels ``(n,)``: a record is the label, then three planes."""
    pictures, labels = {}, []
    for name in BATCHES[split]:
        candidates = [f"{folder}/{name}.bin" for folder in FOLDERS]
        path = locate(root, candidates, f"{name}.bin of CIFAR-10's binary version (the pickled one is not read)")
        content = np.fromfile(path, dtype=np.uint8)
        if len(content) % RECORD:
            raise InvalidInputError(f"{path} is cut off: its {len(content)} bytes are no multiple of {RECORD}.")
        records = content.reshape(-1, RECORD)
        pictures[name] = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
        labels.append(records[:, 0])
    return pictures, np.concatenate(labels)
