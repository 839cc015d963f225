"""Images in tar files, as WebDataset keeps them: ``key.jpg``, its label in ``key.cls``, ``key.json`` or ``key.txt``.

Nothing is unpacked to disk. The headers are read once, image by image is then read from its place in the file. A name
inside is only a name, but one that leads elsewhere, a link, a member that claims more bytes than the file has and two
pictures under one key are signs of a file that is not what it seems, and are refused.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from krepes.data.decoding import Part
from krepes.data.files import foreign, named, require_file
from krepes.data.images import (
    SUFFIXES,
    ImageFolder,
    OnError,
    decode,
    make_workers,
    require_options,
    usable_of,
)
from krepes.data.text import printable
from krepes.errors import InvalidInputError

LABELS = ("cls", "json", "txt")
"""Endings of a label, the first that a key has counts."""
LONGEST_LABEL = 2**20
LARGEST_PICTURE = 2**28
ADVICE = "Write the archive again, of plain files: tar --format=ustar -cf images.tar -C folder ."


@dataclass(frozen=True, eq=False)
class TarImages(ImageFolder):
    """The images of tar files, by index; a sample is the image alone.

    Attributes:
        files: The tar files.
        spans: File, offset and length of each image, ``(n, 3)``.
        classes: Label of each image, for evaluation only.
    """

    files: tuple[Path, ...] = ()
    spans: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64), repr=False)
    classes: tuple[str, ...] = field(default=(), repr=False)

    def place(self, index: int) -> Part:
        """Return where an image is."""
        file, offset, length = self.spans[index].tolist()
        return Part(str(self.files[file]), offset, length)

    @property
    def labels(self) -> tuple[str, ...]:
        """What stands beside each image, else the name of its folder, else the empty text."""
        return self.classes


def tar_files(path: Path) -> list[Path]:
    """Return the tar files that a path means: itself, or those directly in a folder, by name."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".tar" else []
    return sorted(file for file in path.glob("*.tar") if file.is_file() and not file.name.startswith("."))


def tar_images(
    path: str | Path, *, size: int, channels: int = 3, on_error: OnError = "raise", workers: int | None = 0
) -> TarImages:
    """Open a tar file of images, or a folder of such files.

    Args:
        path: A ``.tar`` file that is not packed, or the folder of several.
        size: Height and width to scale to: the shorter side is scaled, the middle of the longer kept.
        channels: 1 for grey, 3 for colour.
        on_error: ``"raise"`` an error that lists all broken images, or ``"skip"`` them with a warning.
        workers: Processes that decode, 0 to decode here, ``None`` for what suits the machine and the number of images.

    Returns:
        The images, as a map-style data set. Where there are several files, ids start with the name of theirs.

    Raises:
        InvalidInputError: If there is no such file, it is damaged or not what it seems, or holds no image or broken
            ones that must not be skipped.
    """
    require_options(size, channels, on_error)
    files = tar_files(Path(path))
    if not files:
        raise InvalidInputError(f"{named(path)} is no .tar file, and no folder that holds one.")
    found: dict[str, tuple[int, Part, str]] = {}
    for number, file in enumerate(files):
        for name, part, label in _pictures(require_file(file, "a tar file of images")):
            found[name if len(files) == 1 else f"{file.name}/{name}"] = (number, part, label)
    if not found:
        raise InvalidInputError(f"{named(path)} holds no image. Files that end in {', '.join(SUFFIXES)} are taken.")
    pool = make_workers(workers, len(found))
    fine = [None] * len(found) if pool is None else pool.decode([part for _, part, _ in found.values()], size, channels)
    doubtful = [name for name, piece in zip(found, fine, strict=True) if piece is None]
    broken = {name: problem for name in doubtful if (problem := _problem(found[name][1], size, channels))}
    usable = usable_of(list(found), broken, on_error, f"{named(path)}: ")
    spans = np.array([(found[name][0], *found[name][1][1:]) for name in usable], dtype=np.int64)
    labels = tuple(found[name][2] for name in usable)
    return TarImages(Path(path), usable, size, channels, broken, pool, tuple(files), spans, labels)


def _pictures(file: Path) -> Iterator[tuple[str, Part, str]]:
    """Yield name, place and label of every picture of a tar file, in its order."""
    pictures: dict[str, tuple[str, Part]] = {}
    labels: dict[str, dict[str, Part]] = {}
    for member in _members(file):
        folder, _, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        key, ending = f"{folder}/{stem}", ending.lower()
        part = Part(str(file), member.offset_data, member.size)
        if f".{ending.rpartition('.')[2]}" in SUFFIXES:
            if key in pictures:
                raise InvalidInputError(
                    f"{named(file)} holds two pictures of one key, {printable(pictures[key][0])} and "
                    f"{printable(member.name)}. Each key must have one: rename or remove the other."
                )
            _require_size(file, member, LARGEST_PICTURE)
            pictures[key] = (member.name, part)
        elif ending in LABELS:
            _require_size(file, member, LONGEST_LABEL)
            labels.setdefault(key, {})[ending] = part
    for key, (name, part) in pictures.items():
        yield name, part, _label(file, name, labels.get(key, {}))


def _members(file: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the plain files of an archive after checks of their names, kinds and sizes; folders are passed over."""
    held = file.stat().st_size
    with foreign(f"{named(file)} cannot be read as a tar file", ADVICE), tarfile.open(file, "r:") as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # it would keep all of them
            if member.isdir() or any(
                part.startswith(".") and part not in {".", ".."} for part in member.name.split("/")
            ):
                continue
            member.name = member.name.removeprefix("./")
            _require_plain(file, member, held)
            yield member


def _require_plain(file: Path, member: tarfile.TarInfo, held: int) -> None:
    """Refuse a member that is no plain file of the archive."""
    name, said = printable(member.name), ""
    if member.name.startswith("/") or ".." in member.name.split("/"):
        said = "a name that leads out of the archive"
    elif not member.isreg() or member.issparse():
        said = "a link, a device or a file with holes, not a plain file"
    elif member.size < 0 or member.offset_data + member.size > held:
        said = (
            f"said to have {member.size:,} bytes, more than the {held:,} of the archive leave: it lies, or is cut off"
        )
    if said:
        raise InvalidInputError(f"{named(file)} holds {name}: {said}. {ADVICE}")


def _require_size(file: Path, member: tarfile.TarInfo, most: int) -> None:
    if member.size > most:
        raise InvalidInputError(
            f"{named(file)} holds {printable(member.name)} of {member.size:,} bytes, at most {most:,} are read. Is it "
            f"what its name says? Make it smaller, or remove it."
        )


def _label(file: Path, name: str, given: dict[str, Part]) -> str:
    """Return the label of a picture."""
    for ending in LABELS:
        if ending in given:
            with foreign(
                f"{named(file)}: the label {ending} of {printable(name)} cannot be read", "Write it as UTF-8."
            ):
                text = given[ending].read().decode("utf-8").strip()
                return _of_json(json.loads(text), file, name) if ending == "json" else text
    return name.split("/")[0] if "/" in name else ""


def _of_json(value: Any, file: Path, name: str) -> str:
    found = next((value[key] for key in ("label", "cls") if key in value), "") if isinstance(value, dict) else value
    if not isinstance(found, (str, int, float)):
        raise InvalidInputError(
            f"{named(file)}: the label of {printable(name)} in its .json is a {type(found).__name__}. It must be a "
            f"text or a number, alone or under 'label' or 'cls'."
        )
    return str(found)


def _problem(part: Part, size: int, channels: int) -> str | None:
    try:
        decode(part, size=size, channels=channels)
    except InvalidInputError as error:
        return re.sub(r" <_io[^>]*>", "", str(error)).removeprefix("the image").strip(" .")  # Pillow names the buffer
    return None
