"""Tangent kernel rows: KREPES against Jacobian contraction, one thread, chunk sizes of all swept, best of two.

The best chunk of a rival is looked for on as many rows as the largest holds, and then measured once on all.
Both sides are computed from scratch. Rivals contract the encoder's parameters; KREPES also has the head's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks import rivals
from benchmarks.passes import counted
from krepes.encoders import ResMLP, resnet18
from krepes.kernels.entk import EmpiricalNTK


def seconds(function: Callable[[], Any], repeats: int = 2) -> float:
    """Return the least CPU seconds of ``repeats`` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def mlp() -> nn.Sequential:
    """Return the network 784-512-512-1."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int, tuple[int, ...]]] = {
    "ResMLP 500 x 100": (lambda: ResMLP(110), (110,), 500, 100, (10, 25, 100)),
    "MLP 784-512-512 1000 x 200": (mlp, (784,), 1000, 200, (25, 50, 200)),
    "ResNet-18 32 x 16": (resnet18, (3, 32, 32), 32, 16, (4, 8, 16)),
}


def compare(name: str) -> dict[str, float]:
    """Return CPU seconds of each method on one case, and how many times slower than KREPES it is."""
    make, shape, n, m, sweep = CASES[name]
    torch.manual_seed(0)
    encoder = make().eval()
    X, Y = torch.randn(n, *shape), torch.randn(m, *shape)
    kernel = EmpiricalNTK(encoder)
    kernel(X[:3], Y[:3])
    kernels = [EmpiricalNTK(encoder, memory_budget=budget) for budget in (1 << 28, 1 << 30, 1 << 32)]
    ours = min(seconds(partial(kernel, X, Y)) for kernel in kernels)
    table = {"KREPES": ours}
    methods: dict[str, rivals.Method] = {"torch.func": rivals.torch_func, "backward loop": rivals.backward_loop}
    if name.startswith("MLP") and rivals.installed("backpack"):
        methods["BackPACK"] = rivals.backpack
    w = kernel.tangent.cotangents[0]
    for method, function in methods.items():
        few = {c: seconds(partial(function, encoder, w, X[: max(sweep)], Y[: min(sweep)], c), 1) for c in sweep}
        best = min(few, key=lambda chunk: few[chunk])
        table[method] = seconds(partial(function, encoder, w, X, Y, best), 1)
        table[f"{method} / KREPES"] = table[method] / ours
    return table


def flop_share(n: int = 2048, m: int = 1000) -> dict[str, float]:
    """Return the share of the machine's measured product speed that prepared ResMLP rows at ``m = 1000`` reach."""
    torch.manual_seed(0)
    encoder = ResMLP(110)
    kernel = EmpiricalNTK(encoder)
    X, Y = torch.randn(n, 110), torch.randn(m, 110)
    prepared = kernel.prepare(Y)
    A, B = torch.randn(1024, 1032), torch.randn(m, 1032)
    parts = counted(encoder, m)  # of two views
    work = n * (parts["forward"] + parts["backward"] + parts["pairs"]) / 2
    # In turns, for the clock of a shared machine wanders; the best of each.
    rounds = [(seconds(lambda: A @ B.T, 20), seconds(lambda: kernel.rows(X, prepared), 1)) for _ in range(6)]
    speed, measured = 1024 * 1032 * m / min(r[0] for r in rounds), min(r[1] for r in rounds)
    return {
        "multiply-adds per row": work / n,
        "ms per row": 1e3 * measured / n,
        "share of limit": work / speed / measured,
    }


MEMORY = """
import re, torch
torch.set_num_threads(1)
from krepes.encoders import ResMLP
from krepes.kernels.entk import EmpiricalNTK
X, Y = torch.randn(20_000, 110), torch.randn(1000, 110)
kernel = EmpiricalNTK(ResMLP(110))
kernel(X[:3], Y[:3])

def kib(entry):  # not ru_maxrss: a child process begins with its parent's peak
    return int(re.search(entry + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

idle = kib("VmRSS")
kernel(X, Y)
print((kib("VmHWM") - idle) / 2**20)
"""


def memory() -> float:
    """Return the GiB above the idle process that ResMLP rows 20,000 x 1,000 take, result included."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    return float(done.stdout)


def run() -> dict[str, Any]:
    """Return all figures."""
    torch.set_num_threads(1)
    result: dict[str, Any] = {name: compare(name) for name in CASES}
    result["ResMLP at m = 1000"] = flop_share()
    result["ResMLP 20,000 x 1,000"] = {"GiB above idle": memory()}
    return result


def main() -> dict[str, Any]:
    """Print the figures, one case per block."""
    result = run()
    for case, figures in result.items():
        print(case)
        for name, value in figures.items():
            print(f"    {name:24s} {value:12.4g}")
    return result


if __name__ == "__main__":
    main()
