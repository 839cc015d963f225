"""Arrays in files: every type, order, version and shape, forged headers, damage, and what is no file at all."""

import io
import os
import struct
from collections.abc import Iterator
from random import Random

import numpy as np
import torch

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.data import open_array
from krepes.views import Identity, ViewStream

FILE = "array.npy"
REAL = [
    "?",
    "g",
    *(f"{o}{k}" for o in "<>" for k in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")),
]
OTHER = ["c8", ">c16", "S3", "U2", ">U4", "M8[D]", "M8[ns]", ">M8[s]", "m8[h]", "V7", [("a", "f4"), ("b", "i2")]]
SHAPES = [(1,), (7,), (3, 2), (2, 3, 4), (2, 1, 3, 3), (1, 1, 1, 1, 1), (300, 1)]
EMPTY = [(), (0,), (0, 3), (3, 0), (2, 0, 4)]


def stored(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), version=version, allow_pickle=False)
    return buffer.getvalue()


def streamed(folder) -> torch.Tensor:
    stream = ViewStream(open_array(folder / FILE), Identity(), batch_size=64)
    return torch.cat([views[0] for _, views in stream])


def equals(array: np.ndarray):
    values = array.astype(np.float64)
    top = {"u1": 255.0, "u2": 65535.0}.get(array.dtype.str[1:], 1.0) if array.ndim >= 3 else 1.0
    expected = torch.from_numpy((values / top).astype(np.float32))
    return lambda answer: torch.testing.assert_close(answer, expected)


def header(
    descr: str, shape: str = "(4, 4)", order: str = "False", body: bytes = b"\0" * 64, version: int = 1
) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + body


HEADERS = {
    "negative shape": header("'<f4'", "(-4, 4)"),
    "float shape": header("'<f4'", "(4.0, 4)"),
    "text shape": header("'<f4'", "('4', 4)"),
    "shape of 2^62": header("'<f4'", "(4611686018427387904, 4)"),
    "shape whose size wraps to zero": header("'<f4'", "(4294967296, 4294967296)"),
    "shape whose size wraps to 64": header("'<f4'", "(9223372036854775824, 1)"),
    "70 axes": header("'<f4'", "(" + "1, " * 70 + ")"),
    "list for shape": header("'<f4'", "[4, 4]"),
    "true for shape": header("'<f4'", "(True, 4)"),
    "order as text": header("'<f4'", order="'no'"),
    "unknown type": header("'<q9'"),
    "object type": header("'|O'", body=b"cos\nsystem\n(S'touch canary'\ntR."),
    "a type of types": header("[('a', [('b', '<f4')])]"),
    "a call as type": header("__import__('os').mkdir('canary')"),
    "an attribute as type": header("().__class__"),
    "a type of a gigabyte": header("'V1073741824'"),
    "a type of no bytes": header("'V0'"),
    "text of no letters": header("'<U0'"),
    "sub-array type": header("('<f4', (2, 2))"),
    "comma type": header("'f4,f4'"),
    "datetime of no unit": header("'<M8'"),
    "deep brackets": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000,
    "deep lists": header("[" * 2000 + "]" * 2000),
    "a long number": header("'<f4'", f"({'9' * 5000},)"),
    "header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
    "header of 60 KB": header("'<f4'" + " " * 60000),
    "header of 3 MB": header("'<f4'" + " " * 3_000_000, version=2),
    "version 0": b"\x93NUMPY\x00\x00" + header("'<f4'")[8:],
    "version 4": b"\x93NUMPY\x04\x00" + header("'<f4'")[8:],
    "only magic": b"\x93NUMPY",
    "magic and version": b"\x93NUMPY\x01\x00",
    "no header": b"\x93NUMPY\x01\x00\x00\x00" + b"\0" * 64,
    "bytes that are no UTF-8": b"\x93NUMPY\x03\x00\x04\x00\x00\x00\xff\xfe\xfd\xfc" + b"\0" * 64,
    "JSON": b'{"descr": "<f4"}',
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.",
    "an npz": b"PK\x03\x04" + b"\0" * 60,
    "HDF5": b"\x89HDF\r\n\x1a\n" + b"\0" * 60,
    "two arrays": stored(np.ones((2, 2))) * 2,
    "a byte too many": stored(np.ones((2, 2))) + b"\0",
}
NO_FILES = {
    "a pipe": lambda folder: os.mkfifo(folder / FILE),
    "a folder": lambda folder: (folder / FILE).mkdir(),
    "a link to itself": lambda folder: os.symlink(FILE, folder / FILE),
    "a link to nothing": lambda folder: os.symlink("nothing", folder / FILE),
    "an endless device": lambda folder: os.symlink("/dev/zero", folder / FILE),
    "no file": lambda folder: None,
    "no byte": writes(FILE, b""),
}


def cases(rng: Random) -> Iterator[Case]:
    numbers = np.random.default_rng(rng.randrange(2**32))
    for dtype in REAL:
        for shape in rng.sample(SHAPES, 3):
            order, version = rng.choice("CF"), rng.choice([None, (1, 0), (2, 0), (3, 0)])
            array = np.asarray(numbers.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype), order=order)
            name = f"{dtype} {shape} {order} version {version}"
            yield Case("npy", name, writes(FILE, stored(array, version)), streamed, "read", equals(array))
    for dtype in OTHER:
        for shape in rng.sample(SHAPES, 2):
            yield Case(
                "npy", f"{dtype} {shape}", writes(FILE, stored(np.zeros(shape, dtype))), streamed, "refused", where=FILE
            )
    for shape in EMPTY:
        for dtype in ("<f4", ">i8", "?"):
            content = stored(np.zeros(shape, dtype))
            yield Case("npy", f"{dtype} {shape}", writes(FILE, content), streamed, "refused", where=FILE)
    for name, content in HEADERS.items():
        yield Case("npy", name, writes(FILE, content), streamed, "refused", where=FILE)
    for name, make in NO_FILES.items():
        yield Case("npy", name, make, streamed, "refused", where=FILE)
    for value in (np.nan, np.inf, -np.inf, 1e308, -1e39):
        array = np.ones((5, 3))
        array[rng.randrange(5), rng.randrange(3)] = value
        yield Case("npy", f"a cell of {value}", writes(FILE, stored(array)), streamed, "refused")
    whole = [stored(numbers.normal(size=(6, 4)).astype(dtype)) for dtype in ("<f4", ">f8", "<f2", "i2")]
    for content in whole:
        for name, changed in damaged(content, rng, 35):
            yield Case("npy", name, writes(FILE, changed), streamed)
