r"""What if some rows had not been there? Exactly, in a surrogate: its moments without them, and its steps again.

    M' = (n M - Σ_{i in S} k̄_i k̄_iᵀ) / (n - |S|)

costs no pass over the data: only the rows of ``S`` are made again, with the views they had. `LazyReplay` holds what the
lazy rung needs for that; `without` does the same for the kernel model of `krepes.model`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.engine.moments import Moments, MomentSum
from krepes.engine.rows import pieces
from krepes.errors import InvalidInputError
from krepes.influence.lazy import LAZY, LazySteps, falling_eta
from krepes.influence.linearised import Linearised, coefficients
from krepes.influence.reverse import State
from krepes.influence.rungs import Outcomes, of_linearised
from krepes.kernels.base import Kernel
from krepes.model import Krepes
from krepes.views import ViewStream


def downdate(moments: Moments, removed: Moments) -> Moments:
    """Return the moments without some of their samples.

    Args:
        moments: Of all samples.
        removed: Of those to go, over the same landmarks.

    Returns:
        The moments of the rest.

    Raises:
        InvalidInputError: If nothing would be left.
    """
    n = moments.n - removed.n
    if n < 2:
        raise InvalidInputError(f"{removed.n} of {moments.n} rows would be removed: at least two must stay.")
    M = moments.M + (removed.n / n) * (moments.M - removed.M)
    KX = None
    if moments.KX is not None and removed.KX is not None:
        KX = moments.KX + (removed.n / n) * (moments.KX - removed.KX)
    return replace(moments, n=n, M=M, KX=KX, trace=_less(moments, removed, "trace"), XX=_less(moments, removed, "XX"))


def _less(moments: Moments, removed: Moments, name: str) -> float | None:
    whole, gone = getattr(moments, name), getattr(removed, name)
    return None if whole is None or gone is None else whole + removed.n / (moments.n - removed.n) * (whole - gone)


def without(model: Krepes, rows: ArrayLike, *, stream: ViewStream | None = None) -> Krepes:
    """Return the kernel model that a fit without some rows would have given, on the same landmarks and damping.

    Args:
        model: Fitted on moments.
        rows: Places ``(r,)`` in the training data, or a mask ``(n,)``.
        stream: The training data; needed for a loaded model.

    Returns:
        A new model; the old one is left as it is. A landmark that was removed stays a landmark.

    Raises:
        InvalidInputError: If the model has no moments or no training data.
    """
    stream = getattr(model, "stream_", None) if stream is None else stream
    if model.moments_ is None or stream is None:
        raise InvalidInputError(
            "rows can be taken out of moments only: this model keeps kernel rows, or its data are not at hand. Use an "
            "objective of moments, and pass the stream of the fit."
        )
    objective = model.objective_
    inputs, trace = getattr(objective, "needs_inputs", False), getattr(objective, "needs_trace", False)
    kernel, gram = model.pass_kernel_, model.pass_gram_
    sums = MomentSum(gram)
    for chosen in _places(rows, stream.n).split(stream.batch_size):
        X = stream.views_of(chosen)
        for piece in pieces(X, kernel, model.prepared_, len(gram), model._budget, inputs=inputs, trace=trace):
            sums.add(piece.Kbar, diagonal=piece.diagonal, X=piece.X)
    less = copy.copy(model)
    less.data_ = downdate(model.moments_, sums.moments())
    less.n_samples_ = less.data_.n
    less.solution_ = less.solved(less.data_, damping=model.solution_.damping, theta0=model.solution_.theta0)
    return less


@dataclass(frozen=True)
class LazyReplay:
    """A lazy replay that rows can be taken out of.

    Attributes:
        linearised: The encoder with its landmarks.
        stream: The training data.
        steps: On the moments of all rows, with a step size at which the loss falls.
        draws: Passes with other views that the moments are averaged over.
    """

    linearised: Linearised
    stream: ViewStream
    steps: LazySteps = field(repr=False)
    draws: int

    @classmethod
    def of(
        cls,
        encoder: nn.Module,
        kernel: Kernel,
        points: Batch,
        stream: ViewStream,
        loss: str,
        *,
        steps: int = 20,
        draws: int = 4,
        progress: bool = True,
    ) -> LazyReplay:
        """Pass over the data.

        Args:
            encoder: Frozen.
            kernel: Its tangent kernel, raw.
            points: Landmarks, ``(q, ...)``.
            stream: The training data.
            loss: A name of `LAZY`.
            steps: How many.
            draws: Passes, each with other views.
            progress: Show a bar.

        Returns:
            The replay.

        Raises:
            InvalidInputError: If the loss is no function of second moments.
        """
        if loss not in LAZY:
            raise InvalidInputError(f"loss={loss!r} is no function of second moments: choose one of {', '.join(LAZY)}.")
        linearised = Linearised.of(encoder, kernel, points)
        moments = linearised.moments(stream, draws, progress=progress)
        stepped, _ = falling_eta(LazySteps(LAZY[loss], moments, linearised.d, 1.0, steps))
        return cls(linearised, stream, stepped, draws)

    def state(self, rows: ArrayLike | None = None) -> State:
        """Return the coefficients after the steps, without some rows (places or a mask) if any are given."""
        moments = self.steps.moments if rows is None else downdate(self.steps.moments, self._moments(rows))
        steps = replace(self.steps, moments=moments)
        state, w = steps.start(), moments.M.reshape(-1)
        for t in range(steps.T):
            state = steps(t, state, w)
        return state

    def embed(self, X: Batch, rows: ArrayLike | None = None) -> Tensor:
        """Return the embeddings of samples, ``(b, d)``, as if some rows had not been there."""
        return self.linearised.rows(X) @ coefficients(self.state(rows)["B"])

    def what_if(
        self, rows: ArrayLike, outcomes: Outcomes, names: Sequence[str], *, sets: int = 20, seed: int = 0
    ) -> pd.DataFrame:
        """Return what removing a set of rows does to outcomes, beside random sets of the same size.

        Args:
            rows: Places ``(r,)`` in the training data, or a mask ``(n,)``.
            outcomes: What is asked about.
            names: Of the outcomes.
            sets: Random sets to compare with.
            seed: Of their draw.

        Returns:
            One line for each outcome: ``outcome, before, after, change``, mean and deviation of the change by random
            sets, and ``size``: the share of random sets that moved it less.
        """
        measure = of_linearised(outcomes, self.linearised)
        before = measure(self.state()).numpy()
        after = measure(self.state(rows)).numpy()
        count = len(_places(rows, self.stream.n))
        random = np.stack([measure(self.state(chosen)).numpy() for chosen in self._random(count, sets, seed)]) - before
        return pd.DataFrame({
            "outcome": list(names),
            "before": before,
            "after": after,
            "change": after - before,
            "random mean": random.mean(0),
            "random deviation": random.std(0, ddof=1),
            "size": (np.abs(random) < np.abs(after - before)).mean(0),
        })

    def _random(self, count: int, sets: int, seed: int) -> Iterator[Tensor]:
        draw = torch.Generator().manual_seed(seed)
        yield from (torch.randperm(self.stream.n, generator=draw)[:count].sort().values for _ in range(sets))

    def _moments(self, rows: ArrayLike) -> Moments:
        """Return the moments of some rows, over the same draws of their views."""
        sums, places = MomentSum(self.steps.moments.K), _places(rows, self.stream.n)
        for draw in range(self.draws):
            seen = self.stream.with_seed(self.stream.seed + draw)
            for chosen in places.split(self.stream.batch_size):
                sums.add(self.linearised.pair(seen.views_of(chosen)))
        return replace(sums.moments(), n=len(places))


def _places(rows: ArrayLike, n: int) -> Tensor:
    """Return the places of rows given by place or mask, sorted, each once."""
    chosen = np.asarray(rows)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise InvalidInputError(f"a mask of rows has shape {chosen.shape}: one entry for each of {n} is required.")
        chosen = np.flatnonzero(chosen)
    chosen = np.unique(chosen)
    if len(chosen) == 0 or chosen[0] < 0 or chosen[-1] >= n:
        raise InvalidInputError(f"rows must be places between 0 and {n - 1}, and at least one.")
    return torch.from_numpy(chosen.astype(np.int64))
