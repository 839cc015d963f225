"""The pass over the data at m = 1000 landmarks in two views, against what its counted multiply-adds allow.

The paper's ResMLP (width 1032) on rows of 108 columns, as of Adult; kernel centred and normalised. What the work allows
is the time that plain products of the same total would take, at the speed of such products measured in the same run:
float32 for the network and the kernel, float64 for the moments. Times are CPU seconds of all threads, so that other
work on the machine counts little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from krepes.encoders import ResMLP
from krepes.engine.moments import PANEL
from krepes.engine.rows import collect_moments
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.transforms import Cosine, default_transform
from krepes.views import Compose, FeatureDrop, GaussianNoise, ViewStream

BUDGET = 2 << 30
VIEWS = Compose(FeatureDrop(0.2), GaussianNoise(0.1))


def _added(into: Any, a: Any, b: Any, *_: Any, **__: Any) -> int:
    return int(2 * a[0] * a[1] * b[1])


ADDED = {torch.ops.aten.addmm_: _added}
"""Products that are added to what is there, which torch's counter does not know."""


@dataclass(frozen=True)
class Pass:
    """A pass that is ready to run: its rows, kernel, landmark points and their Gram matrix."""

    X: Tensor
    kernel: Cosine
    prepared: Any
    K: Tensor
    encoder: ResMLP

    def run(self, n: int) -> None:
        """Collect the moments of the first ``n`` rows."""
        stream = ViewStream(self.X[:n], VIEWS, seed=0)
        collect_moments(stream, self.kernel, self.prepared, self.K, memory_budget=BUDGET, progress=False)


def ready(n: int, m: int, *, d: int = 108, width: int = 1032, out: int = 250) -> Pass:
    """Return a pass over ``n`` rows against ``m`` landmarks in two views."""
    torch.manual_seed(0)
    encoder = ResMLP(d, out=out, width=width)
    X = torch.randn(max(n, m), d)
    kernel = default_transform(EmpiricalNTK(encoder, memory_budget=BUDGET), X[:256])
    points = ViewStream(X, VIEWS, seed=0).views_of(torch.arange(m)).flatten(0, 1)
    prepared, rows = kernel.enter(points, gram=True, diagonal=True)
    return Pass(X, kernel, prepared, rows.K.double(), encoder)


def counted(encoder: ResMLP, q: int) -> dict[str, float]:
    """Return the multiply-adds of one sample in two views, by part; those of the moments are in float64.

    Queries and keys of the one token are not computed. Each linear layer costs its weights once forward, once backward
    (the first layer not) and once for the product with the mean feature; against each of ``q`` landmark points it
    costs its inputs and its outputs, and the norm and the head their gradients.
    """
    shapes = [p.shape for name, p in encoder.named_parameters() if p.ndim == 2 and "in_proj" not in name]
    width, first = encoder.norm.weight.numel(), encoder.project_in.weight.numel()
    weights = sum(shape.numel() for shape in shapes) + width**2
    vectors = 2 * width + encoder.project_out.out_features + 1
    sides = sum(sum(shape) for shape in shapes) + 2 * width + vectors
    side = 2 * (q + 1)
    edges = range(0, side, PANEL)
    return {
        "forward": 2 * weights,
        "backward": 2 * (weights - first),
        "mean feature": 2 * (weights + vectors),
        "pairs": 2 * q * sides,
        "moments": sum(min(PANEL, side - start) * (side - start) for start in edges),
    }


def seconds(function: Callable[[], Any]) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def speed(dtype: torch.dtype, shape: tuple[int, int, int] = (512, 1032, 2000), repeats: int = 10) -> float:
    """Return multiply-adds per CPU second of a plain product; the best of some."""
    n, k, m = shape
    A, B = torch.randn(n, k, dtype=dtype), torch.randn(m, k, dtype=dtype)
    return n * k * m / min(seconds(lambda: A @ B.T) for _ in range(repeats))


def run(n: int = 4096, m: int = 1000, *, rounds: int = 2) -> dict[str, float]:
    """Return the work of a row, the time that it takes, and the share of what its work allows."""
    ours = ready(n, m)
    work = counted(ours.encoder, 2 * m)
    with FlopCounterMode(display=False, custom_mapping=ADDED) as counter:
        ours.run(256)
    # In turns, for the clock of a shared machine wanders; the best of each.
    found = [(speed(torch.float32), speed(torch.float64), seconds(lambda: ours.run(n))) for _ in range(rounds)]
    single, double, measured = (best([round[i] for round in found]) for i, best in enumerate((max, max, min)))
    allowed = (sum(work.values()) - work["moments"]) / single + work["moments"] / double
    return {
        **{f"multiply-adds, {part}": number for part, number in work.items()},
        "counted by torch / by formula": counter.get_total_flops() / (2 * 256 * sum(work.values())),
        "float32 products, GFLOP/s": 2e-9 * single,
        "float64 products, GFLOP/s": 2e-9 * double,
        "CPU ms per row": 1e3 * measured / n,
        "allowed CPU ms per row": 1e3 * allowed,
        "achieved / allowed by the counted FLOPs": allowed * n / measured,
        "threads": torch.get_num_threads(),
    }


def main() -> dict[str, Any]:
    """Print the table."""
    result = run()
    for name, value in result.items():
        print(f"{name:42s} {value:12.4g}")
    return result


if __name__ == "__main__":
    main()
