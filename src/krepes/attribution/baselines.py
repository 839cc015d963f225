"""What an influence score must be compared with: latent neighbours, plain kernel similarity, chance; all ``(t, m)``."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.attribution.result import Attribution
from krepes.errors import InvalidInputError


def latent_cosine(Z_test: Tensor, Z_landmarks: Tensor, *, mean: Tensor | None = None) -> Tensor:
    """Return the cosine of encoder embeddings.

    Args:
        Z_test: Embeddings of the test samples, ``(t, d)``.
        Z_landmarks: Embeddings of the un-augmented landmarks, ``(m, d)``.
        mean: Subtracted from both, ``(d,)``; an uncentred encoder puts all its samples into one cone.

    Returns:
        Cosines, ``(t, m)``, float64; zero for an embedding of norm zero.

    Raises:
        InvalidInputError: If the widths differ or an entry is not finite.
    """
    if Z_test.ndim != 2 or Z_landmarks.ndim != 2 or Z_test.shape[1] != Z_landmarks.shape[1]:
        raise InvalidInputError(
            f"embeddings must be (t, d) and (m, d), got {tuple(Z_test.shape)} and {tuple(Z_landmarks.shape)}."
        )
    require_finite(Z_test, "the embeddings of the test samples")
    require_finite(Z_landmarks, "the embeddings of the landmarks")
    centre = 0.0 if mean is None else mean.double()
    Z, W = (torch.nn.functional.normalize(E.double() - centre, dim=1) for E in (Z_test, Z_landmarks))
    return Z @ W.T


def kernel_similarity(attribution: Attribution) -> Tensor:
    """Return the kernel, mean over a landmark's views, ``(t, m)``."""
    return attribution.K_tm.mean(1)


def random_scores(t: int, m: int, *, generator: torch.Generator) -> Tensor:
    """Return uniform scores, ``(t, m)``; drawn row by row, so that pieces of a pass continue one another."""
    return torch.rand(t, m, generator=generator, dtype=torch.float64)


def compared_scores(
    attribution: Attribution,
    *,
    generator: torch.Generator,
    Z_test: Tensor | None = None,
    Z_landmarks: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the influence scores and their baselines by name.

    Args:
        attribution: Of the test samples.
        generator: Draws the random scores.
        Z_test: Embeddings of the test samples, ``(t, d)``, or ``None`` where there is no encoder.
        Z_landmarks: Embeddings of the landmarks, ``(m, d)``, beside ``Z_test``.

    Returns:
        ``influence``, ``directional``, ``latent cosine`` (with embeddings), ``kernel`` and ``random``, ``(t, m)`` each.

    Raises:
        InvalidInputError: If only one of the two sets of embeddings is given, or their numbers do not fit.
    """
    if (Z_test is None) != (Z_landmarks is None):
        raise InvalidInputError("Z_test and Z_landmarks belong together: give both, or none where there is no encoder.")
    t, m = len(attribution), attribution.m
    latent = {} if Z_test is None or Z_landmarks is None else {"latent cosine": latent_cosine(Z_test, Z_landmarks)}
    for found in latent.values():
        if found.shape != (t, m):
            raise InvalidInputError(f"embeddings were given for {tuple(found.shape)} of (t, m) = {(t, m)} samples.")
    return {
        "influence": attribution.scores,
        "directional": attribution.directional,
        **latent,
        "kernel": kernel_similarity(attribution),
        "random": random_scores(t, m, generator=generator),
    }
