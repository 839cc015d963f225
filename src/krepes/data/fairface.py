"""FairFace: 86,744 and 10,954 faces with age, gender and race, balanced over seven races (Karkkainen and Joo)."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pandas as pd
import torch
from torch import Tensor

from krepes.data.files import foreign
from krepes.data.images import decode
from krepes.data.local import NamedImages, data_root, locate, read_verified, require_split
from krepes.errors import InvalidInputError

FOLDERS = ("fairface", "FairFace", ".")
SHA256 = {
    "fairface32_train.tar.xz": "78cd2632fddcfe17a7de77156311e3277e62ce0445b88ca151e632ee6afe9cba",
    "fairface32_val.tar.xz": "139a063819d61a2ae27bd8071e6b1ebc82cfe82c91dbb6b4d6f0fbc255b827be",
    "fairface_label_train.csv": "90624451f2214ae1aa84021ae51c19ce45a375bd0bff901b935feadc59514795",
    "fairface_label_val.csv": "19906f6917373dc19385e23ff0bacb75767fd0f99569ae6201d268af33d4c96b",
}


def load(
    data_dir: str | Path | None = None,
    split: str = "train",
    *,
    size: int = 32,
    channels: int = 1,
    verify: bool = True,
) -> NamedImages:
    """Read FairFace from its folders ``train/`` and ``val/`` or from archives of small grey images.

    Args:
        data_dir: The data folder; by default the one that KREPES_DATA names. It, or ``fairface/`` in it, holds
            ``fairface_label_train.csv`` and ``fairface_label_val.csv``, and beside them the images that their column
            ``file`` names, loose or in ``fairface32_train.tar.xz`` and ``fairface32_val.tar.xz``.
        split: ``"train"`` or ``"val"``.
        size: Height and width to scale to; the archives have 32.
        channels: 1 for grey, as the archives are, 3 for colour.
        verify: Check the sha256 of the label file and the archive; loose images have no published sum.

    Returns:
        The faces, ``(n, c, size, size)``, race as the label, and age, gender, race and service_test as attributes.
    """
    require_split(split, ("train", "val"), "fairface")
    root, name = data_root(data_dir), f"fairface_label_{split}.csv"
    path = locate(root, [f"{folder}/{name}" for folder in FOLDERS], f"{name} of FairFace")
    content = io.BytesIO(read_verified(path, SHA256[name] if verify else None))
    with foreign(f"{path} is not FairFace's table of labels", "Download it again."):
        table = pd.read_csv(content)
        files, race = tuple(table.pop("file")), table["race"].to_numpy(str)
    pixels = _decoded(_opened(path.parent, split, files, verify), files, size, channels)
    return NamedImages(f"fairface/{split}", pixels, race, files, table)


def _opened(folder: Path, split: str, files: tuple[str, ...], verify: bool) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each image, in the order of the folder or archive."""
    archive = f"fairface32_{split}.tar.xz"
    path = locate(folder, (split, archive), f"the folder {split} of FairFace's images")
    if path.is_dir():
        for file in files:
            yield file, io.BytesIO((folder / file).read_bytes())
        return
    content = io.BytesIO(read_verified(path, SHA256[archive] if verify else None))
    with tarfile.open(fileobj=content, mode="r:xz") as members:
        for member in members:
            stream = members.extractfile(member)
            if stream is not None:
                yield member.name, stream


def _decoded(images: Iterator[tuple[str, IO[bytes]]], files: tuple[str, ...], size: int, channels: int) -> Tensor:
    """Return the images ``(n, c, size, size)`` in the order of ``files``."""
    place = {file: i for i, file in enumerate(files)}
    pixels = torch.zeros(len(files), channels, size, size, dtype=torch.uint8)
    with foreign("fairface cannot be read", "Download it again, whole."):
        for file, stream in images:
            if file in place:
                pixels[place.pop(file)] = decode(stream, size=size, channels=channels)
    if place:
        raise InvalidInputError(f"fairface lacks {len(place)} of {len(files)} images, the first {next(iter(place))}.")
    return pixels
