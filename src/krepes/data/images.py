"""A folder of images as a map-style data set of tensors ``(c, size, size)`` in [0, 1], without labels.

Images are decoded by Pillow, in a few formats only, told by content: its others run helper programs or were never meant
for files of strangers. Every image is decoded once when the folder is opened, so that broken ones are known, all of
them, before hours of work and not in the middle.
"""

from __future__ import annotations

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
from krepes.data.files import foreign, named
from krepes.data.text import printable
from krepes.errors import InvalidInputError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MODES = {1: "L", 3: "RGB"}
# Checked in the header, before anything is unpacked: a small file may claim, and take, gigabytes.
MOST_PIXELS = 100_000_000

SHOWN = 20

OnError = Literal["raise", "skip"]


def decode(file: str | Path | IO[bytes], *, size: int, channels: int) -> Tensor:
    """Return one image, its middle square scaled to ``size``.

    Args:
        file: A path, or an open file; of an animation the first frame is taken.
        size: Height and width of the result.
        channels: 1 for grey, 3 for colour; an image of the other sort is converted.

    Returns:
        ``(c, size, size)``, uint8. What is no whole image of a known format, or of more than 100 million pixels, is an
        `InvalidInputError`.
    """
    name = named(file) if isinstance(file, (str, Path)) else "the image"
    cannot = foreign(
        f"{name} cannot be decoded", f"It must be a whole {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file."
    )
    with cannot, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(file, formats=FORMATS) as image:
            _require_usable(image, name)
            image.draft(MODES[channels], (size, size))  # lets a large JPEG be decoded at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I;16"):  # Pillow would clip 16 bits to 8, not scale them
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            square = ImageOps.fit(upright.convert(MODES[channels]), (size, size), Image.Resampling.BILINEAR)
            pixels = np.array(square).reshape(size, size, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _require_usable(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise InvalidInputError(
            f"{name} has {width:,} x {height:,} pixels, more than the {MOST_PIXELS:,} that are decoded. Scale it down."
        )
    if image.mode in {"I", "F"}:
        raise InvalidInputError(
            f"{name} has pixels of 32 bits, whose black and white are not known. Save it with 8 or 16 bits."
        )


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
    with foreign(f"{named(root)} cannot be opened", "Pass the folder that holds the images."):
        if not root.is_dir():
            raise InvalidInputError(f"{named(root)} is not a folder. Pass the folder that holds the images.")
    files = [
        file.relative_to(root) for file in root.rglob("*") if file.suffix.lower() in SUFFIXES and not file.is_dir()
    ]
    found = sorted(name.as_posix() for name in files if not any(part.startswith(".") for part in name.parts))
    if not found:
        raise InvalidInputError(f"{named(root)} holds no image. Files that end in {', '.join(SUFFIXES)} are taken.")
    return found


def _problem(file: Path, size: int, channels: int) -> str | None:
    if not file.is_file():
        return "no regular file: a broken link, pipe or device"
    try:
        str(file).encode()
        decode(file, size=size, channels=channels)
    except UnicodeEncodeError:
        return "its name is not UTF-8: rename it"
    except InvalidInputError as error:
        return str(error).removeprefix(named(file)).strip(" .")
    return None


def _listing(broken: Mapping[str, str], total: int) -> str:
    shown = "; ".join(f"{printable(name)}: {problem}" for name, problem in list(broken.items())[:SHOWN])
    more = f"; and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
    return f"{len(broken)} of {total} images cannot be decoded: {shown}{more}"
