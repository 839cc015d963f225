"""A folder of images as a map-style data set of tensors ``(c, size, size)`` in [0, 1], without labels.

Images are decoded by Pillow, in a few formats only, told by content: its others run helper programs or were never meant
for files of strangers. Every image is decoded once when the folder is opened, so that broken ones are known, all of
them, before hours of work and not in the middle.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from krepes._checks import require_range
from krepes.data.decoding import FORMATS, MODES, Part, UnusableImageError, pixels
from krepes.data.files import foreign, named
from krepes.data.text import printable
from krepes.data.workers import Workers, default_workers
from krepes.errors import InvalidInputError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SHOWN = 20

OnError = Literal["raise", "skip"]


def decode(file: str | Path | Part | IO[bytes], *, size: int, channels: int) -> Tensor:
    """Return one image, its middle square scaled to ``size``.

    Args:
        file: A path, a part of a file, or an open file; of an animation the first frame is taken.
        size: Height and width of the result.
        channels: 1 for grey, 3 for colour; an image of the other sort is converted.

    Returns:
        ``(c, size, size)``, uint8.

    Raises:
        InvalidInputError: If it is no whole image of a known format, or has more than 100 million pixels.
    """
    name = named(file) if isinstance(file, (str, Path)) else "the image"
    cannot = foreign(
        f"{name} cannot be decoded", f"It must be a whole {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file."
    )
    with cannot:
        try:
            found = pixels(io.BytesIO(file.read()) if isinstance(file, Part) else file, size, channels)
        except UnusableImageError as error:
            raise InvalidInputError(f"{name} {error}") from error
    return as_tensor(found)


def as_tensor(found: np.ndarray[Any, Any]) -> Tensor:
    """Return pixels ``(size, size, c)`` as ``(c, size, size)``."""
    return torch.from_numpy(found.copy() if not found.flags.writeable else found).permute(2, 0, 1).contiguous()


@dataclass(frozen=True, eq=False)
class ImageFolder(Dataset[Tensor]):
    """The images of a folder, by index; a sample is the image alone.

    Attributes:
        root: The folder.
        ids: Paths of the images below it, with forward slashes, in alphabetical order.
        size: Height and width that images are scaled to.
        channels: 1 or 3.
        skipped: What was wrong with each broken image that was left out, by path.
        workers: Processes that decode several images at a time, or ``None`` to decode them here.
    """

    root: Path
    ids: tuple[str, ...]
    size: int
    channels: int
    skipped: Mapping[str, str]
    workers: Workers | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, index: int) -> Path | Part:
        """Return where an image is."""
        return self.root / self.ids[index]

    def content(self, index: int) -> bytes:
        """Return the bytes of an image as they lie on disk."""
        there = self.place(index)
        return there.read() if isinstance(there, Part) else there.read_bytes()

    def __getitem__(self, index: int) -> Tensor:
        return decode(self.place(index), size=self.size, channels=self.channels) / 255.0

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        """Return several images, decoded side by side where there are processes for it."""
        if self.workers is None or len(indices) < 2:
            return [self[i] for i in indices]
        found = self.workers.decode([self.place(i) for i in indices], self.size, self.channels)
        return [self[i] if piece is None else as_tensor(piece) / 255.0 for i, piece in zip(indices, found, strict=True)]

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each image's sub-folder, the empty text for an image outside of one; for evaluation only."""
        return tuple(name.split("/")[0] if "/" in name else "" for name in self.ids)

    def stack(self) -> Tensor:
        """Return all images, ``(n, c, size, size)``, float32, for folders that fit into memory."""
        return torch.stack([self[i] for i in range(len(self))])


def image_folder(
    path: str | Path, *, size: int, channels: int = 3, on_error: OnError = "raise", workers: int | None = 0
) -> ImageFolder:
    """Open a folder of images.

    Args:
        path: The folder; its sub-folders are searched too, hidden files are not taken.
        size: Height and width to scale to: the shorter side is scaled, the middle of the longer kept.
        channels: 1 for grey, 3 for colour.
        on_error: ``"raise"`` an error that lists all broken images, or ``"skip"`` them with a warning.
        workers: Processes that decode, 0 to decode here, ``None`` for what suits the machine and the number of images.

    Returns:
        The images, as a map-style data set. A folder that is absent, holds no image, or holds broken ones that
        must not be skipped is refused.
    """
    require_options(size, channels, on_error)
    root, found = Path(path), _images_below(Path(path))
    pool = make_workers(workers, len(found))
    broken = _broken(root, found, size, channels, pool)
    return ImageFolder(root, usable_of(found, broken, on_error), size, channels, broken, pool)


def require_options(size: int, channels: int, on_error: str) -> None:
    """Refuse options that no image can have."""
    require_range(size, "size", low=1)
    if channels not in MODES or on_error not in {"raise", "skip"}:
        raise InvalidInputError(
            f"channels={channels}, on_error={on_error!r}: channels must be 1 (grey) or 3 (colour), on_error 'raise' or "
            f"'skip'."
        )


def make_workers(workers: int | None, images: int) -> Workers | None:
    """Return processes that decode: as many as told, by default what suits a number of images, or none."""
    number = default_workers(images) if workers is None else workers
    require_range(number, "workers", low=0)
    return Workers(number) if number else None


def usable_of(found: Sequence[str], broken: Mapping[str, str], on_error: OnError, where: str = "") -> tuple[str, ...]:
    """Return the images that can be decoded; refuse the others, or say that they are skipped.

    Args:
        found: Names of all images.
        broken: What is wrong with some of them.
        on_error: ``"raise"`` or ``"skip"``.
        where: What stands before the message, such as the file that holds them.

    Returns:
        The names of the rest, at least one.

    Raises:
        InvalidInputError: If some are broken and must not be skipped, or all are.
    """
    usable = tuple(name for name in found if name not in broken)
    if broken and (on_error == "raise" or not usable):
        said = f"{where}{_listing(broken, len(found))}"
        raise InvalidInputError(f"{said}. Replace or remove them, or pass on_error='skip'.")
    if broken:
        warnings.warn(f"{where}{_listing(broken, len(found))}. They were skipped.", stacklevel=3)
    return usable


def _broken(root: Path, names: list[str], size: int, channels: int, pool: Workers | None) -> dict[str, str]:
    """Return what is wrong with each image that cannot be decoded; every one is tried."""
    doubtful = names
    if pool is not None:
        regular = [name for name in names if (root / name).is_file() and _is_text(name)]
        fine = pool.decode([root / name for name in regular], size, channels)
        whole = {name for name, found in zip(regular, fine, strict=True) if found is not None}
        doubtful = [name for name in names if name not in whole]
    return {name: problem for name in doubtful if (problem := _problem(root / name, size, channels))}


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
