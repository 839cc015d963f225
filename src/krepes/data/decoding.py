"""One image to pixels, and the loop of a process that does only this.

It needs Pillow and NumPy and nothing of this package, so that such a process is small and starts quickly: it is run as
a file. It reads one line of JSON for each image, answers with one line and the pixels, and ends with its input, so that
it cannot outlive whoever started it.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MODES = {1: "L", 3: "RGB"}
# Checked in the header, before anything is unpacked: a small file may claim, and take, gigabytes.
MOST_PIXELS = 100_000_000


class Part(NamedTuple):
    """Some bytes of a file that are a file themselves, such as a member of a tar archive.

    Attributes:
        file: The file.
        offset: Where they start.
        length: How many they are.
    """

    file: str
    offset: int
    length: int

    def read(self) -> bytes:
        """Return the bytes; fewer where the file ends before."""
        with open(self.file, "rb") as handle:
            handle.seek(self.offset)
            return handle.read(self.length)


class UnusableImageError(ValueError):
    """A whole image that is not decoded; the text goes on after its name."""


def pixels(file: str | Path | IO[bytes], size: int, channels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return one image, its middle square scaled to ``size``.

    Args:
        file: A path, or an open file; of an animation the first frame is taken.
        size: Height and width of the result.
        channels: 1 for grey, 3 for colour; an image of the other sort is converted.

    Returns:
        ``(size, size, c)``. Whatever Pillow raises comes out as it is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(file, formats=FORMATS) as image:
            _require_usable(image)
            image.draft(MODES[channels], (size, size))  # lets a large JPEG be decoded at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I;16"):  # Pillow would clip 16 bits to 8, not scale them
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            square = ImageOps.fit(upright.convert(MODES[channels]), (size, size), Image.Resampling.BILINEAR)
            return np.array(square).reshape(size, size, channels)


def _require_usable(image: Image.Image) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise UnusableImageError(
            f"has {width:,} x {height:,} pixels, more than the {MOST_PIXELS:,} that are decoded. Scale it down."
        )
    if image.mode in {"I", "F"}:
        raise UnusableImageError(
            "has pixels of 32 bits, whose black and white are not known. Save it with 8 or 16 bits."
        )


def serve(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests ``{"file", "size", "channels"}`` until their end: ``{"bytes": b}`` and ``b`` bytes, 0 if broken.

    A request for a part of a file also has its ``"offset"`` and ``"length"``.

    Args:
        asked: One request a line.
        answers: Where the answers go.
    """
    for line in asked:
        wanted = json.loads(line)
        try:
            file = wanted["file"]
            if "offset" in wanted:
                file = io.BytesIO(Part(file, wanted["offset"], wanted["length"]).read())
            found = pixels(file, wanted["size"], wanted["channels"]).tobytes()
        except Exception:  # whoever asked decodes it again and words the reason
            found = b""
        answers.write(json.dumps({"bytes": len(found)}).encode() + b"\n" + found)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
