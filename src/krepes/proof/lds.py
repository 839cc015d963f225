r"""How well sums of row scores predict what retraining does: the linear datamodelling score.

A score ``s_ij`` of row ``i`` for outcome ``j`` predicts the outcome of a half ``S`` by ``Σ_{i in S} s_ij``; its LDS is
the Spearman correlation of prediction and retrained outcome over halves, averaged over outcomes (Park et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor


def spearman(A: Tensor, B: Tensor) -> Tensor:
    """Return the rank correlation of each column of ``A`` with that of ``B``, ``(..., halves, t)``, as ``(..., t)``."""
    ranks = (torch.from_numpy(rankdata(X.numpy(), axis=-2)) for X in (A, B))
    a, b = (r - r.mean(-2, keepdim=True) for r in ranks)
    return (a * b).sum(-2) / (a.square().sum(-2) * b.square().sum(-2)).sqrt().clamp(min=1e-12)


def lds(scores: Tensor, member: Tensor, outcomes: Tensor) -> float:
    """Return the linear datamodelling score.

    Args:
        scores: ``(n, t)``.
        member: Which rows each half holds, ``(halves, n)``.
        outcomes: ``(halves, retrainings, t)``; the mean over retrainings is predicted.

    Returns:
        Between -1 and 1.
    """
    return float(spearman(member @ scores.to(member), outcomes.mean(1)).mean())


def noise_ceiling(outcomes: Tensor) -> float:
    r"""Return the LDS that a perfect prediction would have, from the agreement of retrainings of the same half.

    With :math:`\bar r` the mean correlation of two retrainings, the mean of k has the reliability
    :math:`k \bar r / (1 + (k - 1) \bar r)` (Spearman and Brown), and its root bounds a correlation with it.

    Args:
        outcomes: ``(halves, k, t)``, with k at least two.

    Returns:
        Between 0 and 1; zero where retrainings do not agree at all.
    """
    k = outcomes.shape[1]
    pairs = torch.combinations(torch.arange(k)).tolist()
    r = float(np.mean([float(spearman(outcomes[:, a], outcomes[:, b]).mean()) for a, b in pairs]))
    return float(np.sqrt(max(0.0, k * r / (1 + (k - 1) * r))))


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds of 95 % of its bootstrap over halves."""

    value: float
    low: float
    high: float


def lds_interval(scores: Tensor, member: Tensor, outcomes: Tensor, *, resamples: int = 200, seed: int = 0) -> Interval:
    """Return the linear datamodelling score with a bootstrap interval over halves.

    Args:
        scores: ``(n, t)``.
        member: Which rows each half holds, ``(halves, n)``.
        outcomes: ``(halves, retrainings, t)``.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.

    Returns:
        The score.
    """
    predicted, measured = member @ scores.to(member), outcomes.mean(1)
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.stack([torch.randint(len(member), (len(member),), generator=draw) for _ in range(resamples)])
    found = spearman(predicted[drawn], measured[drawn]).mean(-1)
    low, high = np.quantile(found.numpy(), [0.025, 0.975])
    return Interval(lds(scores, member, outcomes), float(low), float(high))


def slope(scores: Tensor, member: Tensor, outcomes: Tensor) -> float:
    r"""Return the calibration: retrained against predicted changes, least squares through the mean over all outcomes.

    A row's score is the derivative in its weight, so a half is predicted to differ from the mean over halves by
    :math:`\sum_i (m_i - \bar m) s_i`. One is calibrated, above one underestimates.

    Args:
        scores: ``(n, t)``.
        member: ``(halves, n)``.
        outcomes: ``(halves, retrainings, t)``.

    Returns:
        The slope.
    """
    predicted, measured = member @ scores.to(member), outcomes.mean(1)
    x, y = predicted - predicted.mean(0), measured - measured.mean(0)
    return float((x * y).sum() / x.square().sum().clamp(min=1e-30))
