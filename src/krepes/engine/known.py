"""What a pass need not compute: the kernel rows of the landmarks' own points, which their Gram matrix holds already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes.batches import Batch
from krepes.kernels.base import Kernel, Rows


@dataclass(frozen=True)
class KnownRows:
    """Rows of the landmarks' own points, which a pass does not compute again.

    Attributes:
        index: The landmarks among the samples, ``(m,)``, sorted.
        K: Rows of their points, ``(p, m, q)``.
        diagonal: ``k(x, x)``, ``(p, m)``, or ``None`` where it is not needed.
    """

    index: Tensor
    K: Tensor
    diagonal: Tensor | None = None


def with_known(X: Batch, indices: Tensor, known: KnownRows, kernel: Kernel, prepared: Any, trace: bool) -> Rows:
    """Return the rows of all views of some samples: those of landmarks from what is known, the others computed.

    Args:
        X: The samples, one view after the other, ``(p b, ...)``.
        indices: Their places among all samples, ``(b,)``.
        known: The landmarks' rows.
        kernel: The kernel.
        prepared: The landmark points.
        trace: Whether ``k(x, x)`` is wanted.

    Returns:
        The rows, ``(p b, q)``.
    """
    place = torch.searchsorted(known.index, indices).clamp_max(len(known.index) - 1)
    old = known.index[place] == indices
    if not bool(old.any()):
        return kernel.rows(X, prepared, diagonal=trace)
    K = known.K[:, place].flatten(0, 1)
    diagonal = None if known.diagonal is None else known.diagonal[:, place].flatten()
    if not bool(old.all()):
        new = ~old.repeat(len(known.K))
        found = kernel.rows(batches.take(X, new), prepared, diagonal=trace)
        K[new] = found.K.to(K)
        if diagonal is not None and found.diagonal is not None:
            diagonal[new] = found.diagonal.to(diagonal)
    return Rows(K, diagonal)
