"""A folder of images as a map-style data set of tensors ``(c, size, size)`` in [0, 1], without labels.

Images are decoded by Pillow. Every image is decoded once when the folder is opened, so
that broken ones are known, all of them, before hours of work and not in the middle.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from krepes._checks import require_range
from krepes.errors import InvalidInputError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MODES = {1: "L", 3: "RGB"}
# What Pillow raises on truncated, garbled or absurdly large files of its many formats.
BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)

OnError = Literal["raise", "skip"]


def decode(file: str | Path | IO[bytes], *, size: int, channels: int) -> Tensor:
    """Return one image, its middle square scaled to ``size``.

    Args:
        file: A path, or an open file.
        size: Height and width of the result.
        channels: 1 for grey, 3 for colour; an image of the other sort is converted.

    Returns:
        ``(c, size, size)``, uint8.
    """
    with Image.open(file) as image:
        image.draft(MODES[channels], (size, size))  # lets a large JPEG be decoded at a fraction of its size
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I;16"):  # Pillow would clip 16 bits to 8, not scale them
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        square = ImageOps.fit(upright.convert(MODES[channels]), (size, size), Image.Resampling.BILINEAR)
        pixels = np.array(square).reshape(size, size, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[Tensor]):
    """The images of a folder, by index; a sample is the image alone.

    Attributes:
        root: The folder.
        ids: Paths of the images below it, with forward slashes, in alphabetical order.
        size: Height and width that images are scaled to.
        channels: 1 or 3.
        skipped: What was wrong with each broken image that was left out, by path.
    """

    root: Path
    ids: tuple[str, ...]
    size: int
    channels: int
    skipped: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Tensor:
        return decode(self.root / self.ids[index], size=self.size, channels=self.channels) / 255.0

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each image's sub-folder, the empty text for an image outside of one; for evaluation only."""
        return tuple(name.split("/")[0] if "/" in name else "" for name in self.ids)

    def stack(self) -> Tensor:
        """Return all images, ``(n, c, size, size)``, float32, for folders that fit into memory."""
        return torch.stack([self[i] for i in range(len(self))])


def image_folder(path: str | Path, *, size: int, channels: int = 3, on_error: OnError = "raise") -> ImageFolder:
    """Open a folder of images.

    Args:
        path: The folder; its sub-folders are searched too, hidden files are not taken.
        size: Height and width to scale to: the shorter side is scaled, the middle of the longer kept.
        channels: 1 for grey, 3 for colour.
        on_error: ``"raise"`` an error that lists all broken images, or ``"skip"`` them with a warning.

    Returns:
        The images, as a map-style data set.

    Raises:
        InvalidInputError: If the folder is absent, holds no image, or holds broken ones that must not be skipped.
    """
    require_range(size, "size", low=1)
    if channels not in MODES or on_error not in {"raise", "skip"}:
        raise InvalidInputError(
            f"channels={channels}, on_error={on_error!r}: channels must be 1 (grey) or 3 (colour), on_error 'raise' or "
            f"'skip'."
        )
    root, found = Path(path), _images_below(Path(path))
    broken = {name: problem for name in found if (problem := _problem(root / name, size, channels))}
    usable = tuple(name for name in found if name not in broken)
    if broken and (on_error == "raise" or not usable):
        raise InvalidInputError(f"{_listing(broken, len(found))}. Replace or remove them, or pass on_error='skip'.")
    if broken:
        warnings.warn(f"{_listing(broken, len(found))}. They were skipped.", stacklevel=2)
    return ImageFolder(root, usable, size, channels, broken)


def _images_below(root: Path) -> list[str]:
    if not root.is_dir():
        raise InvalidInputError(f"{root} is not a folder. Pass the folder that holds the images.")
    files = [file.relative_to(root) for file in root.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()]
    found = sorted(name.as_posix() for name in files if not any(part.startswith(".") for part in name.parts))
    if not found:
        raise InvalidInputError(f"{root} holds no image. Files that end in {', '.join(SUFFIXES)} are taken.")
    return found


def _problem(file: Path, size: int, channels: int) -> str | None:
    try:
        decode(file, size=size, channels=channels)
    except BROKEN as error:
        return str(error) or type(error).__name__
    return None


def _listing(broken: Mapping[str, str], total: int) -> str:
    shown = "; ".join(f"{name} ({problem})" for name, problem in list(broken.items())[:20])
    return f"{len(broken)} of {total} images cannot be decoded: {shown}{'; ...' if len(broken) > 20 else ''}"
