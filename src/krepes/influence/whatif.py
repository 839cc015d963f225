r"""What if some rows had not been there? Exactly, in the lazy rung: its moments without them, and its steps again.

    M' = (n M - Σ_{i in S} x̄_i x̄_iᵀ) / (n - |S|)

costs no pass over the data: only the rows of ``S`` are made again, with the views they had. `Krepes.without` does the
same for the kernel model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.engine.moments import Moments, MomentSum
from krepes.errors import InvalidInputError
from krepes.influence.lazy import LAZY, LazySteps, falling_eta
from krepes.influence.linearised import Linearised, coefficients
from krepes.influence.reverse import State
from krepes.influence.rungs import Outcomes, of_linearised
from krepes.kernels.base import Kernel
from krepes.model.removal import places_of, random_places
from krepes.views import ViewStream

Array = np.ndarray[Any, np.dtype[np.float64]]


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
        moments = self.steps.moments if rows is None else self.steps.moments - self._moments(rows)
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
            One line for each outcome: ``outcome``, then the columns of `against_random`.
        """
        measure = of_linearised(outcomes, self.linearised)
        before = measure(self.state()).numpy()
        after = measure(self.state(rows)).numpy()
        n = self.stream.n
        others = random_places(n, len(places_of(rows, n)), sets, seed)
        random = np.stack([measure(self.state(chosen)).numpy() for chosen in others])
        return pd.DataFrame({"outcome": list(names), **against_random(before, after, random)})

    def _moments(self, rows: ArrayLike) -> Moments:
        """Return the moments of some rows, over the same draws of their views."""
        sums, places = MomentSum(self.steps.moments.K), places_of(rows, self.stream.n)
        for draw in range(self.draws):
            seen = self.stream.with_seed(self.stream.seed + draw)
            for chosen in places.split(self.stream.batch_size):
                sums.add(self.linearised.pair(seen.views_of(chosen)))
        return replace(sums.moments(), n=len(places))


def against_random(before: Array, after: Array, random: Array) -> dict[str, Array]:
    """Return what a removal changed, beside random removals of the same size.

    Args:
        before: Numbers of the model of all rows, ``(O,)``.
        after: The same without the rows.
        random: The same without random rows, ``(sets, O)``.

    Returns:
        Columns ``before, after, change``, mean and deviation of the change by random sets, and ``random below``: the
        share of random sets that moved it less.
    """
    change, others = after - before, random - before
    deviation = others.std(0, ddof=1) if len(others) > 1 else np.full(len(before), np.nan)
    return {
        "before": before,
        "after": after,
        "change": change,
        "random mean": others.mean(0),
        "random deviation": deviation,
        "random below": (np.abs(others) < np.abs(change)).mean(0),
    }
