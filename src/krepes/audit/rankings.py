"""The landmarks that each method puts first for every test sample: what all audits of who is near whom start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from krepes.attribution import attributions, compared_scores
from krepes.batches import Batch
from krepes.budget import Budget, MemoryBudget
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.views import ViewStream
from krepes.views.holding import held
from krepes.views.source import as_source

PLACE = torch.int32
"""Of a landmark in a whole order: half the memory of what sorting returns."""
AT_ONCE = 2**24
"""Bytes of samples in float64 that are compared with the landmarks at a time."""


def rankings(
    model: Krepes,
    X: Batch,
    *,
    k: int = 50,
    landmarks: Batch | None = None,
    seed: int = 0,
    memory_budget: MemoryBudget | None = None,
) -> dict[str, Tensor]:
    """Rank the landmarks of every test sample by influence and by each baseline, in one pass.

    Args:
        model: A fitted model.
        X: Un-augmented test samples, ``(t, ...)``, in memory or mapped from disk, or a Dataset of them.
        k: Landmarks to keep a sample.
        landmarks: The un-augmented landmarks, ``(m, ...)``; by default taken from the data of the fit, which a model
            that was loaded from a run folder no longer has.
        seed: Seed of the random ranking.
        memory_budget: For a piece of the pass; by default the model's.

    Returns:
        Indices of landmarks, best first, ``(t, k)``, under ``influence``, ``directional``, ``kernel``, ``random``,
        ``latent cosine`` (if the model explains an encoder) and ``input distance`` (if samples are single tensors).

    Raises:
        InvalidInputError: If there are fewer than ``k`` landmarks.
    """
    m = len(model.landmark_ids_)
    if not 1 <= k <= m:
        raise InvalidInputError(f"k={k} landmarks were asked of m={m}: k must be between 1 and {m}.")
    landmarks = landmark_samples(model, landmarks)
    pieces: dict[str, list[Tensor]] = {}
    for scores in compared_pieces(model, X, landmarks, seed=seed, memory_budget=memory_budget):
        for method, values in scores.items():
            pieces.setdefault(method, []).append(first(values, k))
    return {method: torch.cat(found) for method, found in pieces.items()}


def compared_pieces(
    model: Krepes, X: Batch, landmarks: Batch, *, seed: int = 0, memory_budget: MemoryBudget | None = None
) -> Iterator[dict[str, Tensor]]:
    """Yield what `rankings` ranks by, for consecutive pieces of the samples.

    Args:
        model: A fitted model.
        X: Un-augmented test samples, ``(t, ...)``.
        landmarks: The un-augmented landmarks, ``(m, ...)``.
        seed: Seed of the random scores.
        memory_budget: For a piece; by default the model's.

    Yields:
        Scores by method, ``(b, m)``.
    """
    source, encoder = as_source(X)[0], model.encoder_
    Z_landmarks = None if encoder is None else encoder.encode(landmarks)
    generator = torch.Generator().manual_seed(seed)
    for rows, attribution in attributions(model, X, memory_budget=memory_budget):
        samples = source.take(torch.arange(rows.start, rows.stop))
        Z_test = None if encoder is None else encoder.encode(samples)
        scores = compared_scores(attribution, generator=generator, Z_test=Z_test, Z_landmarks=Z_landmarks)
        if isinstance(samples, Tensor):
            scores["input distance"] = -_distances(samples, landmarks)
        yield scores


def first(scores: Tensor, k: int) -> Tensor:
    """Return the indices of the ``k`` largest of each row of ``scores`` ``(t, m)``, largest first, ``(t, k)``."""
    return scores.topk(k, dim=1).indices.cpu()


def landmark_samples(model: Krepes, given: Batch | None = None) -> Batch:
    """Return the landmarks as they were before any augmentation.

    Args:
        model: A fitted model.
        given: The landmarks, if the caller has them; their number is checked.

    Returns:
        As they were given, else tensors ``(m, ...)``, in the order of ``model.landmark_ids_``.

    Raises:
        InvalidInputError: If the model was loaded and has no data, or another number of landmarks is given.
    """
    if given is not None:
        n, m = as_source(given)[0].n, len(model.landmark_ids_)
        if n != m:
            raise InvalidInputError(f"{n} landmarks were given for a model of m={m}: pass all, in its order.")
        return given
    if not hasattr(model, "stream_"):
        raise InvalidInputError(
            "a model that was loaded from a run folder does not hold its training data: pass landmarks=..., the "
            "samples of model.landmark_ids_ in that order."
        )
    return model.stream_.plain(model.landmarks_)


def held_landmarks(model: Krepes, data: ViewStream) -> Batch:
    """Return the landmarks, not augmented: in memory up to an eighth of the model's budget, else in temporary files."""
    return held(data.plain, model.landmarks_, Budget.of(model.memory_budget))


def require_rankings(found: Mapping[str, Tensor], *, m: int) -> tuple[int, int]:
    """Check that rankings belong together.

    Args:
        found: Indices of landmarks by method, ``(t, K)`` each.
        m: Number of landmarks.

    Returns:
        ``t`` and ``K``.

    Raises:
        InvalidInputError: If there is none, they differ in shape, or name a landmark beyond ``m``.
    """
    shapes = {tuple(top.shape) for top in found.values()}
    if len(shapes) != 1 or any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise InvalidInputError(
            f"rankings must map each method to landmark indices of one shape (t, K), got shapes {sorted(shapes)}."
        )
    last = max(int(top.max()) for top in found.values())
    if last >= m:
        raise InvalidInputError(
            f"the rankings name landmark {last}, but there are labels of {m}: one for each, in order."
        )
    t, K = shapes.pop()
    return t, K


def _distances(X: Tensor, landmarks: Batch) -> Tensor:
    """Return the distances of samples ``(b, ...)`` to landmarks ``(m, ...)``, ``(b, m)``, some of each at a time."""
    samples, source = X.flatten(1), as_source(landmarks)[0]
    size, found = max(1, AT_ONCE // max(1, 8 * samples.shape[1])), []
    for some in torch.arange(source.n).split(size):
        Y = source.take(some).flatten(1).cpu().double()
        found.append(torch.cat([torch.cdist(x.cpu().double(), Y) for x in samples.split(size)]))
    return torch.cat(found, dim=1)
