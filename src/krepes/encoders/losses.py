"""The losses that pre-train an encoder, on the projections ``Z_a, Z_b`` ``(b, h)`` of two views of a batch.

These drive stochastic training of a network; the objectives of the same names in `krepes.objectives` are global,
closed-form and second order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def _off_diagonal_square(C: Tensor) -> Tensor:
    return C.square().sum() - C.diagonal().square().sum()


def barlow_twins(Z_a: Tensor, Z_b: Tensor, *, lam: float = 0.0051) -> Tensor:
    """Return ``Σ (1 - C_ii)² + λ Σ_{i≠j} C_ij²`` of the cross-correlation C (Zbontar et al. 2021)."""
    Z_a, Z_b = (F.batch_norm(Z, None, None, training=True) for Z in (Z_a, Z_b))
    C = Z_a.T @ Z_b / len(Z_a)
    return (1 - C.diagonal()).square().sum() + lam * _off_diagonal_square(C)


def vicreg(Z_a: Tensor, Z_b: Tensor, *, weights: tuple[float, float, float] = (25.0, 25.0, 1.0)) -> Tensor:
    """Return invariance, variance hinge and covariance, weighted (Bardes et al. 2022)."""
    invariance = F.mse_loss(Z_a, Z_b)
    variance, covariance = Z_a.new_zeros(()), Z_a.new_zeros(())
    for Z in (Z_a, Z_b):
        variance = variance + F.relu(1 - (Z.var(0) + 1e-4).sqrt()).mean() / 2
        covariance = covariance + _off_diagonal_square(Z.T.cov()) / Z.shape[1]
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


def simclr(Z_a: Tensor, Z_b: Tensor, *, temperature: float = 0.2) -> Tensor:
    """Return the normalised temperature-scaled cross entropy over all 2b rows (Chen et al. 2020)."""
    b = len(Z_a)
    U = F.normalize(torch.cat([Z_a, Z_b]))
    logits = (U @ U.T / temperature).masked_fill(torch.eye(2 * b, dtype=torch.bool, device=U.device), -torch.inf)
    partner = torch.arange(2 * b, device=U.device).roll(b)
    return F.cross_entropy(logits, partner)


def cosine_distance(P: Tensor, T: Tensor) -> Tensor:
    """Return ``2 - 2 mean cos(p_i, t_i)``, one order of the views in BYOL (Grill et al. 2020)."""
    return 2 - 2 * F.cosine_similarity(P, T).mean()


LOSSES: dict[str, Loss] = {"barlow_twins": barlow_twins, "simclr": simclr, "vicreg": vicreg}
