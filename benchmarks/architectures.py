"""Real architectures with random weights: exactness, share of parameters on the slow route, speed against torch.func.

One thread; classes of libraries that are not installed are skipped. Sizes are small enough for minutes, in the shape of
the published models: what is compared is the same network and the same head on both sides, chunk sizes swept.
Names of architectures on the command line, ``python -m benchmarks.architectures Swin ConvNeXt``, run these alone.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import rivals
from benchmarks.entk import seconds
from benchmarks.exactness import exactness
from benchmarks.zoo import ARCHITECTURES, Architecture, import_library
from krepes.kernels.entk import EmpiricalNTK

SMALL_BATCH, ROWS, LANDMARKS = 4, 16, 8
"""Samples of the exactness check, and of both sides of the speed comparison."""
CHUNKS, TURNS = (4, 8, 16), 7
"""Samples that other methods take at a time, and how often each side is measured."""


def speed(network: nn.Module, X: Tensor, Y: Tensor) -> dict[str, float]:
    """Return CPU seconds of KREPES, and how many times slower torch.func is (one backward a sample if it cannot).

    The best chunk of the other side is looked for first; then both are measured in turns, and the least of each counts.
    """
    kernel = EmpiricalNTK(network)
    kernel(X[:3], Y[:3])
    ours = partial(kernel, X, Y)
    ours()
    name, rival = "torch.func", rivals.torch_func
    try:
        chunk, theirs = best_chunk(rival, network, kernel.tangent.cotangents[0], X, Y)
    except RuntimeError:  # a layer that vmap cannot batch
        name, rival = "backward loop", rivals.backward_loop
        chunk, theirs = best_chunk(rival, network, kernel.tangent.cotangents[0], X, Y)
    least = float("inf")
    for _ in range(TURNS):
        least = min(least, seconds(ours, 1))
        theirs = min(theirs, seconds(partial(rival, network, kernel.tangent.cotangents[0], X, Y, chunk), 1))
    return {"CPU s": least, f"{name} / KREPES": theirs / least}


def best_chunk(rival: rivals.Method, network: nn.Module, w: Tensor, X: Tensor, Y: Tensor) -> tuple[int, float]:
    """Return the chunk size with which another method takes the least CPU seconds, and these."""
    found = {chunk: seconds(partial(rival, network, w, X, Y, chunk), 1) for chunk in CHUNKS}
    best = min(found, key=lambda chunk: found[chunk])
    return best, found[best]


def measure(architecture: Architecture) -> dict[str, float]:
    """Return the figures of one architecture."""
    network = architecture.build()
    size = sum(parameter.numel() for parameter in network.parameters())
    figures = {"million parameters": size / 1e6} | exactness(network, architecture.inputs(SMALL_BATCH))
    return figures | speed(network, architecture.inputs(ROWS), architecture.inputs(LANDMARKS))


def run(names: list[str]) -> dict[str, Any]:
    """Return the figures of the named architectures, of all by default, as far as they can be built here."""
    torch.set_num_threads(1)
    table: dict[str, Any] = {}
    for name in names or list(ARCHITECTURES):
        architecture = ARCHITECTURES[name]
        try:
            import_library(architecture.library)
        except ImportError as error:
            print(f"    {name:28s} skipped: {error}", flush=True)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table[name] = measure(architecture)
        print(f"    {name:28s} " + ", ".join(f"{k} {v:.3g}" for k, v in table[name].items()), flush=True)
    return table


def summary(table: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return how many architectures keep what is asked of all of them."""
    gains = sorted(next(v for k, v in row.items() if k.endswith("/ KREPES")) for row in table.values())
    return {
        "architectures": len(table),
        "largest error": max(row["error"] for row in table.values()),
        "largest error across kinks": max(row["across kinks"] for row in table.values()),
        "of float32 autograd": max(row["autograd in float32"] for row in table.values()),
        "largest error in float64": max(row["in float64"] for row in table.values()),
        "without a slow share": sum(row["slow share"] == 0 for row in table.values()),
        "least gain": gains[0],
        "median gain": gains[len(gains) // 2],
        "at least 1.2": sum(gain >= 1.2 for gain in gains),
        "at least 2": sum(gain >= 2 for gain in gains),
    }


def main(names: list[str] | None = None) -> dict[str, Any]:
    """Print the figures, a line an architecture, and how many keep what is asked of them."""
    table = run(names or [])
    if not table:
        return {}
    found = summary(table)
    print("    " + ", ".join(f"{k} {v:.3g}" for k, v in found.items()), flush=True)
    return {"table": table, "summary": found}


if __name__ == "__main__":
    main(sys.argv[1:])
