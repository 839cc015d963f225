"""Weights: forged safetensors headers, checkpoints that bite, tensors that are no weights, damage."""

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from random import Random

import torch
from safetensors.torch import save

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.encoders import MLP, load_encoder

SIZES = {"d": 3, "width": 4, "depth": 1, "out": 2}


def encoder(seed: int = 0) -> MLP:
    torch.manual_seed(seed)
    return MLP(**SIZES)


STATE = encoder().state_dict()


def loaded(name: str, **options):
    def run(folder):
        return load_encoder("mlp", folder / name, **SIZES, **options).encoder

    return run


def rebuilt(folder):
    return load_encoder(weights=folder / "w.safetensors").encoder


def same(answer) -> None:
    for key, value in answer.state_dict().items():
        torch.testing.assert_close(value, STATE[key], rtol=0, atol=0)


def finite(answer) -> None:
    assert all(bool(torch.isfinite(value).all()) for value in answer.state_dict().values())


def stored(content, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


class Bites:
    """An object whose unpickling calls a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


TOUCH = "touch $KREPES_CANARY"
CODE = "open(__import__('os').environ['KREPES_CANARY'], 'w')"
PAYLOADS = {
    "os.system": lambda: Bites(os.system, TOUCH),
    "os.popen": lambda: Bites(os.popen, TOUCH),
    "eval": lambda: Bites(eval, CODE),
    "exec": lambda: Bites(exec, CODE),
    "os.mkdir": lambda: Bites(os.mkdir, "canary"),
    "a builder of tensors": lambda: Bites(torch.load, "w.pth"),
    "open": lambda: Bites(open, "canary", "w"),
    "a module": lambda: torch.nn.Linear(2, 2),
    "a class": lambda: Bites,
}
PICKLES = {
    "system by opcode": b"cos\nsystem\n(S'" + TOUCH.encode() + b"'\ntR.",
    "system by protocol 4": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c"
    + bytes([len(TOUCH)])
    + TOUCH.encode()
    + b"\x85R.",
    "eval of builtins": b"cbuiltins\neval\n(S'" + CODE.replace("'", '"').encode() + b"'\ntR.",
    "a name of escapes": b"c\x1b[31m\nsystem\n.",
    "endless memo": b"\x80\x02}q\x00(K\x01h\x00u.",
    "a text of 2^60": b"\x80\x04\x8d" + (2**60).to_bytes(8, "little") + b"x.",
    "a tuple of nothing": b"\x80\x02).",
    "an empty stack": b"\x80\x02.",
    "an unknown opcode": b"\x80\x02\xf5.",
    "protocol 250": b"\x80\xfa}.",
    "a number of 5,000 digits": pickle.dumps({10**5000: 1}),
    "deep tuples": b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".",
    "text": b"not a checkpoint at all",
    "zeros": b"\0" * 500,
}


def tensors(header: object, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


KEY = "layers.1.weight"
FORGED = {
    "no header": tensors(b""),
    "header beyond the file": tensors(b"{}", length=1000),
    "header of 2^63": tensors(b"{}", length=2**63),
    "header of 2^64 - 8": tensors(b"{}", length=2**64 - 8),
    "header that is no JSON": tensors(b"{x}"),
    "header of a list": tensors([1, 2]),
    "header of a number": tensors(5),
    "deep JSON": tensors(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "offsets beyond the file": tensors({KEY: entry([4, 3], 0, 48)}),
    "offsets that run backwards": tensors({KEY: entry([4, 3], 48, 0)}, b"\0" * 48),
    "offsets that overlap": tensors({KEY: entry([4, 3], 0, 48), "b": entry([4, 3], 0, 48)}, b"\0" * 48),
    "offsets with a hole": tensors({KEY: entry([4, 3], 8, 56)}, b"\0" * 56),
    "a shape of 2^62": tensors({KEY: entry([2**62, 4], 0, 48)}, b"\0" * 48),
    "a negative shape": tensors({KEY: entry([-4, 3], 0, 48)}, b"\0" * 48),
    "a shape that does not fit": tensors({KEY: entry([5, 3], 0, 48)}, b"\0" * 48),
    "a shape of texts": tensors({KEY: entry(["4", "3"], 0, 48)}, b"\0" * 48),
    "an unknown type": tensors({KEY: entry([4, 3], 0, 48, "EVIL")}, b"\0" * 48),
    "only metadata": tensors({"__metadata__": {"krepes": "{}"}}),
    "metadata of numbers": tensors({"__metadata__": {"krepes": 5}, KEY: entry([4, 3], 0, 48)}, b"\0" * 48),
    "bytes left over": tensors({KEY: entry([4, 3], 0, 48)}, b"\0" * 64),
    "a name of a megabyte": tensors({"a." * 500_000: entry([1], 0, 4)}, b"\0" * 4),
    "a name of dots": tensors({"." * 100_000: entry([1], 0, 4)}, b"\0" * 4),
    "a name of escapes": tensors({"\x1b[31m\u202e": entry([1], 0, 4)}, b"\0" * 4),
}
STORIES = {
    "os:system": {"encoder": {"name": "os:system", "command": TOUCH}},
    "no name": {"encoder": {"d": 3}},
    "a list": {"encoder": ["mlp"]},
    "a number": {"encoder": 5},
    "a name of names": {"encoder": {"name": {"name": "mlp"}}},
    "d of a billion": {"encoder": {"name": "mlp", "d": 10**9}},
    "depth of a billion": {"encoder": {"name": "mlp", "d": 3, "depth": 10**9}},
    "negative": {"encoder": {"name": "mlp", "d": -3}},
    "text": {"encoder": {"name": "mlp", "d": "3"}},
    "a fraction": {"encoder": {"name": "mlp", "d": 3.5}},
    "unknown argument": {"encoder": {"name": "mlp", "d": 3, "evil": 1}},
    "a deep one": None,
}
FORMS = {
    "sparse": lambda w: w.to_sparse(),
    "complex": lambda w: w.to(torch.complex64),
    "whole": lambda w: w.to(torch.int64),
    "codes": lambda w: w.to(torch.int8),
    "flags": lambda w: w > 0,
    "meta": lambda w: w.to("meta"),
    "nan": lambda w: w * float("nan"),
    "infinite": lambda w: w / 0,
    "another shape": lambda w: w[..., :1].contiguous(),
    "no number": lambda w: w[:0],
}
GOOD = {
    "half": torch.float16, "bfloat": torch.bfloat16, "double": torch.float64, "float8": torch.float8_e4m3fn,
}  # fmt: skip


def cases(rng: Random) -> Iterator[Case]:
    yield Case("weights", "safetensors", writes("w.safetensors", save(STATE)), loaded("w.safetensors"), "read", same)
    for legacy in (False, True):
        content = stored(STATE, legacy)
        yield Case("weights", f"checkpoint, legacy {legacy}", writes("w.pth", content), loaded("w.pth"), "read", same)
        for name, make in PAYLOADS.items():
            evil = stored(OrderedDict(STATE, evil=make()), legacy)
            yield Case(
                "weights", f"{name}, legacy {legacy}", writes("w.pth", evil), loaded("w.pth"), "refused", where="w.pth"
            )
    for name, content in PICKLES.items():
        yield Case("weights", f"pickle: {name}", writes("w.pth", content), loaded("w.pth"), "refused", where="w.pth")
        for legacy_name in ("w.safetensors", "w.bin"):
            yield Case(
                "weights",
                f"{name} as {legacy_name}",
                writes(legacy_name, content),
                loaded(legacy_name),
                "refused",
                where="w.",
            )
    for name, content in FORGED.items():
        for file in ("w.safetensors", "w.bin"):
            yield Case("weights", f"header: {name}, {file}", writes(file, content), loaded(file), "refused", where="w.")
    yield from _stories()
    for name, form in FORMS.items():
        for key in (KEY, "layers.1.bias"):
            changed = dict(STATE, **{key: form(STATE[key])})
            yield Case(
                "weights", f"{name} {key}", writes("w.pth", stored(changed)), loaded("w.pth"), "refused", where="w.pth"
            )
    for name, dtype in GOOD.items():
        state = {key: value.to(dtype) for key, value in STATE.items()}
        yield Case("weights", name, writes("w.pth", stored(state)), loaded("w.pth"), "read", finite)
    yield from _containers()
    for name, content in {"safetensors": save(STATE), "zip": stored(STATE), "legacy": stored(STATE, True)}.items():
        file = "w.safetensors" if name == "safetensors" else "w.pth"
        for damage, changed in damaged(content, rng, 56):
            yield Case("weights", f"{name} {damage}", writes(file, changed), loaded(file), check=finite, where="w.")


def _stories() -> Iterator[Case]:
    state = {key: value.contiguous() for key, value in STATE.items()}
    for name, details in STORIES.items():
        text = "[" * 100_000 if details is None else json.dumps(details)
        content = save(state, metadata={"krepes": text})
        yield Case("weights", f"details: {name}", writes("w.safetensors", content), rebuilt, "refused")
    good = save(state, metadata={"krepes": json.dumps({"encoder": {"name": "mlp", **SIZES}})})
    yield Case("weights", "details: good", writes("w.safetensors", good), rebuilt, "read", same)


def _containers() -> Iterator[Case]:
    endless: dict[str, object] = {}
    endless["again"] = endless
    many: dict[str, object] = dict(STATE)
    for _ in range(40):
        many = {"a": many, "b": many}
    deep: dict[str, object] = dict(STATE)
    for _ in range(200):
        deep = {"x": deep}
    contents = {
        "endless": endless,
        "2^40 ways": many,
        "200 deep": deep,
        "a list": [STATE],
        "a tensor": torch.zeros(3),
        "a number": 5,
        "empty": {},
    }
    for name, content in contents.items():
        yield Case(
            "weights",
            f"containers: {name}",
            writes("w.pth", stored(content)),
            loaded("w.pth"),
            "refused",
            where="w.pth",
        )
    for name, compression, size in (("packed", zipfile.ZIP_DEFLATED, 10**7), ("stored", zipfile.ZIP_STORED, 1000)):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            archive.writestr("archive/data.pkl", b"\0" * size)
            archive.writestr("archive/version", "3\n")
        yield Case(
            "weights", f"zip: {name}", writes("w.pth", buffer.getvalue()), loaded("w.pth"), "refused", where="w.pth"
        )
    for name, make in {"a pipe": os.mkfifo, "a folder": os.mkdir}.items():
        yield Case(
            "weights", name, lambda folder, make=make: make(folder / "w.pth"), loaded("w.pth"), "refused", where="w.pth"
        )
