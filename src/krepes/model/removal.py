r"""The model without some rows: their moments are taken out, and the steps are taken again.

    M' = (n M - Σ_{i in S} k̄_i k̄_iᵀ) / (n - |S|)

costs no pass over the data: only the rows of ``S`` are made again, with the views they had. Of many sets, such as the
random ones that a set is compared with, every row is made once, whatever number of sets it is in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from krepes.budget import Budget
from krepes.engine.moments import Moments, MomentSum
from krepes.engine.rows import pieces
from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel
from krepes.model.surrogate import Surrogate
from krepes.objectives.base import MomentObjective
from krepes.registry import load
from krepes.views import ViewStream

AT_ONCE = 24
"""Sets whose sums are held together: one that was asked about, and the random ones beside it."""


def places_of(rows: ArrayLike, n: int) -> Tensor:
    """Return the places of rows given by place or mask.

    Args:
        rows: Places ``(r,)`` in the training data, or a mask ``(n,)``.
        n: Rows of the training data.

    Returns:
        Places, sorted, each once.

    Raises:
        InvalidInputError: If there is none, or one is out of range.
    """
    chosen = np.asarray(rows)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise InvalidInputError(f"a mask of rows has shape {chosen.shape}: one entry for each of {n} is required.")
        chosen = np.flatnonzero(chosen)
    chosen = np.unique(chosen)
    whole = chosen.dtype.kind in "iu"
    if len(chosen) == 0 or not whole or chosen[0] < 0 or chosen[-1] >= n:
        raise InvalidInputError(f"rows must be places between 0 and {n - 1}, and at least one.")
    if n - len(chosen) < 2:
        raise InvalidInputError(f"{len(chosen)} of {n} rows would be removed: at least two must stay.")
    return torch.from_numpy(chosen.astype(np.int64))


def random_places(n: int, size: int, sets: int, seed: int) -> list[Tensor]:
    """Return ``sets`` random sets of ``size`` of ``n`` rows, each sorted."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randperm(n, generator=draw)[:size].sort().values for _ in range(sets)]


def moments_of_sets(
    sets: Sequence[Tensor],
    stream: ViewStream,
    objective: MomentObjective,
    kernel: Kernel,
    prepared: Any,
    K: Tensor,
    budget: Budget,
) -> Iterator[Moments]:
    """Yield the moments of each of several sets of rows, with the views of the stream.

    Args:
        sets: Places ``(r,)`` each, sorted.
        stream: The training data.
        objective: Says what is collected beside the moments.
        kernel: The kernel.
        prepared: The landmark points, as the kernel prepared them.
        K: Their Gram matrix, ``(q, q)``.
        budget: For kernel rows and sums.

    Yields:
        Moments, in the order of the sets.
    """
    held = 3 * 8 * (stream.p * (len(K) + 1)) ** 2
    size = max(1, min(AT_ONCE, budget.bytes // (2 * held)))
    for start in range(0, len(sets), size):
        some = sets[start : start + size]
        sums = [MomentSum(K) for _ in some]
        union = torch.cat(list(some)).unique()
        for chosen in union.split(stream.batch_size):
            found = pieces(
                stream.views_of(chosen),
                kernel,
                prepared,
                len(K),
                budget,
                inputs=objective.needs_inputs,
                trace=objective.needs_trace,
            )
            first = 0
            for piece in found:
                rows = chosen[first : first + piece.Kbar.shape[1]]
                first += len(rows)
                for total, places in zip(sums, some, strict=True):
                    inside = torch.isin(rows, places)
                    if bool(inside.any()):
                        diagonal = None if piece.diagonal is None else piece.diagonal[:, inside]
                        X = None if piece.X is None else piece.X[:, inside]
                        total.add(piece.Kbar[:, inside], diagonal=diagonal, X=X)
        yield from (total.moments() for total in sums)


class Removable(Surrogate):
    """A surrogate that training rows can be taken out of."""

    def without(self, rows: ArrayLike, *, stream: ViewStream | None = None) -> Self:
        """Return the model that a fit without some rows would have given, on the same landmarks and damping.

        Exact, and without a pass: the rows are taken out of the moments, and the steps are taken again.

        Args:
            rows: Places ``(r,)`` in the training data, or a mask ``(n,)``.
            stream: The training data; needed for a loaded model.

        Returns:
            A new model; this one is left as it is. A landmark that was removed stays a landmark.
        """
        return next(self.without_each([rows], stream=stream))

    def without_each(self, sets: Sequence[ArrayLike], *, stream: ViewStream | None = None) -> Iterator[Self]:
        """Yield the model without each of several sets of rows; kernel rows that sets share are made once.

        Args:
            sets: Rows of each, as `without` takes them.
            stream: The training data; needed for a loaded model.

        Yields:
            The models, in the order of the sets.

        Raises:
            InvalidInputError: If the model has no moments or no training data, or fewer than two rows would stay.
        """
        stream = getattr(self, "stream_", None) if stream is None else stream
        moments, objective = self.moments_, self.objective_
        if moments is None or stream is None or not isinstance(objective, MomentObjective):
            raise InvalidInputError(
                "rows can be taken out of moments only: this model keeps kernel rows, or its data are not at hand. Use "
                "an objective of moments, and pass the stream of the fit."
            )
        if stream.n != moments.n:
            raise InvalidInputError(f"the stream has {stream.n} rows, the model was fitted on {moments.n}.")
        places = [places_of(rows, stream.n) for rows in sets]
        how = (stream, objective, self.pass_kernel_, self.prepared_, self.pass_gram_, self._budget)
        damping: float | Literal["auto"] = self.solution_.damping if self.solution_.accepted else "auto"
        for gone in moments_of_sets(places, *how):
            less = copy.copy(self)
            less.data_ = moments - gone
            less.n_samples_ = less.data_.n
            less.solution_ = less.solved(less.data_, damping=damping, theta0=self.solution_.theta0)
            yield less

    def explore(self, X: Any = None, **options: Any) -> Any:
        """Show the explorer in a notebook: map, samples, concepts, what-if. It is served to this machine alone.

        Args:
            X: Samples to explain, un-augmented, ``(t, ...)``; by default some of the training samples.
            **options: Of `krepes.explore.notebook.show_model`: ``ids``, ``labels``, ``groups``, ``tables``, ``height``.

        Returns:
            What a notebook shows in a frame; its ``address`` opens in a browser, its ``stop()`` ends it.
        """
        return load("krepes.explore.notebook:show_model")(self, X, **options)
