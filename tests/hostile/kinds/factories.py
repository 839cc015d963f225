"""Encoders by name: strings that are no factory, modules that break, arguments that are no sizes."""

from collections.abc import Iterator
from random import Random

import torch

from hostile.case import Case, writes
from krepes.encoders import build_encoder

FILE = "users_nets.py"
MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.body = torch.nn.Linear(2, width)

NUMBER = 3
NOTHING = None

class Odd:
    def __getattr__(self, name):
        raise RuntimeError("no attribute for you")

ODD = Odd()

def returns_number(): return 5
def returns_class(): return Net
def raises(): raise ValueError("\\x1b[31mred")
def leaves(): raise SystemExit(3)
def interrupts_nothing(*args, **kwargs): raise StopIteration
def deep(): return deep()
"""
STRINGS = [
    "", " ", ":", "::", "a:", ":b", "mlp:", "MLP", "mlp ", " mlp", "resnet18:resnet18x", "resnet",
    "resnet1e9", "os", "os.path",
    "..:x", ".:x", "./a:b", "/etc/passwd:x", "a/b:c", "a\\b:c", "a b:c", "a-b:c", "a:b c", "a:b()",
    "a:__import__('os')",
    "a:b:c", "a;b:c", "a\0b:c", "a:b\0", "\x1b[31m:x", "\u202e:x", "é:x", "日本:語", "1:2",
    "a.1:b", "a..b:c", "a:b..c", "a:.b",
    "nomodule:x", "nomodule.sub:x", "sys.nothing:x", "math:pi", "math:hypot", "builtins:dict", "builtins:int",
    "builtins:Nothing", "collections:OrderedDict", "os:sep", "string:digits", "torch:float32",
    "torch:zeros", "torch.nn:Module.forward",
    "json:loads", "a" * 5000, "a:" + "b" * 5000, "a" + ".a" * 2000 + ":b", "{0}:x", "%s:x",
    "$HOME:x", "`id`:x", "$(id):x", "users_nets",
    "users_nets:", "users_nets:nothing", "users_nets:Net.nothing", "users_nets:NUMBER", "users_nets:NOTHING",
    "users_nets:ODD", "users_nets:ODD.x", "users_nets:returns_number", "users_nets:returns_class",
    "users_nets:raises",
    "users_nets:leaves", "users_nets:interrupts_nothing", "users_nets:deep", "breaks:x",
    "syntax:x", "exits:x", "loops:x",
]  # fmt: skip
BUILT_IN = {"mlp": {"d": 3}, "resmlp": {"d": 3, "width": 8}, "resnet18": {"width": 2}, "resnet50": {"width": 2}}
VALUES = [
    -1,
    0,
    -(10**9),
    10**9,
    10**18,
    10**5000,
    1.5,
    float("nan"),
    float("inf"),
    "4",
    "",
    "four",
    None,
    [4],
    {"a": 1},
    b"4",
    (),
    1j,
    torch.zeros(3),
]
NAMES = [
    "width",
    "depth",
    "d",
    "B",
    "r",
    "in_channels",
    "nothing",
    "self",
    "__class__",
    "name",
    "cifar_stem",
    "cifar_padding",
]


def files(folder):
    writes(FILE, MODULE)(folder)
    writes("breaks.py", "1 / 0\n")(folder)
    writes("syntax.py", "def (:\n")(folder)
    writes("exits.py", "import sys\nsys.exit(0)\n")(folder)
    writes("loops.py", "from loops import x\n")(folder)


def built(factory, **arguments):
    return lambda folder: build_encoder(factory, **arguments)


def is_module(answer):
    assert isinstance(answer, torch.nn.Module) and sum(p.numel() for p in answer.parameters()) < 10**7


def cases(rng: Random) -> Iterator[Case]:
    yield Case("factory", "users_nets:Net", files, built("users_nets:Net"), "read", is_module)
    for text in STRINGS:
        yield Case("factory", text[:60], files, built(text), "refused")
        yield Case("factory", f"{text[:60]}, with arguments", files, built(text, width=4), "refused")
    for name, sizes in BUILT_IN.items():
        yield Case("factory", f"{name} {sizes}", files, built(name, **sizes), "read", is_module)
        for key in NAMES:
            for value in rng.sample(VALUES, 5):
                shown = str(value)[:20] if not isinstance(value, int) or value < 10**20 else "a long number"
                yield Case("factory", f"{name} {key}={shown}", files, built(name, **{**sizes, key: value}))
