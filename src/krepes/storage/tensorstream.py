"""Large tensors to and from a safetensors file without a second copy of them in memory.

The bytes are those that the format's own library writes; that one makes a copy of everything before it writes, and
another one when it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from krepes.storage import mapped

Write = Callable[[Any], Any]

TYPES = {
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "U32": torch.uint32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "U16": torch.uint16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Names of types in a file, in the order in which the format's library writes them: the widest first."""
NAMES = {dtype: name for name, dtype in TYPES.items()}
ORDER = list(TYPES)


def write_stream(
    write: Write, tensors: Mapping[str, Tensor | mapped.Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as one safetensors file.

    Args:
        write: Takes the bytes one piece after the other, such as the ``write`` of a file.
        tensors: By name; of an array that is mapped from a file no page stays in memory.
        metadata: Texts of the header.
    """
    types = {name: NAMES[_dtype(x)] for name, x in tensors.items()}
    listed = sorted(tensors, key=lambda name: (ORDER.index(types[name]), name))
    about: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in listed:
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        about[name] = {"dtype": types[name], "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    write(len(head).to_bytes(8, "little") + head)
    for name in listed:
        for piece in _pieces(tensors[name]):
            write(_bytes_of(piece))


def read_stream(path: Path, stays: Callable[[str, int], bool] | None = None) -> dict[str, Any]:
    """Read a safetensors file, each tensor into memory of its own.

    Args:
        path: The file; what its header says is checked by the format's library first, which raises its own errors.
        stays: Says of a name and a number of bytes whether they stay in the file.

    Returns:
        Tensors by name, on the CPU; those that stay in the file are arrays that are mapped from it.

    Raises:
        ValueError: If it was cut off since.
    """
    with safe_open(path, framework="pt") as checked:
        names = list(checked.keys())
    found: dict[str, Any] = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(size))
        for name in names:
            (first, last), shape = about[name]["data_offsets"], tuple(about[name]["shape"])
            dtype = TYPES[about[name]["dtype"]]
            if stays is not None and dtype != torch.bfloat16 and stays(name, last - first):
                kind = torch.empty(0, dtype=dtype).numpy().dtype
                found[name] = np.memmap(path, mode="r", dtype=kind, offset=8 + size + first, shape=shape)
                continue
            file.seek(8 + size + first)
            found[name] = torch.empty(shape, dtype=dtype)
            if file.readinto(_bytes_of(found[name])) != found[name].nbytes:
                raise ValueError(f"{path} ends inside {name}")
    return found


def _dtype(x: Tensor | mapped.Array) -> torch.dtype:
    return x.dtype if isinstance(x, Tensor) else torch.from_numpy(np.empty(0, x.dtype)).dtype


def _pieces(x: Tensor | mapped.Array) -> Iterator[Tensor]:
    """Yield the content of a tensor as it is, that of an array in pieces."""
    if isinstance(x, Tensor):
        yield x.detach().cpu().contiguous()
        return
    for part in mapped.spans(len(x), x[:1].nbytes):
        yield torch.from_numpy(mapped.read(x, part))


def _bytes_of(x: Tensor) -> memoryview:
    """Return the memory of a tensor as bytes, without a copy."""
    return x.reshape(-1).view(torch.uint8).numpy().data
