r"""What the Alignment Gap of a column would be if the column had nothing to do with influence.

    gap_ξ(π) = 1/t Σ_t Σ_l W_tl v_ξ(x_t, z_π(l)),        W_tl = weight of l in the top set - mean weight in random sets

One order π of the landmarks at a time is drawn at random, and each landmark gets the value of another one. Everything
else stays: the influence of every landmark on every sample, the random sets, the values of the samples, and how often
each value occurs among the landmarks. Only which landmark has which value is broken. Landmarks are what may be
exchanged, not samples: all samples share the same few landmarks, so a value that a few strong landmarks have by chance
shows in every sample at once. An interval over samples does not see this; it takes the landmarks as given. What is
assumed is that the landmarks are draws of their own, not several rows of the same person.

The normalised gap has mean zero over orders, for the weights ``W_tl`` of a sample sum to zero. The raw one has not.

All orders share the sums ``S[z, l] = Σ_t W_tl v_ξ(x_t, z)``, and ``v(x, z) = (x-z+1)₊ - 2 (x-z)₊ + (x-z-1)₊`` makes
them of running sums over the sorted samples: ``t m`` steps a column, and ``m`` additions for each order. Of a test set
beyond `MOST_SAMPLES` every second, third, ... sample is taken: what is uncertain here is which landmarks there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit.permutation import PermutationTest

LEVEL = 0.05
"""A column passes if its corrected p is at most this."""
FEWEST = 999
MOST_SAMPLES = 4096


def enough_draws(c: int) -> int:
    """Return so many shuffles that the smallest p, corrected for ``c`` columns, is below `LEVEL`."""
    return max(FEWEST, round(c / LEVEL))


def landmark_orders(m: int, *, draws: int, seed: int) -> Tensor:
    """Return random orders of ``m`` landmarks after the order as it is, ``(1 + draws, m)``."""
    generator = torch.Generator().manual_seed(seed ^ 0x5F3759DF)  # not the numbers that draw random sets
    shuffled = torch.rand(draws, m, generator=generator, dtype=torch.float64).argsort(1)
    return torch.cat([torch.arange(m)[None], shuffled])


class ShuffledGaps:
    """Adds up the gaps of all columns under the same random orders of the landmarks."""

    def __init__(self, z: Tensor, *, draws: int, seed: int, held: int = 2048) -> None:
        """Draw the orders.

        Args:
            z: Encoded landmark rows, ``(m, c)``.
            draws: Orders.
            seed: Of the orders.
            held: Samples that are kept until their sums are made, for many at once cost little more than few.
        """
        self._most, self._held = held, list[tuple[Tensor, Tensor]]()
        self._orders = landmark_orders(len(z), draws=draws, seed=seed)
        self._values = [z[:, j].unique(return_inverse=True) for j in range(z.shape[1])]
        self._sums = torch.zeros(())
        self._weight = torch.zeros(())
        self._n = 0

    def add(self, W: Tensor, x: Tensor) -> None:
        """Add samples.

        Args:
            W: Weights in the gap of each variant, ``(b, variants, m)``, float64.
            x: Encoded rows of the samples, ``(b, c)``.
        """
        self._held.append((W, x))
        if sum(len(part) for _, part in self._held) >= self._most:
            self._sum()

    def _sum(self) -> None:
        """Make the sums of the samples that are held."""
        if not self._held:
            return
        W, x = (torch.cat(parts) for parts in zip(*self._held, strict=True))
        self._held.clear()
        found = [self._column(W, x[:, j], *values) for j, values in enumerate(self._values)]
        none = W.new_zeros(W.shape[1], len(self._orders), 0)
        self._sums = self._sums + (torch.stack(found, -1) if found else none)  # (variants, 1 + draws, c)
        self._weight = self._weight + W.abs().sum((0, 2))
        self._n += len(W)

    def _column(self, W: Tensor, x: Tensor, z: Tensor, code: Tensor) -> Tensor:
        """Return the sums of one column, ``(variants, 1 + draws)``, for distinct values ``z`` and their numbers."""
        S = pair_sums(W.flatten(1), x, z).unflatten(1, W.shape[1:])  # (values, variants, m)
        parts = []
        for orders in self._orders.split(2048):
            chosen = code[orders]
            parts.append(torch.stack([S[:, v].gather(0, chosen).sum(1) for v in range(W.shape[1])]))
        return torch.cat(parts, 1)

    def test(self, variant: int) -> PermutationTest:
        """Return the test of every column under one variant."""
        self._sum()
        gaps = self._sums[variant] / self._n
        slack = 1e-9 * float(self._weight[variant]) / self._n
        return PermutationTest.of(gaps[0], gaps[1:], slack=slack)


def pair_sums(W: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """Return ``Σ_t W_tl v(x_t, z)`` for every value ``z`` and every ``l``, without a table of all pairs.

    Args:
        W: Weights, ``(b, l)``.
        x: Encoded values of one column, ``(b,)``.
        z: Encoded values to compare with, ``(u,)``.

    Returns:
        Sums, ``(u, l)``.

    Example:
        >>> pair_sums(torch.eye(2).double(), torch.tensor([0.0, 0.5]).double(), torch.tensor([0.25]).double())
        tensor([[0.7500, 0.7500]], dtype=torch.float64)
    """
    x, z = _nearer(x, z)
    order = x.argsort()
    x, W = x[order], W[order]
    zero = W.new_zeros(1, W.shape[1])
    weight, moment = (torch.cat([zero, part.cumsum(0)]) for part in (W, x[:, None] * W))

    def above(a: Tensor) -> Tensor:
        """Return ``Σ_t W_tl (x_t - a)₊``."""
        i = torch.searchsorted(x, a, right=True)
        return moment[-1] - moment[i] - a[:, None] * (weight[-1] - weight[i])

    return above(z - 1) - 2 * above(z) + above(z + 1)


def _nearer(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers of the same agreement without the wide gaps between them, which would cost digits in sums.

    Values whose distance is above 2 agree as little at distance 2: codes of missing values move next to the others.
    """
    values, place = torch.cat([x, z]).unique(return_inverse=True)
    starts = torch.cat([torch.ones(1, dtype=torch.bool), values.diff() > 2])
    group = starts.cumsum(0) - 1
    first, last = values[starts], values[torch.cat([starts[1:], starts[:1]])]
    offset = torch.cat([values.new_zeros(1), (last - first + 2).cumsum(0)[:-1]])
    near = (values - first[group] + offset[group])[place]
    return near[: len(x)], near[len(x) :]
