r"""Permutation nulls: how large would a share be if one side had nothing to do with the other?

    p = (1 + #{null >= observed}) / (1 + draws),        p_Holm(i) = max_{j <= i} min(1, (c - j) p_(j)),  j = 0, 1, ...

One side is shuffled, the other stands still, so both keep their own frequencies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PermutationTest:
    """Observed values against shuffled ones, ``(c,)`` each.

    Attributes:
        observed: As measured.
        null: Mean over shuffles.
        high: 95 % quantile over shuffles.
        p: Share of shuffles that reach the observed value, itself counted.
    """

    observed: Tensor
    null: Tensor
    high: Tensor
    p: Tensor

    @classmethod
    def of(cls, observed: Tensor, shuffled: Tensor) -> PermutationTest:
        """Compare ``observed`` ``(c,)`` with ``shuffled`` ``(draws, c)``."""
        # A tie up to round-off is a tie: sums of the same terms in another order must not look smaller.
        reached = (shuffled >= observed - 1e-12).sum(0)
        return cls(
            observed,
            shuffled.mean(0),
            torch.quantile(shuffled, 0.95, dim=0),
            (1 + reached).double() / (1 + len(shuffled)),
        )


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
    weights: Tensor, same: Tensor, agree: Callable[[Tensor], Tensor], m: int, *, draws: int, generator: torch.Generator
) -> PermutationTest:
    r"""Test through which columns a hidden label shows in the landmarks that attract a sample.

    .. math:: G_\xi = \frac{\sum_{tl} w_{tl}\, v_\xi(x_t, z_l)\, [s_t = s_l]}{\sum_{tl} w_{tl}\, v_\xi(x_t, z_l)}

    is how often an attracting landmark that agrees with its sample on column :math:`\xi` shares the hidden label. The
    rows of the landmarks are shuffled under their labels, so that what is left is the share among attracting landmarks
    whatever the column says: a column that tells nothing about the label is not above it.

    Args:
        weights: Of each sample's first landmarks, ``(t, k)``.
        same: Whether they share the hidden label, ``(t, k)``.
        agree: From an order of the ``m`` landmarks' rows to the agreement on each column, ``(t, k, c)``.
        m: Landmarks.
        draws: Shuffles.
        generator: Draws them.

    Returns:
        The test of ``c`` shares.
    """

    def shares(order: Tensor) -> Tensor:
        W = (weights[..., None] * agree(order)).flatten(0, 1)  # (t k, c)
        return same.double().flatten() @ W / W.sum(0).clamp_min(1e-300)

    shuffled = [shares(torch.randperm(m, generator=generator)) for _ in range(draws)]
    return PermutationTest.of(shares(torch.arange(m)), torch.stack(shuffled))
