r"""Is a number beyond what chance gives? One observation against a sample of the null, by t-test and by rank.

    t = (value - mean) / (std √(1 + 1/s)),      s - 1 degrees of freedom,      two-sided

The value is *one* draw beside ``s`` others, hence the 1 under the root. A test of two means would count repeated fits
to one set of samples as independent and find almost any set significant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Significance:
    """A value, or an array of them, against draws of the same statistic under chance.

    Attributes:
        value: What was observed, any shape.
        null: Draws under chance, ``(s, *value.shape)``, at least two.

    Example:
        >>> found = Significance(torch.tensor(0.9), torch.tensor([0.5, 0.4, 0.6, 0.5, 0.45, 0.55]))
        >>> bool(found.p_value < 0.01), round(float(found.p_rank), 3)
        (True, 0.143)
    """

    value: Tensor
    null: Tensor

    @property
    def p_value(self) -> Tensor:
        """Two-sided p of the t-test, the shape of ``value``."""
        spread = self.null.std(0) * (1 + 1 / len(self.null)) ** 0.5
        t = ((self.value - self.null.mean(0)).abs() / spread).nan_to_num(nan=0.0, posinf=torch.inf)
        return torch.as_tensor(2 * stats.t.sf(t.numpy(), df=len(self.null) - 1))

    @property
    def p_rank(self) -> Tensor:
        """Two-sided p by rank, free of any distribution, the shape of ``value``; never below ``1 / (s + 1)``."""
        mean = self.null.mean(0)
        beyond = (self.null - mean).abs() >= (self.value - mean).abs()
        return (1 + beyond.sum(0)) / (1 + len(self.null))

    def mean(self) -> Significance:
        """Return the same question about the mean over ``value``: a number against ``s`` numbers."""
        return Significance(self.value.mean(), self.null.flatten(1).mean(1))
