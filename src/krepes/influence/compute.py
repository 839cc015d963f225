r"""Counterfactual influence of every training sample on any outcome: one adjoint solve each, one pass for all.

    I_i(o) = -∇oᵀ (H + λ I)⁻¹ d/dw_i ∇L(Θ*; w)  =  -( ds/dw_i - Σ_j w_j ds/dw_j ),      s(w) = <v, ∇L(Θ*; w)>

The derivative is along ``e_i - w``: the sample is weighted up and all others down, so influences sum to zero. ``H`` is
the Gauss-Newton matrix at ``Θ*``, the coefficients after the step. This answers "what if this sample were not there?",
which the landmark scores of `krepes.attribution` do not.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.attribution.result import id_array
from krepes.budget import Budget, MemoryBudget
from krepes.engine.init import ENCODER
from krepes.engine.moments import Moments
from krepes.engine.rows import Piece, pieces, with_progress
from krepes.engine.rowstore import RowStore
from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.influence import caution
from krepes.influence.adjoint import Adjoints, solve_adjoints
from krepes.influence.ladder import METHODS, How, Plan, choose, climb, encoder_of, first_sentence, loss_of
from krepes.influence.moment import MomentProducts, SeenRows
from krepes.influence.outcomes import Outcome, fitted_objective
from krepes.influence.result import Influence
from krepes.influence.row import row_sensitivity
from krepes.model import Krepes
from krepes.objectives import MomentObjective
from krepes.objectives.streaming import StreamedObjective
from krepes.views import ViewStream

Values = np.ndarray[Any, np.dtype[np.float64]]


def influence_of(
    model: Krepes,
    outcomes: Outcome | Sequence[Outcome],
    *,
    method: str = "surrogate",
    how: How | None = None,
    stream: ViewStream | None = None,
    ids: Sequence[Any] | None = None,
    damping: float | None = None,
    draws: int = 0,
    path: str | Path | None = None,
    memory_budget: MemoryBudget | None = None,
    progress: bool = True,
) -> Influence:
    """Return the influence of every training sample on every outcome.

    Args:
        model: A fitted model.
        outcomes: One or many, made by the functions of `krepes.influence`; hundreds share the pass.
        method: ``"surrogate"`` through the kernel model; ``"lazy"``, ``"warm"`` or ``"replay"`` of the training; or
            ``"auto"`` for the best that data, loss and ``how.seconds`` allow. `krepes.influence.ladder` has more.
        how: What replays need: loss, recordings, sizes, seconds.
        stream: The training data; needed for a loaded model, else the stream of the fit.
        ids: The user's row ids, one per sample; by default ``0..n-1``.
        damping: Absolute ``λ`` of ``(H + λ I)`` of the surrogate; by default the one the fit chose.
        draws: Zero for the very views of the fit. Otherwise the mean over so many new draws of the views, one pass for
            each: what a sample does on average over its augmentations, which predicts retraining better.
        path: Of the surrogate, a ``.npy`` file for the values, mapped from there; without it they are held in memory.
            Of a warm or whole replay, the beginning of the names of files that keep what is finished of the reverse
            pass, from which a killed one goes on.
        memory_budget: For the kernel rows of a batch, and for the values if there is no ``path``; by default the
            model's. Beside them an outcome holds ``(q + 2 p² h) h`` numbers, whatever n.
        progress: Show a bar for each pass.

    Returns:
        The influences.

    Raises:
        InvalidInputError: If there is no outcome or no stream, sizes disagree, or the values exceed the budget.
        UnsupportedEncoderError: If a replay was asked for and torch knows no second derivative of a layer.

    Example:
        >>> from krepes.influence import similarity
        >>> from krepes.kernels.classic import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
        >>> model = Krepes(RBF(2.0), m=20, h=5, augment=GaussianNoise(0.1), progress=False).fit(X)
        >>> found = influence_of(model, similarity(model, X[:1], X[1:2]), progress=False)
        >>> found.values.shape, bool(abs(found.values.sum()) < 1e-9)
        ((100, 1), True)
    """
    chosen = [outcomes] if isinstance(outcomes, Outcome) else list(outcomes)
    if not chosen:
        raise InvalidInputError("no outcome was given. Make one, for instance by krepes.influence.similarity.")
    require_range(draws, "draws", low=0)
    if method not in {*METHODS, "auto"}:
        raise InvalidInputError(f"method={method!r} is unknown: choose one of {', '.join(METHODS)} or auto.")
    budget = Budget.of(model.memory_budget if memory_budget is None else memory_budget)
    if method != "surrogate":
        seen, asked = _stream(model, stream), how or How()
        failed: dict[str, str] = {}
        while (plan := _plan(model, chosen, method, asked, seen, failed, progress)).method != "surrogate":
            try:
                return _replayed(model, chosen, plan, asked, seen, ids, path, budget.bytes, progress)
            except (InvalidInputError, UnsupportedEncoderError) as error:
                if method != "auto":
                    raise
                failed[plan.method] = first_sentence(error)
    objective, solution = fitted_objective(model), model.solution_
    said = caution.of_surrogate(objective, model.init)
    _warn(said)
    labels = _labels(ids, model.n_samples_)
    passes, began = list(_passes(model, stream, draws)), time.monotonic()
    values = _allocate((model.n_samples_, len(chosen)), path, budget)
    damping = solution.damping_absolute if damping is None else damping
    free = len(model.K_mm_) if model.init == ENCODER else None
    adjoints = solve_adjoints(
        objective, model.data_, solution.theta, chosen, damping=damping, tol=solution.tol, free=free
    )
    score = _scorer(objective, model, adjoints)
    for source in passes:
        start = 0
        for index, piece in enumerate(_pieces(model, objective, source, budget, progress)):
            stop = start + piece.Kbar.shape[1]
            values[start:stop] -= score(index, piece).numpy() / len(passes)
            start = stop
    values -= values.mean(0)
    names, seconds = tuple(o.name for o in chosen), time.monotonic() - began
    about = {"caution": said}
    return Influence(values, names, labels, adjoints.damping, adjoints.residuals, seconds=seconds, details=about)


def _warn(said: str | None, depth: int = 0) -> None:
    """Tell what is known against an answer, to the caller of `influence_of`, ``depth`` functions below which it is."""
    if said is not None:
        warnings.warn(said, UserWarning, stacklevel=3 + depth)


def _plan(
    model: Krepes,
    outcomes: list[Outcome],
    method: str,
    how: How,
    stream: ViewStream,
    failed: dict[str, str],
    progress: bool,
) -> Plan:
    """Return the rung that was asked for, or the best that has not ``failed`` yet."""
    if method != "auto":
        return Plan(method)
    return choose(model, outcomes, how, stream, failed=failed, progress=progress)


def _replayed(
    model: Krepes,
    outcomes: list[Outcome],
    plan: Plan,
    how: How,
    stream: ViewStream,
    ids: Sequence[Any] | None,
    path: str | Path | None,
    memory_budget: int,
    progress: bool,
) -> Influence:
    """Return the influence by a replay; a row's is ``n`` times the derivative in its weight."""
    labels = _labels(ids, stream.n)
    said = caution.of_replay(encoder_of(model), loss_of(model, how), plan.method)
    _warn(said, depth=1)
    how = how if plan.rewinds is None else replace(how, rewinds=plan.rewinds)
    found = climb(
        model, outcomes, plan.method, how, stream=stream, path=path, memory_budget=memory_budget, progress=progress
    )
    names, values = tuple(o.name for o in outcomes), found.dw.numpy()
    values *= stream.n  # in place: hundreds of outcomes of a million rows are large
    details = {**found.details, "plan": plan.sentence(), "costs": plan.costs, "caution": said}
    details |= {"no rewinds": plan.refused["rewinds"]} if "rewinds" in plan.refused else {}
    return Influence(values, names, labels, float("nan"), (), plan.method, found.seconds, details)


def _labels(ids: Sequence[Any] | None, n: int) -> np.ndarray[Any, Any]:
    labels = id_array(range(n) if ids is None else ids)
    if len(labels) != n:
        raise InvalidInputError(f"{len(labels)} row ids were given for {n} samples: there must be one for each.")
    return labels


def _allocate(shape: tuple[int, int], path: str | Path | None, budget: Budget) -> Values:
    size = 8 * shape[0] * shape[1]
    if path is not None:
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
    if not budget.fits(size):
        raise InvalidInputError(
            f"the influences of {shape[0]} samples on {shape[1]} outcomes take {Budget(size)}, the memory budget is "
            f"{budget}. Keep them on disk (path=), raise the memory budget, or ask for fewer outcomes at once."
        )
    return np.zeros(shape)


def _passes(model: Krepes, stream: ViewStream | None, draws: int) -> Iterator[ViewStream | RowStore]:
    """Yield what to pass over: the views of the fit, as rows where those were stored, or new draws of them."""
    if not draws and stream is None and isinstance(model.data_, RowStore):
        yield model.data_
        return
    stream = _stream(model, stream)
    yield from (stream.with_seed(stream.seed + draw + 1) for draw in range(draws)) if draws else [stream]


def _stream(model: Krepes, stream: ViewStream | None) -> ViewStream:
    """Return the training data: those given, or those of the fit."""
    stream = getattr(model, "stream_", None) if stream is None else stream
    if stream is None:
        raise InvalidInputError("a loaded model does not hold its training data: pass the ViewStream of the fit.")
    if stream.n != model.n_samples_:
        raise InvalidInputError(f"the stream has {stream.n} samples, the model was fitted on {model.n_samples_}.")
    return stream


def _scorer(objective: Any, model: Krepes, adjoints: Adjoints) -> Callable[[int, Piece], Tensor]:
    """Return ``(batch number, rows) -> ds/dw``, ``(b, O)``."""
    theta, data = model.solution_.theta, model.data_
    if isinstance(objective, StreamedObjective):
        scale = objective.scale(model.n_samples_)
        return lambda index, piece: (
            scale * row_sensitivity(objective.batch_loss(index, piece.Kbar), piece.Kbar, theta, adjoints.V)
        )
    assert isinstance(objective, MomentObjective) and isinstance(data, Moments)
    products = MomentProducts(objective, data, theta)
    sensitivities = [products.sensitivity(v) for v in adjoints.V]

    def score(index: int, piece: Piece) -> Tensor:
        rows = SeenRows.of(piece, theta)
        return torch.stack([part.of_rows(rows) for part in sensitivities], dim=1)

    return score


def _pieces(
    model: Krepes, objective: Any, source: ViewStream | RowStore, budget: Budget, progress: bool
) -> Iterator[Piece]:
    """Yield rows in the order of the samples, float64; the batches of a row objective are those of its loss."""
    if isinstance(source, RowStore):
        yield from (Piece(Kbar, None, None) for Kbar in source.batches(objective.batch))
        return
    whole = isinstance(objective, StreamedObjective)
    inputs = isinstance(objective, MomentObjective) and objective.needs_inputs
    views = source.with_batch_size(objective.batch) if whole else source
    kernel, width = model.pass_kernel_, len(model.pass_gram_)
    for _, X in with_progress(views, "influence", progress):
        found = pieces(X, kernel, model.prepared_, width, budget, inputs=inputs, sums=False)
        rows = (Piece(piece.Kbar.to("cpu", torch.float64), None, piece.X) for piece in found)
        yield from [Piece(torch.cat([part.Kbar for part in rows], dim=1), None, None)] if whole else rows
