"""How long one sample takes on this machine, in each thing that a fit does with it: a few batches of the real work."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.budget import Budget
from krepes.engine.moments import MomentSum, moments_of
from krepes.engine.rows import input_size
from krepes.kernels.auto import look_once
from krepes.kernels.base import Kernel
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.store import Prepared
from krepes.model import Krepes
from krepes.model.choosing import Candidates
from krepes.objectives.base import MomentObjective
from krepes.runs.footprint import batch_inside, forms_of

SOLVED = 1024
"""Rows of a solve that is timed."""
LONG_ENOUGH = 0.7
"""Seconds after which a timing is believed."""
MOST = 64
"""Samples of the longest timing."""


@dataclass(frozen=True)
class Rates:
    """Seconds of one sample.

    Attributes:
        read: Reading it, not augmented.
        views: Reading it and making all its views.
        look: Going through the encoder for the mean feature, and for features of a sketch if these are wanted.
        features: Going through the encoder for features alone.
        enter: Going through the encoder to become a landmark point.
        row: Going through the encoder for kernel values against all landmark points.
        sums: Adding its rows to the moments.
        product: One multiply-add of a large matrix product.
    """

    read: float
    views: float
    look: float
    features: float
    enter: float
    row: float
    sums: float
    product: float


def calibrate(model: Krepes, candidates: Candidates | None) -> Rates:
    """Return the seconds of one sample.

    Args:
        model: Not fitted, but its stream, its reference and its base kernel are set.
        candidates: Among which landmarks will be chosen, or ``None`` if they are named.

    Returns:
        The rates.
    """
    stream, kernel, points = model.stream_, model.base_kernel_, model.p_ * model.m_
    order = torch.arange(min(stream.n, MOST))
    X = batches.map_tensors(lambda x: x[0], stream.views_of(order))
    most = len(order)

    together = min(most, batch_inside(model, points))

    def of(work: Callable[[Batch], Any]) -> float:
        return seconds_each(lambda k: work(batches.take(X, slice(0, k))), most, together)

    sketch = None if candidates is None else candidates.sketch
    tangent = isinstance(kernel, (EmpiricalNTK, SketchedNTK))
    mean = kernel.mean_feature(batches.take(X, slice(0, 2))) if model.transforms_[0] else None

    def row(q: int) -> float:
        prepared = prepared_like(kernel, X, q)
        return of(lambda x: kernel.rows(x, prepared, diagonal=True, mean=mean))

    return Rates(
        read=seconds_each(lambda k: stream.plain(order[:k]), most),
        views=seconds_each(lambda k: stream.views_of(order[:k]), most),
        look=of(lambda x: look_once(kernel, sketch, x) if tangent and sketch is not None else kernel.mean_feature(x)),  # type: ignore[arg-type]
        features=of(sketch.features) if sketch is not None else 0.0,
        enter=of(lambda x: kernel.enter(x, diagonal=True, mean=mean)),
        row=_extrapolated(row, points, _held(model, points)),
        sums=_sums(model.p_, points),
        product=_product(),
    )


def seconds_each(work: Callable[[int], Any], most: int, first: int = 1) -> float:
    """Return the seconds of one sample, from as many as take long enough, each number tried once.

    Args:
        work: Does something with so many samples.
        most: Not more than these.
        first: Not fewer than these: what is done together in the real work is done together here.

    Returns:
        Seconds.
    """
    work(1)  # whatever happens only once
    k = first
    while True:
        started = time.perf_counter()
        work(k)
        spent = time.perf_counter() - started
        if spent >= LONG_ENOUGH or k >= most:
            return spent / k
        k = min(most, k * max(2, min(16, int(LONG_ENOUGH / max(spent, 1e-4)))))


def prepared_like(kernel: Kernel, X: Batch, points: int) -> Any:
    """Return prepared points of the right number, of which only a few were looked at.

    Args:
        kernel: Without its transforms.
        X: Some samples.
        points: How many the fit will have.

    Returns:
        What ``kernel.rows`` takes.
    """
    few = batches.take(X, slice(0, 4))
    k = batches.count(few)
    if isinstance(kernel, SketchedNTK):
        return kernel.features(few).repeat(-(-points // k), 1)[:points]
    if isinstance(kernel, EmpiricalNTK):
        prepared = Prepared(points, kernel.budget, kernel.contraction)
        for rows, forms in kernel.chunks(few, m=1):
            prepared.add(forms, rows)
        prepared.repeat(k)
        prepared.finish()
        return prepared
    return kernel.prepare(batches.take(X, torch.arange(points) % batches.count(X)))


def _extrapolated(seconds: Callable[[int], float], q: int, held: int) -> float:
    """Return the seconds against ``q`` points; where memory holds fewer, on a line through two smaller numbers."""
    if q <= held:
        return seconds(q)
    half, whole = seconds(max(1, held // 2)), seconds(held)
    return whole + max(whole - half, 0.0) * (q - held) / max(held - held // 2, 1)


def _held(model: Krepes, points: int) -> int:
    """Return how many of the landmark points fit into memory: no file is written for a forecast."""
    kernel = model.base_kernel_
    if not isinstance(kernel, EmpiricalNTK):
        return points
    each = Prepared(points, kernel.budget, kernel.contraction).size(forms_of(model)) / points
    return max(1, min(points, int(kernel.budget.bytes / 2 / each)))


def _sums(p: int, points: int) -> float:
    rows: Tensor = torch.rand(p, MOST, points + 1, dtype=torch.float64)
    total = MomentSum(torch.eye(points, dtype=torch.float64))
    return seconds_each(lambda k: total.add(rows[:, :k]), MOST)


def _product() -> float:
    A = torch.rand(512, 1024)
    return seconds_each(lambda k: [A @ A.T for _ in range(k)], 64) / (512 * 512 * 1024)


class MadeUpRows:
    """Rows that a solve may be timed on, ``(p, n, q + 1)``; satisfies `krepes.objectives.base.RowSource`."""

    def __init__(self, Kbar: Tensor, K: Tensor, budget: Budget) -> None:
        self.Kbar, self.K, self.budget, self.n = Kbar, K, budget, Kbar.shape[1]

    def batches(self, size: int, chosen: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield the rows, ``size`` samples at a time: all batches, or the ``chosen`` numbers."""
        parts = self.Kbar.split(size, dim=1)
        yield from parts if chosen is None else (parts[number] for number in chosen)


def solve_seconds(model: Krepes, width: int) -> float:
    """Return the seconds of a solve on made-up rows of the right size, whose spectrum decays as that of a kernel.

    Args:
        model: Set up for a forecast.
        width: Numbers of a row.

    Returns:
        Seconds.
    """
    q, n = model.p_ * model.m_, min(model.n_samples_, SOLVED)
    objective = model.objective_
    sampled = min(model.n_samples_, getattr(objective, "curvature_rows", model.n_samples_))
    draw = torch.Generator().manual_seed(0)
    F = torch.randn(q, q, generator=draw, dtype=torch.float64) / torch.arange(1.0, q + 1.0, dtype=torch.float64)
    G = torch.randn(model.p_, n, q, generator=draw, dtype=torch.float64)
    G = (G + 3 * G[:1]) / torch.arange(1.0, q + 1.0, dtype=torch.float64)
    beside = torch.randn(model.p_, n, width - q, generator=draw, dtype=torch.float64)
    Kbar = torch.nn.functional.pad(torch.cat([G @ F.T, beside], dim=2), (0, 1), value=1.0)
    model.K_mm_, model._rcond = F @ F.T, 1e-6
    # As much of these few rows is kept between products as of all that the curvature is taken of.
    few = Budget(max(1, model._budget.bytes * n // max(n, sampled)))
    data: Any = MadeUpRows(Kbar, model.pass_gram_, few)
    if isinstance(objective, MomentObjective):
        inputs = (
            torch.randn(model.p_, n, input_size(model.reference_), generator=draw) if objective.needs_inputs else None
        )
        data = moments_of(Kbar, model.pass_gram_, diagonal=Kbar.square().sum(2), X=inputs)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.solved(data, damping=model.damping, relative=model.relative)
    spent = time.perf_counter() - started
    if isinstance(objective, MomentObjective):
        return spent
    # A product costs about two values. Where it is of a sample, so are the values of a search, and of all rows are the
    # expansion (two values), the loss of the step and of the corrected one, and two products that tell its error.
    # One product more confirms each damping.
    tries = sum(len(step.grid) or 1 for step in found.steps)
    products = 2 * (found.iterations + tries)
    of_all = 8 if sampled < model.n_samples_ else 2
    work = of_all * model.n_samples_ + (tries + products) * sampled
    return spent * work / (n * (2 + tries + products))
