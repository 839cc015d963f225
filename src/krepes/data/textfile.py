"""A text file of others as a stream of UTF-8: unpacked by content, decoded by its byte order mark, checked as it flows.

    gzip, bzip2, xz, zip of one file     told by their first bytes, whatever the name says
    UTF-8, UTF-16, UTF-32                told by the byte order mark; without one, UTF-8

A NUL byte in the text, a cut-off archive and one that unpacks to far more than a table would are errors.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from krepes.data.files import foreign, named
from krepes.errors import InvalidInputError

PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
# Longest first: the mark of UTF-32 starts with that of UTF-16.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# A table of text packs to a tenth; a file of nothing but one repeated line, to a thousandth or less.
MOST_UNPACKED = 200
ALWAYS_ALLOWED = 2**25
BINARY = {
    b"PAR1": "a Parquet file: name it .parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file: save the sheet as CSV UTF-8",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"%PDF": "a PDF",
    b"\x89HDF": "an HDF5 file: export the table as CSV or Parquet",
    b"ARROW1": "an Arrow file: save it as Parquet",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
}


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file, packed or not.

    Args:
        path: A regular file.

    Returns:
        Its text, line ends as they are. Reading it raises whatever the unpacking and decoding raise.

    Raises:
        InvalidInputError: If it is no text, by its first bytes.
    """
    with path.open("rb") as handle:
        head = handle.read(16)
    for mark, what in BINARY.items():
        if head.startswith(mark):
            raise InvalidInputError(f"{named(path)} is {what}. It must be text: CSV in UTF-8.")
    opener = next((opener for mark, opener in PACKED.items() if head.startswith(mark)), None)
    packed = opener is not None or head.startswith(b"PK\x03\x04")
    raw: IO[bytes]
    if opener is not None:
        raw = opener(path)
    elif packed:
        raw = _only_member(path)
    else:
        raw = path.open("rb")
    checked = io.BufferedReader(_Checked(raw, path, packed), buffer_size=2**18)
    start = checked.peek(4)
    encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    return io.TextIOWrapper(checked, encoding=encoding, newline="")


def _only_member(path: Path) -> IO[bytes]:
    with foreign(f"{named(path)} is damaged or cut off", "Copy or download it again, whole."):
        archive = zipfile.ZipFile(path)
        members = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(members) != 1:
        kind = "an Excel workbook: save the sheet as CSV UTF-8" if "xl/workbook.xml" in archive.namelist() else "a zip"
        raise InvalidInputError(
            f"{named(path)} is {kind}, of {len(members)} files. A packed table must be a single one."
        )
    with foreign(f"{named(path)} cannot be unpacked", "Unpack it by hand, and pass the text."):
        return archive.open(members[0])


class _Checked(io.RawIOBase):
    """Bytes as they come, with an end to those of an archive that never ends, and no NUL bytes in UTF-8."""

    def __init__(self, raw: IO[bytes], path: Path, packed: bool) -> None:
        self.raw, self.path = raw, path
        self.left = max(ALWAYS_ALLOWED, MOST_UNPACKED * path.stat().st_size) if packed else None
        self.started = self.wide = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with foreign(f"{named(self.path)} is damaged or cut off", "Copy or download it again, whole."):
            content = self.raw.read(len(buffer))
        if not self.started:
            self.started = True
            self.wide = (
                content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or content[:4] == codecs.BOM_UTF32_BE
            )
        if not self.wide and b"\0" in content:
            raise InvalidInputError(
                f"{named(self.path)} holds NUL bytes: it is binary, or UTF-16 without a byte order mark. Save it as "
                f"CSV in UTF-8."
            )
        if self.left is not None:
            self.left -= len(content)
            if self.left < 0:
                raise InvalidInputError(
                    f"{named(self.path)} unpacks to more than {MOST_UNPACKED} times its {self.path.stat().st_size:,} "
                    f"bytes. Unpack it by hand if that is right, and pass the text."
                )
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self.raw.close()
        super().close()
