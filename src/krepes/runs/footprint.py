"""What a fit will hold in memory and leave on disk, in bytes, from the sizes of what it makes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from krepes import batches
from krepes.budget import Budget
from krepes.engine.init import ENCODER, WIDTH
from krepes.kernels.base import Kernel
from krepes.kernels.entk import EmpiricalNTK, chunk_size
from krepes.kernels.forms import Form
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.store import Prepared
from krepes.model import Krepes
from krepes.model.choosing import Candidates
from krepes.objectives.base import MomentObjective


@dataclass(frozen=True)
class Sizes:
    """Bytes of what the phases hold.

    Attributes:
        work: A batch inside the encoder.
        mean: The mean feature of the reference.
        pool: What the selector keeps of the candidates, in memory; ``pool_disk`` in a file.
        pool_disk: See ``pool``.
        sides: The prepared landmark points, in memory; ``sides_disk`` in files.
        sides_disk: See ``sides``.
        moments: Second moments while they are summed.
        width: Not bytes: numbers of a row.
    """

    work: int
    mean: int
    pool: int
    pool_disk: int
    sides: int
    sides_disk: int
    moments: int
    width: int

    @classmethod
    def of(cls, model: Krepes, candidates: Candidates | None) -> Sizes:
        """Return them for a model that was set up."""
        q = model.p_ * model.m_
        width = q + (model._encoder_width() if model.init == ENCODER else 0)
        sides, sides_disk = landmark_bytes(model)
        parameters = sum(p.numel() for p in model.encoder_.parameters.values()) if model.encoder_ is not None else 0
        pool = 0
        if candidates is not None and candidates.selector.measures:
            each = batches.sample_bytes(model.reference_)
            each = each if candidates.sketch is None else candidates.sketch.bytes_per_feature
            pool = len(candidates.pool) * (each + 4 * model.m_)
        inside = model._budget.fits(pool, share=1 / 2)
        return cls(
            work=working_bytes(model, q),
            mean=8 * parameters * model.transforms_[0],
            pool=pool if inside else model._budget.bytes // 4,
            pool_disk=0 if inside else pool,
            sides=sides,
            sides_disk=sides_disk,
            moments=3 * 8 * (model.p_ * (width + 1)) ** 2,
            width=width,
        )


def working_bytes(model: Krepes, columns: int) -> int:
    """Return the bytes of a batch inside the encoder: activations, and gradients while they are written out."""
    kernel = model.base_kernel_
    if not isinstance(kernel, (EmpiricalNTK, SketchedNTK)):
        return Budget.of(model.memory_budget).bytes // 8
    size = batch_inside(model, columns)
    forms = forms_of(model)
    largest = max(form.transient() for form in forms) * kernel.tangent.dtype.itemsize
    return int(size * kernel.tangent.bytes_per_sample + min(size * largest, max(largest, kernel.budget.bytes / 8)))


def batch_inside(model: Krepes, columns: int) -> int:
    """Return how many samples go through the encoder together against so many columns; one without an encoder."""
    kernel = model.base_kernel_
    tangent = isinstance(kernel, (EmpiricalNTK, SketchedNTK))
    return chunk_size(kernel.tangent, kernel.budget, columns=columns) if tangent else 1  # type: ignore[attr-defined]


def landmark_bytes(model: Krepes) -> tuple[int, int]:
    """Return the bytes that prepared landmark points take in memory, and on disk where they are too many for it."""
    kernel, points = model.base_kernel_, model.p_ * model.m_
    if isinstance(kernel, SketchedNTK):
        return points * kernel.bytes_per_feature, 0
    if not isinstance(kernel, EmpiricalNTK):
        return points * batches.sample_bytes(model.reference_), 0
    size = Prepared(points, kernel.budget, kernel.contraction).size(forms_of(model))
    return (size, 0) if kernel.budget.fits(size, share=1 / 2) else (0, size)


def forms_of(model: Krepes) -> list[Form]:
    """Return the gradients of one sample."""
    kernel = model.base_kernel_
    assert isinstance(kernel, (EmpiricalNTK, SketchedNTK))
    return kernel.tangent.forms(batches.take(model.reference_, slice(0, 1)))


def stored_bytes(model: Krepes, encoder: nn.Module | Kernel) -> int:
    """Return the bytes of the run folder, but for rows, which the pass has written."""
    q = width = model.p_ * model.m_
    h = model.h or WIDTH
    if model.init == ENCODER:
        h = model._encoder_width()
        width = q + h
    samples = (q + min(model.reference, model.n_samples_)) * batches.sample_bytes(model.reference_)
    moments = isinstance(model.objective_, MomentObjective)
    numbers = q * q + 2 * (width + 1) * h + moments * (model.p_ * (width + 1)) ** 2
    weights = sum(x.nbytes for x in encoder.state_dict().values()) if isinstance(encoder, nn.Module) else 0
    return samples + 8 * numbers + weights


def resident() -> int:
    """Return the bytes of memory that this process holds, zero where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
