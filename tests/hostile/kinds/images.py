"""Folders of images: formats and modes, forged headers, damage, other formats under good names, pipes and loops."""

import io
import os
import struct
import zlib
from collections.abc import Iterator
from random import Random

import numpy as np
import torch
from PIL import Image

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.data import image_folder

SUFFIX = {"PNG": "png", "JPEG": "jpg", "GIF": "gif", "BMP": "bmp", "WEBP": "webp", "TIFF": "tif", "PPM": "ppm"}
MODES = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"], "JPEG": ["L", "RGB", "CMYK"], "GIF": ["L", "P", "RGB"],
    "BMP": ["1", "L", "P", "RGB"], "WEBP": ["RGB", "RGBA"], "TIFF": ["1", "L", "P", "RGB", "RGBA", "CMYK", "I;16"],
    "PPM": ["1", "L", "RGB"],
}  # fmt: skip
SIZES = [(8, 8), (1, 1), (1, 40), (40, 1), (33, 17)]


def picture(mode: str, size: tuple[int, int], rng: Random) -> Image.Image:
    numbers = np.random.default_rng(rng.randrange(2**32))
    if mode == "I;16":
        return Image.fromarray(numbers.integers(0, 2**16, size[::-1], dtype=np.uint16))
    return Image.fromarray(numbers.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).convert(mode)


def saved(image: Image.Image, format: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return buffer.getvalue()


def stacked(folder):
    images = image_folder(folder, size=8)
    return images.stack()


def skipped(folder):
    return image_folder(folder, size=8, channels=1, on_error="skip").stack()


def usable(answer):
    assert answer.ndim == 4 and answer.shape[2:] == (8, 8) and bool(torch.isfinite(answer).all())
    assert 0 <= float(answer.min()) and float(answer.max()) <= 1


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *, depth: int = 8, colour: int = 2, data: bytes = b"", extra: bytes = b"") -> bytes:
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + extra + png_chunk(b"IDAT", zlib.compress(data)) + png_chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HH", width, height)
        + b"\x80\0\0\0\0\0\xff\xff\xff"
        + b",\0\0\0\0"
        + struct.pack("<HH", width, height)
        + b"\0\x02\x02D\x01\0;"
    )


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    )


FORGED = {
    "PNG of 3.6 gigapixels": ("png", png(60_000, 60_000)),
    "PNG of 2^31 columns": ("png", png(2**31 - 1, 1)),
    "PNG of no pixel": ("png", png(0, 0)),
    "PNG of 120 megapixels of zeros": ("png", png(12_000, 10_000, colour=0, data=b"\0" * 1000)),
    "PNG of depth 7": ("png", png(8, 8, depth=7)),
    "PNG of colour type 9": ("png", png(8, 8, colour=9)),
    "PNG without data": ("png", png(8, 8)),
    "PNG with a text of 50 MB": (
        "png",
        png(8, 8, extra=png_chunk(b"zTXt", b"x\0\0" + zlib.compress(b"\0" * 50_000_000))),
    ),
    "PNG with a profile of 50 MB": (
        "png",
        png(8, 8, extra=png_chunk(b"iCCP", b"x\0\0" + zlib.compress(b"\0" * 50_000_000))),
    ),
    "GIF of 4 gigapixels": ("gif", gif(65535, 65535)),
    "BMP of 10^9 columns": ("bmp", bmp(10**9, 10**9)),
    "BMP of negative height": ("bmp", bmp(8, -(2**31))),
    "PPM of a terapixel": ("ppm", b"P6 1000000 1000000 255\n"),
    "PPM of letters": ("ppm", b"P6 eight eight 255\n" + b"\0" * 192),
    "PPM of a long number": ("ppm", b"P6 " + b"9" * 5000 + b" 8 255\n"),
    "PPM of maximum 0": ("ppm", b"P6 8 8 0\n" + b"\0" * 192),
    "TIFF that points at itself": ("tif", b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
    "TIFF of a gigabyte of tags": ("tif", b"II*\0\x08\0\0\0\xff\xff" + b"\0" * 100),
    "TIFF of floats": ("tif", saved(Image.fromarray(np.full((8, 8), 0.5, np.float32)), "TIFF")),
    "TIFF of 32 bits": ("tif", saved(Image.fromarray(np.full((8, 8), 10**6, np.int32)), "TIFF")),
    "JPEG of markers only": ("jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xd9"),
    "JPEG of 65,500 x 65,500": (
        "jpg",
        b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xdc\xff\xdc\x03\x01\x22\0\x02\x11\x01\x03\x11\x01\xff\xd9",
    ),
    "WEBP of nothing": ("webp", b"RIFF\x0c\0\0\0WEBPVP8 \0\0\0\0"),
    "WEBP of a lie": ("webp", b"RIFF\xff\xff\xff\xffWEBPVP8X\x0a\0\0\0\x02\0\0\0\xff\xff\xff\xff\xff\xff"),
}
STRANGERS = {
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(%pipe%touch canary) (w) file\n%%EOF\n",
    "PDF": b"%PDF-1.4\n1 0 obj <<>> endobj\n%%EOF",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "HTML": b"<html><img src=x onerror=alert(1)></html>",
    "ICO": saved(Image.new("RGB", (16, 16)), "ICO"),
    "TGA": saved(Image.new("RGB", (8, 8)), "TGA"),
    "PCX": saved(Image.new("RGB", (8, 8)), "PCX"),
    "SGI": saved(Image.new("RGB", (8, 8)), "SGI"),
    "DDS": saved(Image.new("RGB", (8, 8)), "DDS"),
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 60,
    "PSD": b"8BPS\0\x01" + b"\0" * 60,
    "FLI": b"\0" * 4 + b"\x11\xaf" + b"\0" * 200,
    "FPX": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 512,
    "WMF": b"\xd7\xcd\xc6\x9a\0\0" + b"\0" * 60,
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.",
    "a script": b"#!/bin/sh\ntouch canary\n",
    "zeros": b"\0" * 5000,
    "text": b"this is no image",
    "nothing": b"",
}
ODD = {
    "a pipe": lambda folder: os.mkfifo(folder / "a.png"),
    "a link to itself": lambda folder: os.symlink("a.png", folder / "a.png"),
    "a link to nothing": lambda folder: os.symlink("nothing.png", folder / "a.png"),
    "an endless device": lambda folder: os.symlink("/dev/zero", folder / "a.png"),
    "a socket of links": lambda folder: [os.symlink(folder, folder / f"loop{i}") for i in range(5)],
    "no image": lambda folder: (folder / "notes.txt").write_text("x"),
    "an empty folder": lambda folder: None,
}


def cases(rng: Random) -> Iterator[Case]:
    for format, modes in MODES.items():
        for mode in modes:
            for size in rng.sample(SIZES, 2):
                content = saved(picture(mode, size, rng), format)
                name = f"{format} {mode} {size}"
                yield Case("image", name, writes(f"a.{SUFFIX[format]}", content), stacked, "read", usable)
    for turn in (0, 1, 3, 6, 8, 9, 255):
        exif = Image.Exif()
        exif[0x0112] = turn
        content = saved(picture("RGB", (9, 5), rng), "JPEG", exif=exif)
        yield Case("image", f"turned by {turn}", writes("a.jpg", content), stacked, "read", usable)
        broken = content.replace(b"Exif\0\0", b"Exif\0\0" + b"\xff" * 4)
        yield Case("image", f"turned by {turn}, broken", writes("a.jpg", broken), stacked)
    for format in ("GIF", "PNG", "WEBP", "TIFF"):
        frames = [picture("RGB", (8, 8), rng) for _ in range(4)]
        content = saved(frames[0], format, save_all=True, append_images=frames[1:])
        yield Case("image", f"{format} of four frames", writes(f"a.{SUFFIX[format]}", content), stacked, "read", usable)
    for name, (suffix, content) in FORGED.items():
        yield Case("image", name, writes(f"a.{suffix}", content), stacked, "refused", where=f"a.{suffix}")
    for name, content in STRANGERS.items():
        for suffix in rng.sample(sorted(SUFFIX.values()), 2):
            yield Case(
                "image", f"{name} as .{suffix}", writes(f"a.{suffix}", content), stacked, "refused", where=f"a.{suffix}"
            )
    for name, make in ODD.items():
        yield Case("image", name, make, stacked, "refused")

        def beside(folder, make=make):
            make(folder)
            writes("good.png", saved(Image.new("L", (8, 8)), "PNG"))(folder)

        yield Case("image", f"{name}, beside a good one", beside, skipped, "read", usable)
    for odd in (b"\xff.png", b"\x1b[31m.png", b"a\nb.png", "\u202egnp.png".encode(), b" .png", b"-rf.png", b"%s.png"):

        def named(folder, odd=odd):
            with open(os.path.join(os.fsencode(folder), odd), "wb") as handle:
                handle.write(saved(Image.new("L", (8, 8)), "PNG"))

        yield Case("image", f"a file named {odd!r}", named, stacked)
    for format in SUFFIX:
        content = saved(picture("RGB", (24, 24), rng), format)
        for name, changed in damaged(content, rng, 35):
            yield Case(
                "image",
                f"{format} {name}",
                writes(f"a.{SUFFIX[format]}", changed),
                stacked,
                where=f"a.{SUFFIX[format]}",
            )
