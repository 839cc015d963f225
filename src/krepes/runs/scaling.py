r"""What a fit will cost on several GPUs: the phases of a forecast, by what does the work and who shares it.

    seconds on R processes = encoder / faster + reading / readers + numbers,   each divided by R where all share it

``faster`` is how many times faster a GPU is than this machine in the encoder's passes. It is no measurement: it is the
ratio of multiply-adds per second that a GPU is taken to do to those that this machine does. Reading is not taken to
happen beside the encoder's work, as it does not in a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from krepes.engine.phases import KERNEL, LANDMARKS, PASS, REFERENCE, SELECTION, SOLVE
from krepes.runs.calibration import Rates

OPENING, TRAINING, SAVING = "opening", "training", "saving"
PRODUCTS = 4e12
"""Multiply-adds in a second that a GPU is taken to do: 40 % of the 9.75e12 in float32 that are published of an A100."""
READERS = 8
"""Processes that decode for each GPU."""
ENCODER, READING, NUMBERS = "encoder", "reading", "numbers"
ALL, EACH, FIRST = "shared by all", "repeated by each", "done by the first"


@dataclass(frozen=True)
class Work:
    """A part of a phase.

    Attributes:
        phase: Its name.
        kind: Where the time goes: the ``"encoder"``, ``"reading"`` samples, or ``"numbers"`` on the CPU.
        seconds: By one process on this machine.
        shared: Who does it.
    """

    phase: str
    kind: str
    seconds: float
    shared: str


@dataclass(frozen=True)
class Counts:
    """How much a fit does.

    Attributes:
        n: Training samples.
        p: Views.
        m: Landmarks.
        reference: Samples of the reference, none where the kernel is not centred.
        looks: Candidates that are looked at.
        sketched: Whether candidates are measured in a sketch, whose features processes share.
        moments: Whether the pass adds up moments.
    """

    n: int
    p: int
    m: int
    reference: int
    looks: int
    sketched: bool
    moments: bool


def work_of(counts: Counts, rates: Rates, *, chosen: float = 0.0, solve: float = 0.0) -> list[Work]:
    """Return the parts of a fit with trained weights.

    Args:
        counts: How much.
        rates: Seconds of one sample here.
        chosen: Seconds of the whole selection; what is not reading and looking are the selector's own products.
        solve: Seconds of the solve.

    Returns:
        The parts.
    """
    c, points = counts, counts.p * counts.m
    features = ALL if c.sketched else EACH
    choice = max(0.0, chosen - c.looks * (rates.read + (rates.features or rates.row)))
    return [
        Work(REFERENCE, READING, c.reference * rates.read, EACH),
        Work(REFERENCE, ENCODER, c.reference * rates.look, features),
        Work(SELECTION, READING, c.looks * rates.read, features),
        Work(SELECTION, ENCODER, c.looks * (rates.features or rates.row), features),
        Work(SELECTION, NUMBERS, choice, EACH),
        Work(LANDMARKS, READING, c.m * rates.views, EACH),
        Work(LANDMARKS, ENCODER, points * max(rates.enter, rates.row), EACH),
        Work(PASS, READING, c.n * rates.views, ALL),
        Work(PASS, ENCODER, c.p * (c.n - c.m) * rates.row, ALL),
        Work(PASS, NUMBERS, c.n * rates.sums * c.moments, ALL),
        Work(SOLVE, NUMBERS, solve, FIRST if c.moments else ALL),
    ]


def faster(rates: Rates) -> float:
    """Return how many times as many multiply-adds a GPU is taken to do as this machine was measured to do."""
    return max(1.0, PRODUCTS * rates.product)


def on_gpus(parts: Sequence[Work], gpus: Sequence[int], speed: float, *, readers: int = READERS) -> pd.DataFrame:
    """Return the hours of each phase, here and on so many GPUs, one process for each.

    Args:
        parts: Of a fit.
        gpus: Numbers of GPUs.
        speed: How many times faster one is than this machine in the encoder's passes.
        readers: Processes that decode for each.

    Returns:
        A row a phase, and one of the sums; the column ``"mostly"`` says what takes longest on the most GPUs.
    """
    quicker = {ENCODER: speed, READING: float(readers), NUMBERS: 1.0}

    def hours(work: Work, count: int) -> float:
        return work.seconds / quicker[work.kind] / (count if work.shared == ALL else 1) / 3600

    rows = []
    for phase in dict.fromkeys(part.phase for part in parts):
        own = [part for part in parts if part.phase == phase]
        row: dict[str, object] = {"phase": phase, "hours here": sum(part.seconds for part in own) / 3600}
        row |= {f"{count} GPU": sum(hours(part, count) for part in own) for count in gpus}
        longest = max(own, key=lambda part: hours(part, max(gpus)))
        rows.append({**row, "mostly": f"{longest.kind}, {longest.shared}"})
    table = pd.DataFrame(rows)
    whole = {name: table[name].sum() for name in table.columns if name not in {"phase", "mostly"}}
    longest_phase = table["phase"].iloc[int(table[f"{max(gpus)} GPU"].to_numpy().argmax())]
    together = pd.DataFrame([{"phase": "together", **whole, "mostly": longest_phase}])
    return pd.concat([table, together], ignore_index=True)


def of_table(table: pd.DataFrame, parts: Sequence[Work]) -> list[Work]:
    """Return the parts of a forecast: those given, and what its table has beside them.

    Args:
        table: Of a forecast, with ``phase`` and ``seconds``.
        parts: Of the phases that are known in parts.

    Returns:
        All parts.
    """
    seconds = dict(zip(table["phase"], table["seconds"], strict=True))
    who = {OPENING: (READING, EACH), TRAINING: (ENCODER, ALL), KERNEL: (ENCODER, EACH), SAVING: (READING, FIRST)}
    beside = [Work(phase, kind, seconds[phase], shared) for phase, (kind, shared) in who.items() if phase in seconds]
    return [*beside, *parts]
