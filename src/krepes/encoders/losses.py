r"""The losses that pre-train an encoder, on the projections ``Z_a, Z_b`` ``(b, h)`` of two views of a batch.

Each takes row weights ``w`` ``(b,)``, which count how often a row is there: every mean, variance, covariance and
soft-max denominator is weighted, so that ``w = 1`` is the plain loss, ``w_i = 0`` is the batch without row i, and
``w_i = 2`` is row i twice (but for SimCLR, where a row is never its own negative). Training and its replay use the
same functions. The objectives of the same names in `krepes.objectives` are global, closed-form and second order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from krepes.errors import InvalidInputError

Loss = Callable[..., Tensor]
"""``(Z_a, Z_b) -> scalar``, or ``(Z_a, Z_b, w) -> scalar`` with row weights."""
WEIGHTS = ("w", "weight", "weights", "row_weights", "sample_weight", "sample_weights")
"""What the third argument of a loss is called if it is row weights: anything else, such as a temperature, is not."""


def weighted_mean(Z: Tensor, w: Tensor | None) -> Tensor:
    """Return ``Σ w_i z_i / Σ w_i``, ``(...)``, of ``Z`` ``(b, ...)``; the plain mean without weights."""
    if w is None:
        return Z.mean(0)
    return torch.tensordot(w, Z, dims=1) / w.sum()


def _off_diagonal_square(C: Tensor) -> Tensor:
    return C.square().sum() - C.diagonal().square().sum()


def barlow_twins(Z_a: Tensor, Z_b: Tensor, w: Tensor | None = None, *, lam: float = 0.0051) -> Tensor:
    """Return ``Σ (1 - C_ii)² + λ Σ_{i≠j} C_ij²`` of the cross-correlation C (Zbontar et al. 2021)."""
    Z_a, Z_b = (_standardised(Z, w) for Z in (Z_a, Z_b))
    C = Z_a.T @ Z_b / len(Z_a) if w is None else Z_a.T @ (w[:, None] * Z_b) / w.sum()
    return (1 - C.diagonal()).square().sum() + lam * _off_diagonal_square(C)


def _standardised(Z: Tensor, w: Tensor | None) -> Tensor:
    if w is None:
        return F.batch_norm(Z, None, None, training=True)
    centred = Z - weighted_mean(Z, w)
    return centred / (weighted_mean(centred.square(), w) + 1e-5).sqrt()


def vicreg(
    Z_a: Tensor, Z_b: Tensor, w: Tensor | None = None, *, weights: tuple[float, float, float] = (25.0, 25.0, 1.0)
) -> Tensor:
    """Return invariance, variance hinge and covariance, weighted (Bardes et al. 2022)."""
    invariance = weighted_mean((Z_a - Z_b).square().mean(1), w)
    variance, covariance = Z_a.new_zeros(()), Z_a.new_zeros(())
    for Z in (Z_a, Z_b):
        C = _covariance(Z, w)
        variance = variance + F.relu(1 - (C.diagonal() + 1e-4).sqrt()).mean() / 2
        covariance = covariance + _off_diagonal_square(C) / Z.shape[1]
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


def _covariance(Z: Tensor, w: Tensor | None) -> Tensor:
    """Return ``Σ w_i (z_i - z̄)(z_i - z̄)ᵀ / (Σ w_i - 1)``, ``(h, h)``."""
    if w is None:
        return Z.T.cov().reshape(Z.shape[1], -1)
    centred = Z - weighted_mean(Z, w)
    return centred.T @ (w[:, None] * centred) / (w.sum() - 1)


def simclr(Z_a: Tensor, Z_b: Tensor, w: Tensor | None = None, *, temperature: float = 0.2) -> Tensor:
    """Return the normalised temperature-scaled cross entropy over all 2b rows (Chen et al. 2020).

    A row of weight ``w_i`` is an anchor ``w_i`` times, and ``w_i`` times among the candidates of every other anchor.
    """
    b = len(Z_a)
    U = F.normalize(torch.cat([Z_a, Z_b]))
    logits = (U @ U.T / temperature).masked_fill(torch.eye(2 * b, dtype=torch.bool, device=U.device), -torch.inf)
    partner = torch.arange(2 * b, device=U.device).roll(b)
    if w is None:
        return F.cross_entropy(logits, partner)
    w = w.repeat(2)
    top = logits.detach().amax(1, keepdim=True)
    # Weights multiply the exponentials, instead of their logarithms being added: the derivative at zero is finite.
    denominators = ((logits - top).exp() * w).sum(1).log() + top[:, 0]
    terms = denominators - logits[torch.arange(2 * b), partner]
    return weighted_mean(terms, w)


def spectral(Z_a: Tensor, Z_b: Tensor, w: Tensor | None = None) -> Tensor:
    """Return ``-2 E z_aᵀz_b + E (z_aᵀz_b')²`` over all pairs of samples (HaoChen et al. 2021)."""
    attraction = weighted_mean((Z_a * Z_b).sum(1), w)
    G_a, G_b = (Z.T @ Z / len(Z) if w is None else Z.T @ (w[:, None] * Z) / w.sum() for Z in (Z_a, Z_b))
    return (G_a * G_b).sum() - 2 * attraction


def cosine_distance(P: Tensor, T: Tensor, w: Tensor | None = None) -> Tensor:
    """Return ``2 - 2 mean cos(p_i, t_i)``, one order of the views in BYOL (Grill et al. 2020)."""
    return 2 - 2 * weighted_mean(F.cosine_similarity(P, T), w)


LOSSES: dict[str, Loss] = {"barlow_twins": barlow_twins, "simclr": simclr, "spectral": spectral, "vicreg": vicreg}


def weighted(loss: Loss) -> Loss:
    """Return a loss that takes row weights as its third argument.

    Args:
        loss: One of `LOSSES`, or one's own: ``(Z_a, Z_b, w) -> scalar`` with weights ``w`` ``(b,)``.

    Returns:
        The loss itself.

    Raises:
        InvalidInputError: If it takes no weights, so that nothing says what a row contributes to it.
    """
    called = loss.forward if isinstance(loss, nn.Module) else loss
    parameters: list[Any] = list(inspect.signature(called).parameters.values())
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    any_number = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    third = positional[2].name if len(positional) > 2 else None
    if third not in WEIGHTS and not (third is None and any_number):
        name = getattr(loss, "__qualname__", type(loss).__name__)
        instead = "" if third is None else f" (its third argument is {third!r})"
        raise InvalidInputError(
            f"the loss {name!r} takes no row weights{instead}, so nothing says what a row contributes to it. Give it a "
            f"third argument w (b,), and use w in every mean over the batch."
        )
    return loss
