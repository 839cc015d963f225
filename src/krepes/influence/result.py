r"""What the influence of every sample adds up to: the ones that matter most, and the effect of removing sets of them.

I_i(o) = d o / d w_i along e_i - w,      removing S changes o by  -Σ_{i in S} w_i I_i  to first order,   w_i = 1/n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.registry import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

By = Literal["raises", "lowers", "magnitude"]
Array = np.ndarray[Any, Any]
SORT_KEYS: dict[str, Callable[[Array], Array]] = {
    "raises": lambda x: -x,
    "lowers": lambda x: x,
    "magnitude": lambda x: -np.abs(x),
}


@dataclass(frozen=True)
class Influence:
    """Influence of every training sample on every outcome.

    Attributes:
        values: ``I``, ``(n, O)``, float64, in memory or on disk; each column of a scale-free loss sums to zero.
        names: Of the ``O`` outcomes.
        ids: The user's row ids, ``(n,)``.
        damping: Absolute, of the adjoint solves of the surrogate; not a number for a replay.
        residuals: Relative residual of each adjoint solve.
        method: The rung that was taken.
        seconds: What it took.
        details: Step size, steps, losses and what was refused, as plain values.
    """

    values: np.ndarray[Any, np.dtype[np.float64]] = field(repr=False)
    names: tuple[str, ...]
    ids: Array = field(repr=False)
    damping: float
    residuals: tuple[float, ...]
    method: str = "surrogate"
    seconds: float = float("nan")
    details: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def unit(self) -> str:
        """What a number means."""
        return f"an outcome falls by influence / {len(self.values)} if the row had not been there, to first order"

    def sentence(self, row: int, outcome: int = 0) -> str:
        """Return what one row did to one outcome, in words.

        Args:
            row: Its place in the training data.
            outcome: Number of the outcome.

        Returns:
            One sentence with its figure.
        """
        change = -float(self.values[row, outcome]) / len(self.values)
        verb = "rise" if change > 0 else "fall"
        return f"{self.names[outcome]} would {verb} by {abs(change):.2g} if row {self.ids[row]} had not been there"

    def top(self, k: int = 10, *, by: By = "raises") -> pd.DataFrame:
        """Return the ``k`` samples that matter most for each outcome.

        Args:
            k: Samples per outcome, at most n.
            by: ``"raises"`` for samples that raise the outcome, strongest first; ``"lowers"``; or ``"magnitude"``.

        Returns:
            Columns ``outcome, rank, row, id, influence``; ``row`` is the place in the training data.

        Raises:
            InvalidInputError: If ``by`` is unknown or ``k`` out of range.
        """
        require_range(k, "k", low=1, high=len(self.values))
        if by not in SORT_KEYS:
            raise InvalidInputError(f"by={by!r} is unknown: choose one of {', '.join(SORT_KEYS)}.")
        parts = []
        for column, name in enumerate(self.names):
            rows = _first(SORT_KEYS[by](self.values[:, column]), k)
            found = {"row": rows, "id": self.ids[rows], "influence": self.values[rows, column]}
            parts.append(pd.DataFrame({"outcome": name, "rank": np.arange(1, k + 1), **found}))
        return pd.concat(parts, ignore_index=True)

    def removal(self, rows: ArrayLike) -> pd.Series[float]:
        """Return the first-order change of every outcome if a set of samples were removed.

        Args:
            rows: Positions ``(r,)`` in the training data, or a mask ``(n,)``.

        Returns:
            ``-Σ w_i I_i`` by outcome.
        """
        chosen = np.asarray(rows)
        effect = -self.values[chosen].sum(0) / len(self.values)
        return pd.Series(effect, index=self.names, name="effect of removal")

    def group_totals(self, groups: Sequence[Any] | ArrayLike) -> pd.DataFrame:
        """Return what removing each group of samples would do to every outcome, to first order.

        Args:
            groups: The group of every training sample, ``(n,)``.

        Returns:
            One line per group, one column per outcome, and the column ``rows`` with the size of the group.

        Raises:
            InvalidInputError: If there is not one group for each sample.
        """
        labels = np.asarray(groups)
        if labels.shape != (len(self.values),):
            raise InvalidInputError(
                f"groups has shape {labels.shape}: there must be one for each of {len(self.values)} samples."
            )
        totals = {label: self.removal(labels == label) for label in pd.unique(labels)}
        frame = pd.DataFrame.from_dict(totals, orient="index", columns=list(self.names))
        frame.insert(0, "rows", pd.Series(labels).value_counts())
        return frame.sort_index().rename_axis("group")

    def to_frame(self) -> pd.DataFrame:
        """Return all values, tidy: columns ``row, id, outcome, influence``, one line per sample and outcome."""
        n, outcomes = self.values.shape
        return pd.DataFrame({
            "row": np.repeat(np.arange(n), outcomes),
            "id": np.repeat(self.ids, outcomes),
            "outcome": np.tile(np.array(self.names, dtype=object), n),
            "influence": self.values.reshape(-1),
        })

    def both(self, k: int = 5) -> pd.DataFrame:
        """Return the ``k`` rows that raise each outcome most and the ``k`` that lower it most."""
        k = min(k, len(self.values))
        found = pd.concat([self.top(k, by="raises"), self.top(k, by="lowers")])
        found = found.drop_duplicates(["outcome", "row"])
        order = {name: place for place, name in enumerate(self.names)}
        return found.sort_values("outcome", key=lambda s: s.map(order), kind="stable").reset_index(drop=True)

    def plot(self, k: int = 5) -> Figure:
        """Draw the rows that raise and lower each outcome, ``k`` of each, for the first twelve outcomes."""
        return load("krepes.figures:influence_bars")(self.both(k))

    def _repr_html_(self) -> str:
        return self.both().to_html(index=False, float_format="{:.4g}".format)


def _first(keys: Array, k: int) -> Array:
    """Return the positions of the ``k`` smallest keys, smallest first, without sorting the rest."""
    few = np.argpartition(keys, k - 1)[:k] if k < len(keys) else np.arange(len(keys))
    return few[np.argsort(keys[few], kind="stable")]
