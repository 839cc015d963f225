"""One fit by one process and by two that torchrun started, one thread each: CPU seconds of every phase, by process.

The speed-up that counts is that of CPU seconds: what one process spent, over the most that any of two spent. It is
blind to what else the machine does, and to waiting; wall seconds stand beside it. Landmarks are chosen by the default,
which all processes measure for, and once more drawn uniformly, which leaves nothing but the pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from krepes import Krepes
from krepes.encoders import ResMLP
from krepes.engine.phases import Phases
from krepes.processes import connected
from krepes.views import GaussianNoise, ViewStream

N, M, H = 16_000, 300, 64


SELECTORS = ("rpcholesky", "uniform")


def fit(place: Path, landmarks: str, rank: int) -> None:
    """Fit, and write the CPU seconds of the whole and of each phase."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    spent: dict[str, float] = {}
    opened = Phases.open

    @contextmanager
    def timed(self: Phases, name: str, samples: int | None = None) -> Generator[None, None, None]:
        begun = time.process_time()
        with opened(self, name, samples):
            yield
        spent[name] = time.process_time() - begun

    stream = ViewStream(torch.randn(N, 108), GaussianNoise(0.1), seed=1)
    begun, wall = time.process_time(), time.perf_counter()
    with mock.patch.object(Phases, "open", timed):
        Krepes(ResMLP(108), m=M, h=H, landmarks=landmarks, kernel_kind="exact", progress=False).fit(stream)
    whole = {"fit": time.process_time() - begun, "wall": time.perf_counter() - wall}
    (place / f"{rank}.json").write_text(json.dumps(spent | whole))


def measure(count: int, landmarks: str) -> list[dict[str, float]]:
    """Return what each of ``count`` processes spent."""
    start = [sys.executable]
    if count > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([*start, __file__, place, landmarks], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return [json.loads((Path(place) / f"{rank}.json").read_text()) for rank in range(count)]


def main() -> dict[str, Any]:
    """Print the tables."""
    found: dict[str, Any] = {"n": N, "m": M}
    for landmarks in SELECTORS:
        alone, both = measure(1, landmarks)[0], measure(2, landmarks)
        print(f"landmarks by {landmarks}")
        for name in alone:
            print(f"{name:12s} {alone[name]:8.2f}   " + "  ".join(f"{each[name]:8.2f}" for each in both))
        speedup = alone["fit"] / max(each["fit"] for each in both)
        print(f"CPU seconds of one process over the most of two: {speedup:.2f}")
        found[landmarks] = {"alone": alone, "both": both, "speedup": speedup}
    return found


if __name__ == "__main__":
    if "RANK" in os.environ:
        with connected() as us:
            fit(Path(sys.argv[1]), sys.argv[2], us.rank)
    else:
        fit(Path(sys.argv[1]), sys.argv[2], 0)
