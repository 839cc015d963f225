r"""How evenly does a model use its embedding dimensions?

    H(G) = -Σ p_i log p_i / log h,    p = eigenvalues of G / their sum,     G = AᵀA  (paper)   or   AᵀKA

``AᵀA`` depends on the scale of the landmarks' kernel values, ``AᵀKA`` is the metric of the function space; both are
shown, and beside them RankMe (Garrido et al. 2023) of the embeddings, the established criterion.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krepes._checks import require_finite, require_symmetric
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.model import Krepes


def spectral_entropy(G: Tensor) -> float:
    """Return the normalised spectral entropy of a Gram matrix: 1 if all directions are used alike, 0 if only one.

    Args:
        G: Symmetric PSD matrix, ``(h, h)``, ``h >= 2``.

    Returns:
        ``-Σ p log p / log h``.

    Raises:
        InvalidInputError: If ``h`` is one, or ``G`` is zero.

    Example:
        >>> round(spectral_entropy(torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0]))), 6)
        0.5
    """
    require_symmetric(G, "G")
    require_finite(G, "G")
    h = len(G)
    eigenvalues = torch.linalg.eigvalsh(G.double()).clamp_min(0)
    total = float(eigenvalues.sum())
    if h < 2 or total == 0:
        raise InvalidInputError(
            f"spectral entropy needs at least two dimensions and a matrix that is not zero, got h={h} and a trace of "
            f"{total:g}. Fit with h >= 2."
        )
    p = eigenvalues / total
    return float(torch.special.entr(p).sum() / torch.log(torch.tensor(float(h), dtype=p.dtype)))


def rankme(Z: Tensor) -> float:
    r"""Return RankMe, the effective rank of embeddings: ``exp(-Σ p log p)``, ``p = σ_i / Σσ + 1e-7``.

    Args:
        Z: Embeddings, ``(t, h)``.

    Returns:
        A number between 1 and ``min(t, h)``.

    Example:
        >>> round(rankme(torch.eye(5)), 3)
        5.0
    """
    require_finite(Z, "Z")
    return _rankme_of(torch.linalg.svdvals(Z.double()))


def spectrum_of(model: Krepes, X: Batch | None = None) -> dict[str, float]:
    """Return the spectral criteria of a fitted model.

    Args:
        model: Fitted.
        X: Samples, ``(t, ...)``, whose embeddings RankMe judges; by default all training views, from their moments.

    Returns:
        ``entropy`` of AᵀA, ``entropy_kernel`` of AᵀKA, and ``rankme`` of the embeddings.
    """
    A = model.A_
    return {
        "entropy": spectral_entropy(A.T @ A),
        "entropy_kernel": spectral_entropy(A.T @ model.K_mm_ @ A),
        "rankme": _training_rankme(model) if X is None else rankme(model.embed(X)),
    }


def _training_rankme(model: Krepes) -> float:
    """Return RankMe of all training views: the singular values of Z are the roots of the eigenvalues of n Θᵀ M Θ."""
    if model.moments_ is None:
        raise InvalidInputError(
            f"objective '{model.objective_.name}' keeps no moments to take RankMe from: pass samples X to embed."
        )
    theta = model.solution_.theta
    eigenvalues = torch.linalg.eigvalsh(theta.T @ model.moments_.pooled @ theta)
    return _rankme_of(eigenvalues.clamp_min(0).sqrt())


def _rankme_of(singular_values: Tensor) -> float:
    p = singular_values / singular_values.sum() + 1e-7
    return float(torch.special.entr(p).sum().exp())
