r"""95 % intervals: of means over test samples, streamed or not, and of shares.

    mean:   x̄ ± z s / √t
    share:  (p̂ + z²/2t ± z √(p̂(1 - p̂)/t + z²/4t²)) / (1 + z²/t)        (Wilson)

Test samples are the unit that varies; landmarks and model stand still.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.errors import InvalidInputError

Z95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; the three tensors share their shape.

    Attributes:
        estimate: The value.
        low: Lower end.
        high: Upper end.
    """

    estimate: Tensor
    low: Tensor
    high: Tensor


class RunningMean:
    """Mean and spread of samples that arrive in pieces, without keeping them.

    Pieces are merged by the pairwise update of Chan, Golub and LeVeque (1983), so that round-off is relative to the
    spread of the values and not to their size.

    Example:
        >>> total = RunningMean()
        >>> total.add(torch.tensor([1.0, 2.0]))
        >>> total.add(torch.tensor([3.0]))
        >>> float(total.interval().estimate)
        2.0
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def add(self, values: Tensor) -> None:
        """Add samples ``(b, ...)``."""
        b = len(values)
        if b == 0:
            return
        values = values.to(torch.float64)
        mean = values.mean(0)
        delta = mean - self.mean
        total = self.n + b
        self._squares = self._squares + (values - mean).square().sum(0) + delta.square() * (self.n * b / total)
        self.mean = self.mean + delta * (b / total)
        self.n = total

    @property
    def variance(self) -> Tensor:
        """Unbiased variance of a sample; infinite for a single one, which says nothing about spread."""
        if self.n < 2:
            return torch.full_like(self._squares, float("inf"))
        return self._squares / (self.n - 1)

    def interval(self, together: int = 1) -> Interval:
        """Return the mean with its normal 95 % interval.

        Args:
            together: Means that are to lie in their intervals all at once in 95 % of cases; by default each by itself.

        Returns:
            Tensors shaped like one sample.

        Raises:
            InvalidInputError: If no sample was added.
        """
        if self.n == 0:
            raise InvalidInputError("no test sample was seen: an interval needs at least one, and two to be finite.")
        z = Z95 if together == 1 else NormalDist().inv_cdf(1 - 0.025 / together)  # Bonferroni
        half = z * (self.variance / self.n).sqrt()
        return Interval(self.mean, self.mean - half, self.mean + half)


def mean_interval(values: Tensor) -> Interval:
    """Return the mean over the first axis of ``values`` ``(t, ...)`` with its normal 95 % interval."""
    require_finite(values, "the values of the test samples")
    total = RunningMean()
    total.add(values)
    return total.interval()


def wilson_interval(successes: Tensor, trials: Tensor) -> Interval:
    """Return shares with their Wilson intervals, which stay inside [0, 1] and have width even at 0 and 1.

    Args:
        successes: Counts, any shape.
        trials: Counts, broadcast against ``successes``; where zero, the share is NaN and the interval [0, 1].

    Returns:
        Tensors of the broadcast shape, float64.

    Example:
        >>> low = wilson_interval(torch.tensor(10), torch.tensor(10)).low
        >>> round(float(low), 3)
        0.722
    """
    trials = trials.to(torch.float64)
    share = successes.to(torch.float64) / trials
    return _wilson(share, trials)


def share_interval(values: Tensor) -> Interval:
    r"""Return the mean over samples of values in [0, 1] with a Wilson interval at their effective sample size.

    Fractions such as Precision@K vary less than coin flips: their mean is as certain as that of
    :math:`t_{eff} = t\, \bar x (1 - \bar x) / s^2 \ge t` flips. For zeros and ones this is Wilson's interval itself.

    Args:
        values: ``(t, ...)``, each in [0, 1].

    Returns:
        Tensors shaped like one sample, float64.

    Raises:
        InvalidInputError: If there is no sample, or a value outside [0, 1].
    """
    values = values.to(torch.float64)
    if not len(values) or bool(((values < 0) | (values > 1)).any()):
        raise InvalidInputError(
            f"shares must be values between 0 and 1 of at least one sample, got {len(values)} samples"
            f"{f' from {float(values.min()):g} to {float(values.max()):g}' if values.numel() else ''}."
        )
    mean = values.mean(0)
    flips, spread = mean * (1 - mean), values.var(0, correction=0)
    effective = len(values) * torch.where(spread > 0, flips / spread, torch.ones_like(mean))
    return _wilson(mean, effective)


def _wilson(share: Tensor, trials: Tensor) -> Interval:
    z2 = Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 * (share * (1 - share) / trials + z2 / (4 * trials.square())).sqrt() / (1 + z2 / trials)
    known = trials > 0
    # At shares of 0 and 1 the ends meet the share, up to round-off that would leave it outside.
    low = torch.where(known, torch.minimum(centre - half, share).clamp_min(0), torch.zeros_like(centre))
    high = torch.where(known, torch.maximum(centre + half, share).clamp_max(1), torch.ones_like(centre))
    return Interval(share, low, high)
