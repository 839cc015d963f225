r"""Permutation nulls: how large would a share be if one side had nothing to do with the other?

    p = (1 + #{null >= observed}) / (1 + draws),        p_Holm(i) = max_{j <= i} min(1, (c - j) p_(j)),  j = 0, 1, ...

One side is shuffled, the other stands still, so both keep their own frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class PermutationTest:
    """Observed values against shuffled ones, ``(c,)`` each.

    Attributes:
        observed: As measured.
        null: Mean over shuffles.
        low: 5 % quantile over shuffles.
        high: 95 % quantile over shuffles.
        p: Share of shuffles that reach the observed value, itself counted.
    """

    observed: Tensor
    null: Tensor
    low: Tensor
    high: Tensor
    p: Tensor

    @classmethod
    def of(cls, observed: Tensor, shuffled: Tensor, *, slack: float = 1e-12) -> PermutationTest:
        """Compare ``observed`` ``(c,)`` with ``shuffled`` ``(draws, c)``.

        Args:
            observed: As measured.
            shuffled: The same under every shuffle.
            slack: A tie up to round-off is a tie: sums of the same terms in another order must not look smaller.

        Returns:
            The test.
        """
        reached = (shuffled >= observed - slack).sum(0)
        low, high = torch.from_numpy(np.quantile(shuffled.numpy(), (0.05, 0.95), axis=0))
        return cls(observed, shuffled.mean(0), low, high, (1 + reached).double() / (1 + len(shuffled)))


def holm(p: Tensor) -> Tensor:
    """Return p-values corrected for their number by Holm's method, ``(c,)``.

    Args:
        p: As measured, ``(c,)``.

    Returns:
        Corrected, at most one.

    Example:
        >>> holm(torch.tensor([0.01, 0.04, 0.03]))
        tensor([0.0300, 0.0600, 0.0600])
    """
    order = p.argsort(stable=True)
    factors = torch.arange(len(p), 0, -1, dtype=p.dtype)
    corrected = torch.empty_like(p)
    corrected[order] = (p[order] * factors).cummax(0).values.clamp_max(1.0)
    return corrected


def agreement_test(first: Tensor, second: Tensor, *, draws: int, generator: torch.Generator) -> PermutationTest:
    """Test how often two labellings of the same samples agree.

    Args:
        first: Codes, ``(t,)``; they are shuffled.
        second: Codes, ``(t,)``.
        draws: Shuffles.
        generator: Draws them.

    Returns:
        The test of one share.
    """
    observed = (first == second).double().mean()[None]
    shuffled = torch.stack([
        (first[torch.randperm(len(first), generator=generator)] == second).double().mean() for _ in range(draws)
    ])
    return PermutationTest.of(observed, shuffled[:, None])


def carrier_test(
    v: Tensor, gap: Tensor, own: Tensor, of_landmark: Tensor, *, draws: int, generator: torch.Generator
) -> PermutationTest:
    r"""Test through which columns a hidden label shows in the landmarks that attract a sample.

    .. math:: c_\xi = b_\xi \cdot AG_\xi, \qquad
              b_\xi = \mathrm{cov}(v_\xi, [s_t = s_l]) / \mathrm{var}(v_\xi) \text{ over all pairs } (t, l)

    A column carries the label if samples agree on it with the landmarks that attract them (its gap :math:`AG_\xi`) and
    agreeing on it tells that the label is shared (the slope :math:`b_\xi`). The product is the rise in the share of
    landmarks of the sample's own kind that the column accounts for. The labels of the landmarks are shuffled.

    Args:
        v: Agreement of every sample with every landmark on each column, ``(t, m, c)``.
        gap: Mean agreement with attracting landmarks minus that with all, ``(c,)``.
        own: Hidden codes of the samples, ``(t,)``.
        of_landmark: Hidden codes of the landmarks, ``(m,)``.
        draws: Shuffles.
        generator: Draws them.

    Returns:
        The test of ``c`` products.
    """
    centred = v - v.mean((0, 1))
    total = centred.square().sum((0, 1)).clamp_min(1e-300)
    kinds = torch.cat([own, of_landmark]).unique().tolist()
    by_kind = torch.stack([centred[own == kind].sum(0) for kind in kinds])  # (kinds, m, c)
    index = torch.tensor([kinds.index(code) for code in of_landmark.tolist()])
    everyone = torch.arange(len(index))

    def products(kind_of: Tensor) -> Tensor:
        return by_kind[kind_of, everyone].sum(0) / total * gap

    shuffled = [products(index[torch.randperm(len(index), generator=generator)]) for _ in range(draws)]
    return PermutationTest.of(products(index), torch.stack(shuffled))
