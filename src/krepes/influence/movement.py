"""What moved between versions of a model: samples, pairs and groups, as functions of their embeddings alone.

Versions are ``Z`` ``(V, t, h)``: first the whole, then the one that is asked about, then those without random sets. The
samples and pairs that moved most are chosen by the very set that is asked about, so beside them stands `overall`,
which is not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from krepes.influence.measures import relative_group_distance, spread
from krepes.influence.whatif import against_random

PAIRWISE = 4
"""With so many groups or fewer all pairs are shown, with more each group against the others."""


def overall(Z: Tensor) -> pd.DataFrame:
    """Return one line: how far samples moved on average, in parts of the spread of the whole."""
    moved = _moved(Z).mean(1).numpy()
    return frame(["all held-out samples, mean"], np.zeros(1), moved[:1], moved[1:, None])


def samples(Z: Tensor, ids: Sequence[Any], top: int) -> pd.DataFrame:
    """Return the ``top`` samples that moved most, in parts of the spread of the whole."""
    moved = _moved(Z).numpy()
    first = np.argsort(-moved[0], kind="stable")[:top]
    return frame([str(ids[i]) for i in first], np.zeros(len(first)), moved[0, first], moved[1:, first])


def _moved(Z: Tensor) -> Tensor:
    """Return how far each version ``Z[1:]`` moved each sample from the whole ``Z[0]``, over its spread."""
    return (Z[1:] - Z[0]).norm(dim=2) / spread(Z[0])


def pairs(Z: Tensor, ids: Sequence[Any], top: int) -> pd.DataFrame:
    """Return the ``top`` pairs of samples whose cosine changed most."""
    if Z.shape[1] < 2:
        return pd.DataFrame()
    i, j = torch.triu_indices(Z.shape[1], Z.shape[1], 1)
    cosines = torch.stack([(U @ U.T)[i, j] for U in normalize(Z, dim=2)]).numpy()
    first = np.argsort(-np.abs(cosines[1] - cosines[0]), kind="stable")[:top]
    names = [f"{ids[int(i[one])]} and {ids[int(j[one])]}" for one in first]
    return frame(names, cosines[0, first], cosines[1, first], cosines[2:, first])


def groups(Z: Tensor, groups: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> pd.DataFrame:
    """Return how far the means of groups lie apart, in parts of the spread.

    Args:
        Z: Versions, ``(V, t, h)``.
        groups: For each column the group of every sample, ``(t,)``.

    Returns:
        One line for each pair of groups of a column, or each group and the others where there are many.
    """
    names, masks = [], []
    for column, values in groups.items():
        levels = sorted({str(value) for value in values})
        inside = {level: np.asarray([str(value) == level for value in values]) for level in levels}
        if 2 <= len(levels) <= PAIRWISE:
            chosen = [(a, b, inside[a], inside[b]) for a, b in combinations(levels, 2)]
        else:
            chosen = [(a, "others", inside[a], ~inside[a]) for a in levels if not inside[a].all()]
        names += [f"{column}: {a} from {b}" for a, b, _, _ in chosen]
        masks += [(one, other) for _, _, one, other in chosen]
    if not names:
        return pd.DataFrame()
    found = np.array([[_apart(version, one, other) for one, other in masks] for version in Z])
    return frame(names, found[0], found[1], found[2:])


def _apart(Z: Tensor, one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    kept = torch.from_numpy(one | other)
    codes = torch.from_numpy(other.astype(np.int64))[kept]
    return float(relative_group_distance(Z[kept], codes))


def frame(what: list[str], before: Any, after: Any, random: Any) -> pd.DataFrame:
    """Return named numbers before and after, ``(O,)``, beside those without random sets, ``(sets, O)``."""
    return pd.DataFrame({"what": what, **against_random(before, after, random)})
