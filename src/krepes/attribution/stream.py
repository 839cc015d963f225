"""Attributions of any number of test samples: at once, piece by piece within a budget, or only the first k of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from krepes import batches
from krepes.attribution.result import Attribution, Ranking, Top, id_array, require_ranking
from krepes.batches import Batch, require_usable
from krepes.budget import Budget, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.processes import current
from krepes.views.source import as_source

Visitor = Callable[[slice, Attribution], None]
"""Gets each piece of a pass as it goes by, with the places in the test set that it covers."""

# Arrays of the size of the kernel rows that live at once: the rows and their copies, scores, directions, rankings.
COPIES = 8
# Copies of a sample itself: as it is read, and what audits make of it beside.
HELD = 4
# Longer pieces are slower: with 400 landmark points, 1.4 times at 8192 rows and 2.2 times at 32768.
LONGEST_PIECE = 2048


def attribute(model: Krepes, X: Batch, *, ids: Sequence[Any] | None = None) -> Attribution:
    """Return how the landmarks move the embeddings of the samples ``X``, all held at once.

    Args:
        model: A fitted model.
        X: Un-augmented samples, ``(t, ...)``, as `Krepes.transform` takes them, a Dataset of them, or a DataFrame.
        ids: The user's own ids of the samples; by default ``0..t-1``.

    Returns:
        The attribution, ``t x q`` kernel values large; `attributions` gives it in pieces.

    Example:
        >>> from krepes.kernels.classic import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = Krepes(RBF(2.0), m=20, h=5, augment=GaussianNoise(0.1), progress=False).fit(X)
        >>> found = attribute(model, X[:3])
        >>> total = found.directional.sum(1) + found.direction @ found.dgamma
        >>> torch.testing.assert_close(total, found.shift.norm(dim=1))
        >>> found.to_frame(k=2).columns.tolist()
        ['sample', 'rank', 'landmark', 'score', 'kernel', 'along_shift', 'effect']
    """
    source, _ = as_source(model.samples(X))
    return _attribute(model, source.take(torch.arange(source.n)), _ids(ids, source.n))


def attributions(
    model: Krepes, X: Batch, *, ids: Sequence[Any] | None = None, memory_budget: MemoryBudget | None = None
) -> Iterator[tuple[slice, Attribution]]:
    """Yield the attributions of the samples in consecutive pieces, whatever their number.

    Args:
        model: A fitted model.
        X: Un-augmented samples, ``(t, ...)``, in memory or mapped from disk, a Dataset of them, or a DataFrame.
        ids: The user's own ids of the samples; by default ``0..t-1``.
        memory_budget: For a piece, its scores and rankings; by default the model's. The kernel's temporaries have a
            budget of their own.

    Yields:
        The places in ``X`` that a piece covers, and the attribution of those samples.
    """
    source, _ = as_source(model.samples(X))
    names = _ids(ids, source.n)
    size = _piece_size(model, batches.sample_bytes(source.take(torch.arange(1))), memory_budget)
    for start in range(0, source.n, size):
        rows = slice(start, min(start + size, source.n))
        yield rows, _attribute(model, source.take(torch.arange(rows.start, rows.stop)), names[rows])


def attribute_stream(
    model: Krepes,
    X: Batch,
    *,
    k: int = 10,
    by: Ranking = "score",
    visitors: Sequence[Visitor] = (),
    memory_budget: MemoryBudget | None = None,
) -> Top:
    """Return the first ``k`` landmarks of every sample without holding ``t x m`` numbers.

    Args:
        model: A fitted model.
        X: Un-augmented samples, ``(t, ...)``, in memory or mapped from disk, a Dataset of them, or a DataFrame.
        k: Landmarks per sample, at most ``m``.
        by: One of `RANKINGS`.
        visitors: Each is called with every piece of the same pass, so that audits share its kernel rows.
        memory_budget: For a piece; by default the model's. The result itself takes 24 bytes for each of its ``t x k``
            entries.

    Returns:
        Ids, scores and indices, ``(t, k)``.
    """
    require_ranking(k, by, m=len(model.A_) // model.p_)
    X = model.samples(X)
    t = as_source(X)[0].n
    # Filled in place: small results kept between large pieces would leave holes in memory that nothing fits.
    scores, indices = torch.empty(t, k, dtype=torch.float64), torch.empty(t, k, dtype=torch.int64)
    for rows, attribution in attributions(model, X, memory_budget=memory_budget):
        top = attribution.top(k, by=by)
        scores[rows], indices[rows] = top.scores, top.indices
        for visit in visitors:
            visit(rows, attribution)
    return Top(ids=id_array(model.landmark_ids_)[indices.numpy()], scores=scores, indices=indices)


def _piece_size(model: Krepes, sample_bytes: int, memory_budget: MemoryBudget | None = None) -> int:
    """Return how many samples of a model are attributed at a time, within a budget or by default the model's."""
    budget = Budget.of(model.memory_budget if memory_budget is None else memory_budget)
    q = len(model.A_)
    each = COPIES * 8 * q + HELD * sample_bytes
    return budget.rows(each, what=f"a sample against q={q} landmark points", share=1 / 4, most=LONGEST_PIECE)


def _attribute(model: Krepes, X: Batch, ids: Sequence[Any]) -> Attribution:
    require_usable(X, "the test samples")
    K = current().rows(torch.arange(batches.count(X)), lambda part: model.kernel_rows(batches.take(X, part)))
    views = (model.p_, len(model.landmark_ids_))
    return Attribution(
        K_tm=K.unflatten(1, views),
        dA=model.dA_.unflatten(0, views),
        dgamma=model.gamma_,
        landmark_ids=model.landmark_ids_,
        sample_ids=ids,
    )


def _ids(ids: Sequence[Any] | None, t: int) -> Sequence[Any]:
    if t == 0:
        raise InvalidInputError("there is no test sample. At least one is required.")
    if ids is not None and len(ids) != t:
        raise InvalidInputError(f"{len(ids)} ids were given for {t} test samples: there must be one for each.")
    return range(t) if ids is None else ids
