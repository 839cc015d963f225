r"""Kendall's τ_b of two models' class probabilities, with intervals.

    τ_b = Σ_{i<j} s_ij r_ij / √(Σ s_ij² Σ r_ij²),       s_ij = sgn(a_i - a_j),   r_ij = sgn(b_i - b_j)

Three questions: do the models rank the *samples* alike for a class, do they rank the *classes* alike for a sample, and
do they rank all pairs of a sample and a class alike, as the flattened tables of probabilities do?
"""

from __future__ import annotations

from math import sqrt

import torch
from scipy.stats import kendalltau
from torch import Tensor

from krepes.audit.intervals import Z95, Interval
from krepes.budget import DEFAULT_BUDGET, Budget, MemoryBudget

# Samples that estimate the variance of τ over samples: pairs grow with the square.
PROJECTED = 2000
# Of these, samples that are compared with all others at a time.
AT_ONCE = 250


def tau_over_samples(a: Tensor, b: Tensor) -> Interval:
    r"""Return ``τ_b`` of one class's probabilities across samples.

    The interval is that of a U-statistic: :math:`\operatorname{var} τ ≈ 4 \operatorname{var}_i(τ_i) / t` with
    :math:`τ_i` the mean concordance of sample ``i`` with all others, and the share of ties held fixed.

    Args:
        a: Probabilities of one model, ``(t,)``.
        b: Of the other, ``(t,)``.

    Returns:
        Scalars; NaN with an interval of [-1, 1] if a model gives all samples the same probability.

    Example:
        >>> tau_over_samples(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.3, 0.4])).estimate
        tensor(1., dtype=torch.float64)
    """
    tau = torch.tensor(kendalltau(a.cpu().numpy(), b.cpu().numpy()).statistic, dtype=torch.float64)
    if bool(tau.isnan()):
        return Interval(tau, torch.tensor(-1.0).double(), torch.tensor(1.0).double())
    chosen = torch.linspace(0, len(a) - 1, min(len(a), PROJECTED)).long()
    half = 2 * Z95 * _projection(a[chosen], b[chosen]).std(correction=0) / sqrt(len(a))
    return Interval(tau, (tau - half).clamp_min(-1), (tau + half).clamp_max(1))


def _projection(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean concordance of each entry of ``a`` and ``b`` ``(s,)`` with all others, ``(s,)``."""
    agreeing, untied = [], torch.zeros(2, dtype=torch.float64)
    for some, others in zip(a.split(AT_ONCE), b.split(AT_ONCE), strict=True):
        s, r = (torch.sign(x[:, None] - all_of_them).double() for x, all_of_them in ((some, a), (others, b)))
        agreeing.append((s * r).mean(1))
        untied += torch.stack([s.square().sum(), r.square().sum()]) / len(a) ** 2
    return torch.cat(agreeing) / untied.prod().sqrt()


def tau_flattened(P: Tensor, Q: Tensor) -> Interval:
    """Return ``τ_b`` of all ``t x C`` probabilities at once, whatever sample or class they belong to.

    Samples are the unit of the interval: the projection of `tau_over_samples` is averaged over a sample's classes.

    Args:
        P: Probabilities of one model, ``(t, C)``.
        Q: Of the other, ``(t, C)``.

    Returns:
        Scalars; NaN with an interval of [-1, 1] if a model gives the same probability everywhere.
    """
    tau = torch.tensor(kendalltau(P.cpu().numpy().ravel(), Q.cpu().numpy().ravel()).statistic, dtype=torch.float64)
    if bool(tau.isnan()):
        return Interval(tau, torch.tensor(-1.0).double(), torch.tensor(1.0).double())
    t, C = P.shape
    chosen = torch.linspace(0, t - 1, min(t, max(2, PROJECTED // C))).long()
    projection = _projection(P[chosen].flatten(), Q[chosen].flatten()).unflatten(0, (-1, C)).mean(1)
    half = 2 * Z95 * projection.std(correction=0) / sqrt(t)
    return Interval(tau, (tau - half).clamp_min(-1), (tau + half).clamp_max(1))


def tau_over_classes(P: Tensor, Q: Tensor, *, memory_budget: MemoryBudget = DEFAULT_BUDGET) -> Tensor:
    """Return ``τ_b`` of each sample's class probabilities.

    Args:
        P: Probabilities of one model, ``(t, C)``.
        Q: Of the other, ``(t, C)``.
        memory_budget: An eighth of it is what the signs of pairs of classes may take.

    Returns:
        ``(t,)``, float64; NaN where a model gives all classes the same probability.
    """
    i, j = torch.triu_indices(P.shape[1], P.shape[1], offset=1)
    # Two signs and their squares per pair, float64.
    size = Budget.of(memory_budget).rows(4 * 8 * len(i), what="the pairs of classes of a sample", share=1 / 8)
    pieces = []
    for p, q in zip(P.split(size), Q.split(size), strict=True):
        s, r = (torch.sign(x[:, i] - x[:, j]).to(torch.float64) for x in (p, q))  # (b, pairs)
        pieces.append((s * r).sum(1) / (s.square().sum(1) * r.square().sum(1)).sqrt())
    return torch.cat(pieces)
