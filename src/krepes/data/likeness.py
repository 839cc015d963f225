r"""How alike two tables of the same columns are: their marginals, and the associations of their pairs of columns.

marginals                   numeric       sup |F(x) - G(x)|                     Kolmogorov-Smirnov
                            categorical   1/2 Σ |p_c - q_c|                     total variation
associations, in [0, 1]     two numeric   |Spearman's ρ|
                            two others    Cramér's V = √(χ² / n / (min(r, c) - 1))
                            one of each   η = √(between-category part of the variance of the ranks)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy.stats import ks_2samp

from krepes.data.values import categories
from krepes.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Likeness:
    """What a comparison of two tables found.

    Attributes:
        marginals: Difference of the marginals, in [0, 1], by column.
        associations: One row for each pair of columns: ``first``, ``second``, ``original``, ``grown``, ``difference``.
        new: Part of the grown rows that are no copy of an original.
        distinct: Part of the grown rows that are left when repeated ones are dropped.
    """

    marginals: pd.Series[float]
    associations: pd.DataFrame
    new: float
    distinct: float

    @property
    def worst_marginal(self) -> float:
        """Largest difference of a marginal."""
        return float(self.marginals.max())

    @property
    def worst_association(self) -> float:
        """Largest difference of an association, up or down."""
        return float(self.associations["difference"].abs().max())

    def __str__(self) -> str:
        worst = self.associations.iloc[int(self.associations["difference"].abs().argmax())]
        return (
            f"marginals differ by at most {self.worst_marginal:.4f} ({self.marginals.idxmax()}), "
            f"associations by {self.worst_association:.4f} ({worst['first']} and {worst['second']}: "
            f"{worst['original']:.3f} to {worst['grown']:.3f}), "
            f"{self.associations['difference'].abs().mean():.4f} on average; "
            f"{self.new:.1%} of the rows are new, {self.distinct:.1%} distinct"
        )


def compare(original: pd.DataFrame, grown: pd.DataFrame) -> Likeness:
    """Compare a table with the one it was grown from.

    Args:
        original: At least two columns.
        grown: The same columns.

    Returns:
        The differences.

    Raises:
        InvalidInputError: If the columns are not the same, or fewer than two.
    """
    names = list(original.columns)
    if names != list(grown.columns) or len(names) < 2:
        raise InvalidInputError(f"two tables of the same columns, at least two, are needed: {names}, {list(grown)}.")
    marginals = pd.Series({name: marginal_difference(original[name], grown[name]) for name in names})
    before, after = associations(original), associations(grown)
    table = before.rename(columns={"association": "original"}).assign(grown=after["association"])
    copies = pd.util.hash_pandas_object(original, index=False)
    rows = pd.util.hash_pandas_object(grown, index=False)
    return Likeness(
        marginals,
        table.assign(difference=table["grown"] - table["original"]),
        new=float((~rows.isin(copies)).mean()),
        distinct=rows.nunique() / len(rows),
    )


def marginal_difference(original: pd.Series[Any], grown: pd.Series[Any]) -> float:
    """Return how far two columns' distributions are apart, in [0, 1]; a missing value is left out if numeric."""
    if is_numeric_dtype(original):
        return float(ks_2samp(original.dropna(), grown.dropna(), method="asymp").statistic)
    p, q = (categories(column).value_counts(normalize=True) for column in (original, grown))
    return float(p.sub(q, fill_value=0.0).abs().sum() / 2)


def associations(frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``first``, ``second`` and ``association`` for each pair of columns.

    Args:
        frame: ``n`` rows.

    Returns:
        One row for each pair, in the order of the columns.
    """
    numeric = {name for name in frame if is_numeric_dtype(frame[name])}
    ranks = {name: frame[name].rank().fillna((len(frame) + 1) / 2).to_numpy() for name in numeric}
    codes = {name: pd.factorize(categories(frame[name]))[0] for name in frame if name not in numeric}
    rows = []
    for first, second in combinations(frame.columns, 2):
        if first in numeric and second in numeric:
            value = _correlation(ranks[first], ranks[second])
        elif first not in numeric and second not in numeric:
            value = _cramers_v(codes[first], codes[second])
        else:
            category, number = (second, first) if first in numeric else (first, second)
            value = _correlation_ratio(codes[category], ranks[number])
        rows.append((first, second, value))
    return pd.DataFrame(rows, columns=["first", "second", "association"])


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    spread = x.std() * y.std()
    return float(abs(np.mean((x - x.mean()) * (y - y.mean()))) / spread) if spread else 0.0


def _cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    r, c = int(a.max()) + 1, int(b.max()) + 1
    if min(r, c) < 2:
        return 0.0
    observed = np.bincount(a * c + b, minlength=r * c).reshape(r, c) / len(a)
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0))
    return float(np.sqrt(((observed - expected) ** 2 / expected).sum() / (min(r, c) - 1)))


def _correlation_ratio(a: np.ndarray, y: np.ndarray) -> float:
    if not (total := y.var()):
        return 0.0
    counts = np.bincount(a)
    means = np.bincount(a, weights=y) / counts
    return float(np.sqrt((counts * (means - y.mean()) ** 2).sum() / len(y) / total))
