"""Uniform landmarks: every subset of ``m`` samples is as likely as any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.kernels.base import Kernel
from krepes.landmarks.base import LandmarkSelector, pieces_within, require_selectable


@dataclass(frozen=True)
class Uniform(LandmarkSelector):
    """``m`` samples without replacement. It looks at the data only to refuse NaN; equal samples may be chosen together.

    Example:
        >>> Uniform()(torch.zeros(100, 2), 3, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([3])
    """

    name: ClassVar[str] = "uniform"

    @property
    def measures(self) -> bool:
        """It never asks the kernel."""
        return False

    def __call__(self, X: Batch, m: int, *, kernel: Kernel | None = None, generator: torch.Generator) -> Tensor:
        """Return ``m`` distinct sorted indices, ``(m,)``."""
        n = require_selectable(X, m)
        for piece, x in pieces_within(X, 0, self.budget):
            batches.require_usable(x, f"X, counted from sample {piece.start},")
        return torch.randperm(n, generator=generator)[:m].sort().values
