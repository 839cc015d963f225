"""Time against the number of rows: fits of 20,000 to a million rows of ``adult_1m``, and how straight a line they make.

A small network and few landmarks, so that a row is cheap and whatever does not grow with the rows would be seen best.
CPU seconds of the pass and of the whole fit, data at hand; a line through both by least squares. R² is that of the
seconds themselves, where the largest fits count most, so the largest distance from the line stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from krepes import Krepes
from krepes.encoders import MLP
from krepes.engine.phases import PASS, Phases
from krepes.runs.augment import open_stream
from krepes.runs.dataset import open_dataset
from krepes.runs.settings import Settings

SIZES = (20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
M, H, WIDTH, OUT = 50, 16, 32, 16


def fits(sizes: tuple[int, ...] = SIZES) -> list[dict[str, float]]:
    """Return the CPU seconds of the fit of each number of rows, of its pass, and of all that is not the pass."""
    settings = Settings(data="adult_1m", label="label", exclude=("fnlwgt",))
    data, found = open_dataset(settings), []
    torch.manual_seed(0)
    encoder = MLP(data.take(torch.arange(1)).shape[1], width=WIDTH, out=OUT)
    for n in sizes:
        stream = open_stream(settings, data, torch.randperm(data.n)[:n].sort().values)
        spent: dict[str, float] = {}
        begun = time.process_time()
        with mock.patch.object(Phases, "open", timed(spent)):
            Krepes(encoder, m=M, h=H, progress=False).fit(stream)
        whole = time.process_time() - begun
        found.append({"rows": n, "pass": spent[PASS], "fit": whole, "beside the pass": whole - spent[PASS]})
        print(f"{n:9,d} rows: pass {spent[PASS]:7.2f} s, fit {whole:7.2f} s", flush=True)
    return found


def timed(spent: dict[str, float]) -> Any:
    """Return a way to open phases that notes their CPU seconds."""
    opened = Phases.open

    @contextmanager
    def phase(self: Phases, name: str, samples: int | None = None) -> Generator[None, None, None]:
        begun = time.process_time()
        with opened(self, name, samples):
            yield
        spent[name] = time.process_time() - begun

    return phase


def line(rows: list[float], seconds: list[float]) -> dict[str, float]:
    """Return the straight line through some times: its slope, constant, R² and largest relative distance."""
    x, y = np.array(rows), np.array(seconds)
    slope, constant = np.polyfit(x, y, 1)
    rest = y - slope * x - constant
    return {
        "microseconds a row": 1e6 * slope,
        "constant, seconds": constant,
        "constant / largest": constant / y[-1],
        "R2": 1 - float(rest @ rest) / float(((y - y.mean()) ** 2).sum()),
        "largest distance / largest": float(np.abs(rest).max() / y[-1]),
    }


def main() -> dict[str, Any]:
    """Print the times and their lines."""
    torch.set_num_threads(1)
    found = fits()
    rows = [each["rows"] for each in found]
    result: dict[str, Any] = {"fits": found}
    for what in ("pass", "fit"):
        result[what] = line(rows, [each[what] for each in found])
        print(what, {name: float(f"{value:.4g}") for name, value in result[what].items()})
    return result


if __name__ == "__main__":
    main()
