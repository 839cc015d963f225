"""Large tensors to and from a safetensors file without a second copy of them in memory.

The bytes are those that the format's own library writes; that one makes a copy of everything before it writes, and
another one when it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

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


def write_stream(write: Write, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file.

    Args:
        write: Takes the bytes one piece after the other, such as the ``write`` of a file.
        tensors: By name.
    """
    listed = sorted(tensors, key=lambda name: (ORDER.index(NAMES[tensors[name].dtype]), name))
    about, end = dict[str, Any](), 0
    for name in listed:
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        about[name] = {"dtype": NAMES[tensors[name].dtype], "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    write(len(head).to_bytes(8, "little") + head)
    for name in listed:
        write(_bytes_of(tensors[name].detach().cpu().contiguous()))


def read_stream(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, each tensor into memory of its own.

    Args:
        path: The file; what its header says is checked by the format's library first, which raises its own errors.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        ValueError: If it was cut off since.
    """
    with safe_open(path, framework="pt") as checked:
        names = list(checked.keys())
    found: dict[str, Tensor] = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        about = json.loads(file.read(size))
        for name in names:
            file.seek(8 + size + about[name]["data_offsets"][0])
            found[name] = torch.empty(about[name]["shape"], dtype=TYPES[about[name]["dtype"]])
            if file.readinto(_bytes_of(found[name])) != found[name].nbytes:
                raise ValueError(f"{path} ends inside {name}")
    return found


def _bytes_of(x: Tensor) -> memoryview:
    """Return the memory of a tensor as bytes, without a copy."""
    return x.reshape(-1).view(torch.uint8).numpy().data
