"""Scenes: 1,200 photographs of 64x64, half of them of the sea; they stand in for CIFAR-100's class "sea"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from krepes.data.files import foreign
from krepes.data.local import NamedImages, data_root, locate, require_split, require_sum
from krepes.errors import InvalidInputError

SIDE = 64
SHA256 = "ebc3d8e1b7949a4e904c534ccedb565e54f9c82c114def350c4415a33a97acf9"


def load(data_dir: str | Path | None = None, split: str = "all", *, verify: bool = True) -> NamedImages:
    """Read the scenes from a lossless mosaic, halved to 32x32.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names. It holds ``scenes_sea/scenes64.webp``
            (tiles of 64x64 in reading order) and ``scenes_sea/labels.npz`` (``y``, ``classes``).
        split: ``"all"``, the only part.
        verify: Check the sha256 of the decoded pictures.

    Returns:
        The pictures, ``(1200, 3, 32, 32)``, each pixel the mean of four.

    Raises:
        InvalidInputError: If there are not as many labels as pictures.
    """
    require_split(split, ("all",), "scenes")
    path = locate(data_root(data_dir), ["scenes_sea/scenes64.webp"], "scenes64.webp of the sea scenes")
    with foreign(f"{path} cannot be decoded", "Download it again."), Image.open(path, formats=["WEBP"]) as image:
        mosaic = np.array(image.convert("RGB"))
    rows, columns = mosaic.shape[0] // SIDE, mosaic.shape[1] // SIDE
    tiles = mosaic.reshape(rows, SIDE, columns, SIDE, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
    if verify:
        require_sum(tiles.tobytes(), SHA256, "the decoded pictures of the sea scenes")
    file = path.parent / "labels.npz"
    with foreign(f"{file} cannot be read", "Download it again."), np.load(file, allow_pickle=False) as stored:
        labels = np.asarray(stored["classes"]).astype(str)[stored["y"]]
    if len(labels) != len(tiles):
        raise InvalidInputError(f"{path} has {len(tiles)} pictures, labels.npz {len(labels)} labels.")
    pixels = torch.nn.functional.avg_pool2d(torch.from_numpy(tiles).float(), 2).round().to(torch.uint8)
    return NamedImages("scenes", pixels, labels, tuple(f"scenes/{i}" for i in range(len(labels))))
