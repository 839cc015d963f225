"""The groups that audits compare: values as they are, but numbers and dates of many values in quarters of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from krepes.audit.ticks import is_numeric, numbers
from krepes.audit.wording import text
from krepes.data.values import MISSING

if TYPE_CHECKING:
    from krepes.audit.study import Pair, Study

FEW = 12
"""Numbers or dates of which there are no more are groups one by one."""
QUARTERS = (0.25, 0.5, 0.75)


def groupings(study: Study) -> dict[str, Pair]:
    """Return the groups of training rows and test samples for every way of grouping.

    Args:
        study: With ``groups``; a column of ``tables`` by the same name says whether its values have a distance.

    Returns:
        As `Study.groups`, numbers and dates with more than `FEW` values cut into quarters.
    """
    return {name: _grouped(study, name, pair) for name, pair in study.groups.items()}


def _grouped(study: Study, name: str, pair: Pair) -> Pair:
    known = study.tables is not None and all(name in table for table in study.tables)
    columns = [table[name] for table in study.tables] if known and study.tables is not None else list(map(_plain, pair))
    train, test = columns
    if not is_numeric(train) or not is_numeric(test) or train.nunique() <= FEW:
        return pair
    return in_quarters(train, test)


def _plain(values: Any) -> pd.Series[Any]:
    """Return groups as they were given, of the type that their values have."""
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    return pd.Series(plain, dtype=None if plain else object)


def in_quarters(train: pd.Series[Any], test: pd.Series[Any]) -> Pair:
    """Cut a column with a distance at the quartiles of its training values.

    Args:
        train: Training values, ``(n,)``, at least two different ones.
        test: Others, ``(t,)``; what lies beyond training is of the outermost group.

    Returns:
        Names of the groups, such as ``31 to 42``: the smallest and the largest training value of each.

    Example:
        >>> in_quarters(pd.Series(range(8)), pd.Series([-5.0, 3.0, None]))[1].tolist()
        ['0 to 1', '2 to 3', '(missing)']
    """
    x, z = numbers(train), numbers(test)
    known = x[~np.isnan(x)]
    edges = np.unique(np.quantile(known, QUARTERS, method="lower"))
    edges = edges[edges < known.max()]
    if not len(edges):  # more than three quarters have the largest value
        edges = np.array([known[known < known.max()].max()])
    places = np.searchsorted(edges, x)
    names = []
    for group in range(len(edges) + 1):
        inside = np.flatnonzero((places == group) & ~np.isnan(x))
        ends = [_shown(train.iloc[inside[find(x[inside])]]) for find in (np.argmin, np.argmax)]
        names.append(" to ".join(dict.fromkeys(ends)))
    if len(set(names)) < len(names):  # alike to five digits
        names = [f"{name} (quarter {i})" for i, name in enumerate(names, 1)]
    labels = np.array(names, dtype=object)
    found = [np.where(np.isnan(v), MISSING, labels[np.searchsorted(edges, v).clip(max=len(edges))]) for v in (x, z)]
    return found[0], found[1]


def _shown(value: Any) -> str:
    return text(value).removesuffix(" 00:00:00")
