r"""Inference-time ablation: how much confidence does a k-NN lose without the landmarks that explain its sample?

    drop_t = P(ŷ_t | all landmarks) - P(ŷ_t | without the first ``delete`` of t's ranking),   ŷ_t = k-NN's decision

The k-NN votes among the landmarks by Euclidean distance of encoder embeddings. Deleting a sample's nearest neighbours
is the hardest rival, for the classifier is built on them; random landmarks are the easiest.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.audit.intervals import mean_interval
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.rankings import landmark_samples, rankings, require_rankings
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.model import Krepes

# Rows of distances held at once.
PIECE = 2048


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

    Raises:
        InvalidInputError: If the model explains a kernel, not an encoder.
    """
    encoder = model.encoder_
    if encoder is None:
        raise InvalidInputError(
            f"this model explains the kernel {type(model.kernel).__name__}: there is no encoder whose embeddings a "
            f"k-NN could use. Call confidence_drop_of with embeddings of your own."
        )
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
) -> pd.DataFrame:
    """Measure a k-NN's loss of confidence for each ranking of landmarks.

    Args:
        ranked: For each method the landmarks of every test sample, best first, ``(t, K)``, ``K >= delete``.
        E_test: Embeddings of the test samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        landmark_labels: Their classes, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.

    Returns:
        One row per method: ``method``, ``before`` (confidence), ``estimate`` (mean drop), ``low``, ``high``, ``n``.

    Raises:
        InvalidInputError: If too few landmarks remain, or too few are ranked.
    """
    m = len(E_landmarks)
    t, reach = require_rankings(ranked, m=m)
    if m - delete < k or not 1 <= delete <= reach or t != len(E_test) or k < 1:
        raise InvalidInputError(
            f"k={k} neighbours after deleting {delete} of m={m} landmarks, ranked to depth {reach} for {t} samples "
            f"with {len(E_test)} embeddings: needs 1 <= k <= m - delete, 1 <= delete <= depth, one embedding a sample."
        )
    require_finite(E_test, "the test embeddings")
    require_finite(E_landmarks, "the landmark embeddings")
    names, (codes,) = shared_codes(landmarks=landmark_labels)
    require_count(codes, m, "landmark labels")
    near = _nearest(E_test.double(), E_landmarks.double(), k + delete)  # (t, k + delete)
    before, decision = (_votes(codes[near[:, :k]], len(names)) / k).max(1)
    rows = []
    for method, top in ranked.items():
        kept = ~(near[:, :, None] == top[:, None, :delete].cpu()).any(2)
        voting = kept & (kept.cumsum(1) <= k)
        after = _votes(codes[near], len(names), voting).gather(1, decision[:, None])[:, 0] / k
        drop = mean_interval(before - after)
        rows.append((method, float(before.mean()), float(drop.estimate), float(drop.low), float(drop.high), t))
    return pd.DataFrame(rows, columns=["method", "before", "estimate", "low", "high", "n"])


def _nearest(E_test: Tensor, E_landmarks: Tensor, k: int) -> Tensor:
    """Return the ``k`` nearest landmarks of each sample, nearest first, ``(t, k)``."""
    pieces = [torch.cdist(E, E_landmarks).topk(k, dim=1, largest=False).indices for E in E_test.split(PIECE)]
    return torch.cat(pieces).cpu()


def _votes(found: Tensor, classes: int, voting: Tensor | None = None) -> Tensor:
    """Count classes ``found`` ``(t, k)``, of those ``voting`` ``(t, k)``, ``(t, classes)``."""
    weights = torch.ones(found.shape, dtype=torch.float64) if voting is None else voting.double()
    return torch.zeros(len(found), classes, dtype=torch.float64).scatter_add_(1, found, weights)
