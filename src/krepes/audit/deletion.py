r"""Inference-time ablation: how much confidence does a k-NN lose without the landmarks that explain its sample?

    drop_t = P(ŷ_t | all landmarks) - P(ŷ_t | without the first ``delete`` of t's ranking),   ŷ_t = k-NN's decision

The k-NN votes among the landmarks, see `krepes.audit.votes`. Deleting a sample's nearest neighbours is the hardest
rival, for the classifier is built on them; random landmarks are the easiest. What else could be meant by a deletion,
and what to compare it with, stands side by side in `krepes.audit.deletions`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

from krepes.audit.intervals import mean_interval
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.rankings import landmark_samples, rankings, require_rankings
from krepes.audit.votes import PIECE, Vote, shares, voters
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.model import Krepes


def confidence_drop(
    model: Krepes,
    X: Batch,
    landmark_labels: Labels,
    *,
    landmarks: Batch | None = None,
    k: int = 50,
    delete: int = 10,
    seed: int = 0,
) -> pd.DataFrame:
    """Delete each sample's top landmarks and measure a k-NN's loss of confidence.

    Args:
        model: A fitted model of an encoder.
        X: Un-augmented test samples, ``(t, ...)``.
        landmark_labels: Classes of the landmarks, ``(m,)``.
        landmarks: The un-augmented landmarks; by default from the data of the fit.
        k: Neighbours that vote.
        delete: Landmarks to delete.
        seed: Seed of the random deletion.

    Returns:
        A DataFrame; see `confidence_drop_of`.
    """
    encoder = voting_encoder(model)
    landmarks = landmark_samples(model, landmarks)
    ranked = rankings(model, X, k=delete, landmarks=landmarks, seed=seed)
    E_test, E_landmarks = encoder.encode(X), encoder.encode(landmarks)
    return confidence_drop_of(ranked, E_test, E_landmarks, landmark_labels, k=k, delete=delete)


def confidence_drop_of(
    ranked: Mapping[str, Tensor],
    E_test: Tensor,
    E_landmarks: Tensor,
    landmark_labels: Labels,
    *,
    k: int = 50,
    delete: int = 10,
    vote: Vote = "uniform",
) -> pd.DataFrame:
    """Measure a k-NN's loss of confidence for each ranking of landmarks.

    Args:
        ranked: For each method the landmarks of every test sample, best first, ``(t, K)``, ``K >= delete``.
        E_test: Embeddings of the test samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        landmark_labels: Their classes, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.
        vote: How neighbours vote, one of `krepes.audit.votes.VOTES`.

    Returns:
        One row per method: ``method``, ``before`` (confidence), ``estimate`` (mean drop), ``low``, ``high``, ``n``.
    """
    codes, classes, t = deletable(ranked, E_test, E_landmarks, landmark_labels, k=k, delete=delete)
    befores: list[Tensor] = []
    drops: dict[str, list[Tensor]] = {method: [] for method in ranked}
    for part in torch.arange(t).split(PIECE):
        near, weights = voters(E_test[part], E_landmarks, k + delete, vote=vote)  # (b, k + delete)
        before, decision = shares(codes[near[:, :k]], weights[:, :k], classes).max(1)
        befores.append(before)
        for method, top in ranked.items():
            deleted = (near[:, :, None] == top[part][:, None, :delete].cpu()).any(2)
            after = confidence_after(deleted, codes[near], weights, decision, classes, k)
            drops[method].append(before - after)
    rows, held = [], float(torch.cat(befores).mean())
    for method, values in drops.items():
        drop = mean_interval(torch.cat(values))
        rows.append((method, held, float(drop.estimate), float(drop.low), float(drop.high), t))
    return pd.DataFrame(rows, columns=["method", "before", "estimate", "low", "high", "n"])


def voting_encoder(model: Krepes) -> FrozenEncoder:
    """Return the encoder whose embeddings a k-NN uses; refuse a model of a kernel."""
    if model.encoder_ is None:
        raise InvalidInputError(
            f"this model explains the kernel {type(model.kernel).__name__}: there is no encoder whose embeddings a "
            f"k-NN could use. Call confidence_drop_of with embeddings of your own."
        )
    return model.encoder_


def deletable(
    ranked: Mapping[str, Tensor], E_test: Tensor, E_landmarks: Tensor, labels: Labels, *, k: int, delete: int
) -> tuple[Tensor, int, int]:
    """Check that landmarks can be deleted from a vote.

    Args:
        ranked: Rankings by method, ``(t, K)``.
        E_test: Embeddings of the test samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        labels: Their classes, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.

    Returns:
        Codes of the landmarks' classes ``(m,)``, the number of classes, and ``t``.

    Raises:
        InvalidInputError: If too few landmarks remain, too few are ranked, or numbers do not fit.
    """
    m = len(E_landmarks)
    t, reach = require_rankings(ranked, m=m)
    if m - delete < k or not 1 <= delete <= reach or t != len(E_test) or k < 1:
        raise InvalidInputError(
            f"k={k} neighbours after deleting {delete} of m={m} landmarks, ranked to depth {reach} for {t} samples "
            f"with {len(E_test)} embeddings: needs 1 <= k <= m - delete, 1 <= delete <= depth, one embedding a sample."
        )
    names, (codes,) = shared_codes(landmarks=labels)
    require_count(codes, m, "landmark labels")
    return codes, len(names), t


def confidence_after(deleted: Tensor, found: Tensor, weights: Tensor, decision: Tensor, classes: int, k: int) -> Tensor:
    """Return the confidence in a decision after some neighbours were deleted and the next ones moved up.

    Args:
        deleted: Which of the nearest neighbours are gone, ``(t, r)``, with ``r - k`` of them at most.
        found: Classes of the neighbours, nearest first, ``(t, r)``.
        weights: Of their votes, ``(t, r)``.
        decision: The class whose share is asked for, ``(t,)``.
        classes: Number of classes.
        k: Neighbours that vote.

    Returns:
        ``(t,)``.
    """
    kept = ~deleted
    voting = weights * (kept & (kept.cumsum(1) <= k))
    return shares(found, voting, classes).gather(1, decision[:, None])[:, 0]
