r"""One Krylov space, many shifts: ``(A + σ I)⁻¹ y`` for one right-hand side and every damping of a search.

The space of ``A + σ I`` does not depend on ``σ``, so products with ``A`` made for one shift serve all others:

    A V_k = V_k T_k + β_k v_{k+1} e_kᵀ,      w = V_k c,  c = (T_k + σ I)⁻¹ |y| e_1,      |residual| = β_k |c_k|

(Lanczos; what conjugate gradients find, with their vectors kept). It grows as far as the shift that is asked needs.
Vectors beyond what may be held in memory lie in temporary files.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from krepes.objectives.base import Product
from krepes.storage.mapped import Array, read, scratch, write

ROOM = 256 << 20
"""Bytes of kept vectors; a shift that needs more gets what they hold."""
GROWTH = 32
"""Vectors for which room is made at a time, at most; fewer where a third of what is held in memory holds fewer."""


class Shifted(NamedTuple):
    """The solution ``x`` of one shift, whether it ``reached`` its tolerance, and the relative residual by vector."""

    x: Tensor
    reached: bool
    residuals: tuple[float, ...]


class Krylov:
    """The space of a symmetric positive semi-definite map and a start.

    Args:
        product: ``A``, taking and returning tensors like ``y``.
        y: Right-hand side of every system, of any shape; float64 on the CPU where vectors go to files.
        held: Bytes of vectors in memory; the others are in files.
    """

    def __init__(self, product: Product, y: Tensor, held: int = ROOM) -> None:
        self.product, self.y, self.size, self.held = product, y, float(y.norm()), held
        self.block = max(1, min(GROWTH, held // max(1, 3 * y.numel() * y.element_size())))
        self.alpha: list[float] = []
        self.beta: list[float] = []
        self._kept: list[Tensor | Array] = []
        self._last: list[Tensor] = []
        if self.size > 0:
            self._keep(y.reshape(-1) / self.size)

    def solve(self, shift: float, tol: float, most: int | None = None) -> Shifted:
        """Return ``(A + shift·I)⁻¹ y``, as far as the space may grow.

        Args:
            shift: Positive.
            tol: On the residual, relative to ``|y|``.
            most: Vectors to use, at most; by default as many as there is room for.

        Returns:
            The solution, of the shape of ``y``, whether it is one, and how its residual fell.
        """
        pivots, forward, left = list[float](), list[float](), list[float]()
        while self.size > 0 and not (left and left[-1] <= tol):
            k = len(pivots)
            if k == most or (k == len(self.alpha) and not self._grow()):
                break
            below = 0.0 if k == 0 else self.beta[k - 1]
            pivots.append(self.alpha[k] + shift - (below**2 / pivots[-1] if k else 0.0))
            forward.append(-below / pivots[k - 1] * forward[-1] if k else self.size)
            left.append(self.beta[k] * abs(forward[k] / pivots[k]) / self.size)
        reached = self.size == 0 or bool(left and left[-1] <= tol)
        return Shifted(self._combine(pivots, forward), reached, tuple(left))

    def _combine(self, pivots: list[float], forward: list[float]) -> Tensor:
        """Return ``V c`` with ``c`` from the factorisation ``T + σ I = L D Lᵀ``."""
        c = [f / d for f, d in zip(forward, pivots, strict=True)]
        for k in range(len(c) - 2, -1, -1):
            c[k] -= self.beta[k] / pivots[k] * c[k + 1]
        total = torch.zeros_like(self.y).reshape(-1)
        for i, block in enumerate(self._kept):
            some = c[i * self.block : (i + 1) * self.block]
            for vector, weight in zip(_first(block, len(some)), some, strict=True):
                total.add_(vector, alpha=weight)  # one by one: the same sum to the last bit, however they are kept
        return total.reshape(self.y.shape)

    def _grow(self) -> bool:
        """Add one vector; return whether there was room."""
        k = len(self.alpha)
        if (k + 1) * self.y.numel() * self.y.element_size() > ROOM:
            return False
        v = self._last[-1]
        w = self.product(v.reshape(self.y.shape)).reshape(-1)
        if k:
            w = w - self.beta[-1] * self._last[-2]
        self.alpha.append(float(w @ v))
        w = w - self.alpha[-1] * v
        self.beta.append(float(w.norm()))
        # Nothing is left where the space is whole: a vector of zeros adds nothing.
        self._keep(w / self.beta[-1] if self.beta[-1] > 0 else w)
        return True

    def _keep(self, v: Tensor) -> None:
        k = len(self.alpha)
        if k % self.block == 0:
            self._spill()
            self._kept.append(v.new_empty(self.block, len(v)))
        block = self._kept[-1]
        assert isinstance(block, Tensor)
        block[k % self.block] = v
        self._last = [*self._last[-1:], v]

    def _spill(self) -> None:
        """Move the block that was filled last to a file, if there is no room for it and the next."""
        here = [block.nbytes for block in self._kept if isinstance(block, Tensor)]
        if here and sum(here) + here[-1] > self.held:
            full = self._kept[-1]
            assert isinstance(full, Tensor)
            self._kept[-1] = away = scratch(tuple(full.shape), full.numpy().dtype)
            write(away, 0, full.numpy())


def _first(block: Tensor | Array, count: int) -> Tensor:
    """Return the first vectors of a block, ``(count, size)``, wherever it lies."""
    return block[:count] if isinstance(block, Tensor) else torch.from_numpy(read(block, slice(0, count)))
