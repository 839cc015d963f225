"""Lazy influence of a million rows on a hundred outcomes at once, against the pass of the fit: CPU seconds of both.

All rows of ``adult_1m``, a small network, Barlow Twins; outcomes are similarities of random pairs. The replay sees one
draw of the views, as the pass does. By two processes: ``torchrun --nproc-per-node 2 -m benchmarks.outcomes``, whose
seconds are those of both together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from benchmarks.rows import timed
from krepes import Krepes
from krepes.encoders import MLP, pretrain
from krepes.engine.phases import PASS, Phases
from krepes.influence import How, influence_of, rungs, scoring, similarity
from krepes.processes import connected
from krepes.runs.augment import open_stream
from krepes.runs.dataset import open_dataset
from krepes.runs.settings import Settings

N, M, H, WIDTH, OUT, OUTCOMES = 1_000_000, 700, 64, 64, 32, 100


def run(n: int = N, m: int = M, outcomes: int = OUTCOMES) -> dict[str, float]:
    """Return the CPU seconds of the pass, of the influence and of its parts."""
    settings = Settings(data="adult_1m", label="label", exclude=("fnlwgt",))
    data = open_dataset(settings)
    torch.manual_seed(0)
    order = torch.randperm(data.n)
    few, stream = (open_stream(settings, data, order[:size].sort().values) for size in (10_000, n))
    encoder = pretrain(MLP(data.take(order[:1]).shape[1], width=WIDTH, out=OUT), few, epochs=1, progress=False).encoder
    spent: dict[str, float] = {}
    with mock.patch.object(Phases, "open", timed(spent)):
        model = Krepes(encoder, m=m, h=H, progress=False, memory_budget="2G").fit(stream)
    print(f"pass: {spent[PASS]:.1f} s, fit: {sum(spent.values()):.1f} s", flush=True)
    X = data.take(order[: 2 * outcomes])
    asked = [similarity(model, X[i : i + 1], X[i + 1 : i + 2], name=f"pair {i}") for i in range(0, 2 * outcomes, 2)]
    parts: dict[str, float] = {}
    begun = time.process_time()
    with (
        mock.patch.object(rungs, "forms_of", noted(parts, "forms", scoring.forms_of)),
        mock.patch.object(rungs, "score_all", noted(parts, "scores", scoring.score_all)),
    ):
        found = influence_of(model, asked, method="lazy", how=How(draws=1), progress=False)
    whole = time.process_time() - begun
    assert found.values.shape == (n, outcomes)
    parts["rows, moments, step size"] = whole - sum(parts.values())
    return {"pass": spent[PASS], "influence": whole, **parts}


def noted(parts: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes its CPU seconds."""

    def call(*given: Any, **named: Any) -> Any:
        begun = time.process_time()
        result = function(*given, **named)
        parts[name] = time.process_time() - begun
        return result

    return call


def main() -> dict[str, Any]:
    """Print the seconds of all processes together."""
    torch.set_num_threads(1)
    with connected() as us:
        own = run()
        result = {name: sum(us.parts(value)) for name, value in own.items()}
        result |= {"processes": us.count, "influence / pass": result["influence"] / result["pass"]}
        for name, value in result.items() if us.first else ():
            print(f"{name:26s} {value:9.2f}")
    return result


if __name__ == "__main__":
    main()
