r"""What a fit will cost before it is done: counted work times what one sample of it takes on this machine.

    seconds of a phase = samples counted exactly · seconds of one, from a few batches of the real work

Counts are those of `krepes.engine.phases`; where a selector's own depend on the data, they are estimates. Nothing is
written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch

from krepes import batches, registry
from krepes.engine.phases import KERNEL, LANDMARKS, PASS, REFERENCE, SELECTION, SOLVE, Phases
from krepes.kernels.auto import PASSES, KernelChoice
from krepes.landmarks import given_landmarks
from krepes.model import Krepes
from krepes.model.choosing import Candidates
from krepes.objectives import make_objective
from krepes.objectives.base import MomentObjective
from krepes.runs.adapting import completed, has_weights
from krepes.runs.augment import open_stream
from krepes.runs.calibration import Rates, calibrate, solve_seconds
from krepes.runs.dataset import Dataset, open_dataset, split
from krepes.runs.encoder import fresh_encoder, open_encoder, train_encoder
from krepes.runs.fitting import make_model, require_encoder, require_sizes, require_taken
from krepes.runs.footprint import Sizes, resident, stored_bytes
from krepes.runs.scaling import OPENING, SAVING, TRAINING, Counts, Work, of_table, work_of
from krepes.runs.settings import Settings
from krepes.runs.suiting import suited_to_kind, suited_to_number
from krepes.views import ViewStream
from krepes.views.holding import memory_of
from krepes.views.source import RowsOf
from krepes.views.stream import FINGERPRINT_SAMPLES

SEEN_BY_PROBE = 64
"""Of the reference, what the kernel's rules are chosen on."""
TRAINED = 4
"""Batches of a training that is timed."""
WRITING = 4e8
"""Bytes that a disk takes in a second."""


@dataclass(frozen=True)
class Forecast:
    """What a fit will cost.

    Attributes:
        table: A row a phase: samples through the encoder, seconds, bytes of memory and of disk.
        kernel: Which kernel will be taken, and why.
        exact: Whether every count is exact; a selector that asks an exact kernel has a count that depends on the data.
        parts: The same by what does the work and who shares it, for `krepes.runs.scaling.on_gpus`.
        rates: Seconds of one sample here.
    """

    table: pd.DataFrame
    kernel: KernelChoice
    exact: bool
    parts: list[Work]
    rates: Rates


def forecast(settings: Settings) -> Forecast:
    """Return what `krepes.runs.fit` would cost with some settings; whatever it would refuse is refused.

    Args:
        settings: What would be done.

    Returns:
        The forecast.
    """
    started, before = time.perf_counter(), resident()
    settings = completed(settings)
    dataset = open_dataset(settings)
    settings = suited_to_kind(settings, dataset)
    train, _ = split(dataset.n, settings)
    stream = open_stream(settings, dataset, train)
    settings = suited_to_number(settings, stream)
    objective = require_sizes(settings, stream)
    require_encoder(settings, dataset, stream)
    ready = settings.kernel in registry.KERNELS or has_weights(settings)
    encoder = (open_encoder if ready else fresh_encoder)(settings, dataset, stream)
    require_taken(settings, encoder, stream)
    rows = [_row(OPENING, 0, time.perf_counter() - started, resident() - before, 0)]
    if not ready:
        rows.append(_training(settings, dataset, stream, before))
    model = make_model(settings, encoder, objective, stream.n, progress=False)
    found, rates, exact, parts = phases(model, stream, resident() - before)
    saved = stored_bytes(model, encoder)
    again = dataset.n + FINGERPRINT_SAMPLES  # every sample is read once more for the fingerprints
    rows += [*found, _row(SAVING, 0, again * rates.read + saved / WRITING, 0, saved)]
    table = pd.DataFrame(rows)
    return Forecast(table, model.kernel_choice_, exact, of_table(table, parts), rates)


def phases(model: Krepes, stream: ViewStream, held: int) -> tuple[list[dict[str, Any]], Rates, bool, list[Work]]:
    """Return what each phase of a model's own fit will cost, by which rates, and whether all counts are exact.

    Args:
        model: Not fitted; its stream, reference and base kernel are set here.
        stream: The views.
        held: Bytes that are held already.

    Returns:
        Rows of the table, the rates, whether counts are exact, and the parts of the work.
    """
    begun = time.perf_counter()
    work = Phases(False)
    candidates = set_up(model, stream, work)
    kernel_seconds = time.perf_counter() - begun
    rates = calibrate(model, candidates)
    tangent = work.encoder is not None
    r = min(model.reference, stream.n)
    looked = r if model.transforms_[0] else 0
    looks = 0 if candidates is None else candidates.looks(bool(looked))
    chosen = _selection_seconds(model, candidates, looks, rates)
    points, rest = model.p_ * model.m_, model.p_ * (stream.n - model.m_)
    size, sample = Sizes.of(model, candidates), batches.sample_bytes(model.reference_)
    held, shown = held + memory_of(r, sample, model._budget), memory_of(points, sample, model._budget)
    kept = held + size.mean
    moments = isinstance(model.objective_, MomentObjective)
    on_disk, summed = (0, size.moments) if moments else (stream.n * model.p_ * size.width * 4, 0)
    solved = solve_seconds(model, size.width)
    rows = [
        _row(KERNEL, work.spent[KERNEL].samples, kernel_seconds + r * rates.read, held, 0),
        _row(REFERENCE, looked * tangent, looked * rates.look, kept + size.work, 0),
        _row(SELECTION, _about(looks, candidates) * tangent, chosen, kept + size.work + size.pool, size.pool_disk),
        _row(
            LANDMARKS,
            points * tangent,
            model.m_ * rates.views + points * (rates.enter + max(rates.row - rates.enter, 0.0)),
            kept + size.work + shown + size.sides,
            size.sides_disk,
        ),
        _row(
            PASS,
            rest * tangent,
            rest * rates.row + stream.n * (rates.views + rates.sums * moments),
            kept + size.work + shown + size.sides + (2 * model.p_ + 1) * stream.batch_size * sample + summed,
            size.sides_disk + on_disk,
        ),
        _row(SOLVE, 0, solved, kept + shown + size.sides + 2 * summed, on_disk),
    ]
    sketched = candidates is not None and candidates.sketch is not None
    counts = Counts(stream.n, model.p_, model.m_, looked, _about(looks, candidates), sketched, moments)
    return rows, rates, looks is not None, work_of(counts, rates, chosen=chosen, solve=solved)


def set_up(model: Krepes, stream: ViewStream, work: Phases) -> Candidates | None:
    """Do what a fit does before it looks at the reference, with the part of the reference that decides.

    Args:
        model: Not fitted.
        stream: The views.
        work: Where the work is noted.

    Returns:
        The candidates, or ``None`` where the landmarks are named.
    """
    given = given_landmarks(model.landmarks, stream.n)
    model.objective_ = make_objective(model.objective)
    model.stream_, model.n_samples_, model.p_, model.encoding_ = stream, stream.n, stream.p, None
    model.m_ = model.m if given is None else len(given)
    order = torch.randperm(stream.n, generator=torch.Generator().manual_seed(model.seed))
    reference, pool = (order[:size].sort().values for size in (model.reference, model.candidates))
    with work.open(KERNEL):
        model.reference_ = stream.plain(reference[:SEEN_BY_PROBE])
        model.set_base(model.reference_, model.kernel_kind)
        found = None if given is not None else Candidates.of(model, model.landmarks, pool, reference)
        work.encoder = model.encoder_
    model.require_start()
    return found


def _selection_seconds(model: Krepes, candidates: Candidates | None, looks: int | None, rates: Rates) -> float:
    if candidates is None or looks == 0:
        return 0.0
    c, m = len(candidates.pool), candidates.m
    if looks is None:
        return c * (rates.read + PASSES * rates.row)
    assert candidates.sketch is not None
    return looks * (rates.read + rates.features) + c * m * (2 * candidates.sketch.q + m) * rates.product


def _about(looks: int | None, candidates: Candidates | None) -> int:
    return looks if looks is not None else PASSES * len(candidates.pool) if candidates is not None else 0


def _training(settings: Settings, dataset: Dataset, stream: ViewStream, before: int) -> dict[str, Any]:
    """Return what a training will cost, from short ones that are thrown away: its start, and what a step adds."""
    n, size = min(stream.n, TRAINED * stream.batch_size), min(stream.batch_size, stream.n)
    few = ViewStream(RowsOf(stream.source, torch.arange(n)), stream.augment, seed=stream.seed, batch_size=size)

    def spent(epochs: int) -> float:
        started = time.perf_counter()
        train_encoder(replace(settings, epochs=epochs), dataset, few, progress=False)
        return time.perf_counter() - started

    spent(1)  # what only the first training of a process pays
    once, thrice = spent(1), spent(3)
    each = max(thrice - once, 0.0) / 2 / (n // size)
    steps = settings.epochs * (stream.n // size)
    return _row(TRAINING, 2 * steps * size, steps * each + max(once - each * (n // size), 0.0), resident() - before, 0)


def _row(phase: str, samples: int, seconds: float, memory: int, disk: int) -> dict[str, Any]:
    return {
        "phase": phase,
        "samples through the encoder": samples,
        "seconds": seconds,
        "memory MiB": max(memory, 0) / 2**20,
        "disk MiB": disk / 2**20,
    }
