"""Exact or sketched: the cheaper tangent kernel for a given encoder, data and number of landmarks, and why."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from krepes import batches
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.outputs import Output
from krepes.errors import InvalidInputError
from krepes.kernels.base import MeanFeature
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.forms import Form
from krepes.kernels.sketch import SketchedNTK, sketch_cost
from krepes.linalg import without_autocast

logger = logging.getLogger("krepes")

Tangents = EmpiricalNTK | SketchedNTK
Kind = Literal["exact", "sketch", "given"]
KINDS = ("auto", "exact", "sketch")
"""What can be asked for."""
PASSES = 4
"""How often a selector looks at each candidate: once for the diagonal, once a block of landmarks."""


@dataclass(frozen=True)
class KernelChoice:
    """Which kernel was taken, and why.

    Attributes:
        kind: ``"exact"`` or ``"sketch"`` for an encoder's tangent kernel, ``"given"`` for a kernel of the user's.
        reason: One sentence.
    """

    kind: Kind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def tangent_kernel(
    encoder: nn.Module | FrozenEncoder,
    X: Batch,
    m: int,
    *,
    kernel: str = "auto",
    q: int = 4096,
    memory_budget: MemoryBudget = DEFAULT_BUDGET,
    output: Output = None,
    **settings: Any,
) -> tuple[Tangents, KernelChoice]:
    """Return the tangent kernel that should cost least for rows against ``m`` landmark points.

    Args:
        encoder: The network.
        X: Some samples: three are enough.
        m: Number of landmark points.
        kernel: ``"exact"``, ``"sketch"``, or ``"auto"`` to choose by predicted cost.
        q: Features of the sketch.
        memory_budget: Passed on to the kernel. An exact kernel whose landmarks take more than half is not chosen.
        output: Where in the encoder's result the embedding is; see `FrozenEncoder`.
        **settings: Passed on to the kernel: heads, seed, parameters, include_frozen.

    Returns:
        The kernel, and which one it is and why.

    Raises:
        InvalidInputError: If ``kernel`` is not one of the three.
    """
    if kernel not in KINDS:
        raise InvalidInputError(f"kernel={kernel!r} is unknown: choose one of {', '.join(KINDS)}.")
    exact = EmpiricalNTK(FrozenEncoder.of(encoder, output), memory_budget=memory_budget, **settings)
    # One tangent for both: it may hold a copy of the weights, and its rules are proven once.
    sketch = SketchedNTK(exact.tangent, q=q, memory_budget=memory_budget)
    if kernel == "exact":
        return exact, KernelChoice("exact", "as asked")
    if kernel == "sketch":
        return sketch, KernelChoice("sketch", f"as asked, with q={q} features")
    cost_exact, cost_sketch, size = predicted_costs(exact, X, m, q)
    fits = Budget.of(memory_budget).fits(size, share=1 / 2)
    take_exact = cost_exact <= cost_sketch and fits
    choice = KernelChoice(
        "exact" if take_exact else "sketch",
        f"beyond the shared forward and backward pass a row against {m} landmark points costs about "
        f"{_two_digits(cost_exact / 1e6)} million multiply-adds exactly and {_two_digits(cost_sketch / 1e6)} million "
        f"by a sketch of q={q} features; exact landmarks take {_two_digits(size / (1 << 20))} MiB"
        f"{'' if fits else ', more than half the memory budget'}",
    )
    logger.info("kernel='auto' took %s", choice)
    return (exact if take_exact else sketch), choice


def _two_digits(value: float) -> str:
    """Return a number to two digits, in full: 1,200 and not 1.2e+03."""
    return f"{float(f'{value:.2g}'):,.12g}"


def sketch_to_choose_by(exact: EmpiricalNTK, X: Batch, m: int, q: int) -> SketchedNTK | None:
    """Return the sketch in which landmarks of an exact kernel should be chosen, or ``None`` to choose them exactly.

    A selector asks for kernel values of every candidate again and again, and an exact kernel runs the network for each
    of them; features are made once. They are worth their noise where they save more than half of the multiply-adds:
    never for small networks of single tokens, always for convolutions.

    Args:
        exact: The kernel.
        X: Some samples: three are enough.
        m: Number of landmarks, not more than half of the features, beyond which these have too few directions.
        q: Features of the sketch.

    Returns:
        A sketch that shares the kernel's tangent features, or ``None``.
    """
    if 2 * m > q:
        return None
    exact.tangent.probe(X)
    forms = exact.tangent.forms(batches.take(X, slice(0, 1)))
    network = 2 * sum(form.costs()[2] for form in forms)
    rows = sum(min(m * form.costs()[0], m * form.costs()[1] + PASSES * form.costs()[2]) for form in forms)
    sketch = SketchedNTK(exact.tangent, q=q, memory_budget=exact.budget)
    once = network + sum(min(sketch_cost(form, q)) for form in forms) + m * q
    return sketch if 2 * once < PASSES * network + rows else None


@without_autocast()
def look_once(kernel: Tangents, sketch: SketchedNTK, X: Batch) -> tuple[MeanFeature, Tensor]:
    """Return the mean feature of ``X`` ``(n, ...)`` in one kernel and its features in another, looking at it once.

    Args:
        kernel: Whose mean feature is wanted.
        sketch: The kernel itself, or one that shares its tangent features.
        X: Samples.

    Returns:
        What ``kernel.mean_feature(X)`` returns, and ``sketch.features(X)``, ``(n, q)``.
    """
    n = batches.count(X)
    if isinstance(kernel, SketchedNTK):
        features = sketch.features(X)
        return kernel.mean_of([(torch.full((n,), 1.0 / n, dtype=torch.float64), features)]), features
    pieces: list[Tensor] = []

    def keep(forms: list[Form]) -> None:
        pieces.append(sketch.sketched(forms))

    return kernel.mean_feature(X, beside=keep), torch.cat(pieces)


def predicted_costs(exact: EmpiricalNTK, X: Batch, m: int, q: int) -> tuple[float, float, float]:
    """Return multiply-adds per row exactly and by a sketch, and the bytes of the exact landmark side."""
    forms = exact.tangent.forms(batches.take(X, slice(0, 1)))
    cost_exact = cost_sketch = size = 0.0
    for form in forms:
        by_factors, explicit, writing = form.costs()
        route = form.route(m)
        cost_exact += m * by_factors if route == "factors" else m * explicit + writing
        cost_sketch += min(sketch_cost(form, q))
        kept = sum(getattr(form, name).numel() for name in form.fields) if route == "factors" else explicit
        size += 4.0 * m * kept
    return cost_exact, cost_sketch + m * q, size
