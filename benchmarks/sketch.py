"""Sketched against exact tangent rows on ResNet-18: ms per sample, and the projectors of other libraries beside it.

The exact cost at m = 1000 is predicted from the measured cost of a sample and of a pair, for a full run needs more than
ten gigabytes of prepared landmarks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.entk import seconds
from benchmarks.rivals import installed
from krepes.encoders import ResMLP, resnet18
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK


def exact_cost(kernel: EmpiricalNTK, X: Tensor, few: int = 64, many: int = 192) -> tuple[float, float]:
    """Return ms per row that do not depend on m, and ms per pair, from two numbers of landmarks."""
    routes = {m: kernel.prepare(torch.randn(m, *X.shape[1:])) for m in (few, many)}
    times = {m: 1e3 * seconds(partial(kernel.rows, X, p)) / len(X) for m, p in routes.items()}
    pair = (times[many] - times[few]) / (many - few)
    return times[few] - few * pair, pair


def projectors(P: int, n: int, q: int = 64) -> dict[str, float]:
    """Return ms per sample of other libraries' CPU projections of written-out gradients ``(n, P)`` to ``q``."""
    G, table = torch.randn(n, P), dict[str, float]()
    if installed("trak"):
        from trak.projectors import BasicProjector, ProjectionType

        trak = BasicProjector(P, q, 0, ProjectionType.rademacher, torch.device("cpu"), 16)
        table["TRAK basic projector, q=64"] = 1e3 * seconds(lambda: trak.project(G, model_id=0), 1) / n
    if installed("dattri"):
        from dattri.func.projection import random_project

        project = random_project(G, n, proj_dim=q, proj_max_batch_size=16, device="cpu", proj_seed=0)
        table["dattri projector, q=64"] = 1e3 * seconds(lambda: project(G), 1) / n
    return table


def run() -> dict[str, Any]:
    """Return ms per row of exact and sketched kernels and their ratios."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    encoder, X = resnet18().eval(), torch.randn(32, 3, 32, 32)
    row, pair = exact_cost(EmpiricalNTK(encoder, memory_budget=12 << 30), X)
    table: dict[str, Any] = {
        "exact, predicted at m=1000": row + 1000 * pair,
        "exact, per row": row,
        "exact, per pair": pair,
    }
    for q in (1024, 4096, 16384):
        sketch = SketchedNTK(encoder, q=q)
        landmarks = torch.randn(1000, q)
        table[f"sketch q={q}"] = 1e3 * seconds(partial(sketch.rows, X, landmarks)) / len(X)
    table["exact at m=1000 / sketch q=4096"] = table["exact, predicted at m=1000"] / table["sketch q=4096"]
    rows, network = torch.randn(512, 110), ResMLP(110)
    exact = EmpiricalNTK(network)
    prepared = exact.prepare(torch.randn(1000, 110))
    table["ResMLP exact at m=1000"] = 1e3 * seconds(lambda: exact.rows(rows, prepared)) / 512
    sketch = SketchedNTK(network)
    table["ResMLP sketch q=4096"] = 1e3 * seconds(lambda: sketch.rows(rows, torch.randn(1000, 4096))) / 512
    return table | projectors(sum(p.numel() for p in resnet18().parameters()), 16)


def main() -> dict[str, Any]:
    """Print the figures."""
    result = run()
    for name, value in result.items():
        print(f"    {name:36s} {value:10.4g}")
    return result


if __name__ == "__main__":
    main()
