r"""Cross-group attribution: to which group belongs the landmark that a sample of each group is anchored to?

    counts[g, g'] = #{ t in g : top landmark of t in g' }
    share = counts / row sum,        lift = share / P(landmark in g')

A lift of one is what random landmarks give. The diagonal is in-group anchoring; a large lift off the diagonal says that
the latent space conflates the two groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.audit.intervals import wilson_interval
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.rankings import require_rankings


@dataclass(frozen=True)
class CrossGroup:
    """Attribution between groups; every matrix has the groups of test samples as rows, of landmarks as columns.

    Attributes:
        groups: Their names, in the order of rows and columns.
        counts: Test samples of each row group whose top landmark is of the column group.
        shares: Counts over row sums; NaN for a group without a test sample.
        low: Lower end of the Wilson interval of each share.
        high: Upper end.
        expected: Shares that random landmarks would give, one per column: the groups' frequencies among the landmarks.
    """

    groups: list[Any]
    counts: np.ndarray[Any, Any]
    shares: np.ndarray[Any, Any]
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    expected: np.ndarray[Any, Any]

    @property
    def lift(self) -> np.ndarray[Any, Any]:
        """Shares over expected shares; NaN for a group that has no landmark, where there is nothing to expect."""
        return self.shares / np.where(self.expected > 0, self.expected, np.nan)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair of groups, with a ``note`` where a value is undefined."""
        size = len(self.groups)
        frame = pd.DataFrame({
            "group": np.repeat(np.array(self.groups, dtype=object), size),
            "landmark_group": np.tile(np.array(self.groups, dtype=object), size),
            "count": self.counts.ravel(),
            "share": self.shares.ravel(),
            "low": self.low.ravel(),
            "high": self.high.ravel(),
            "expected": np.tile(self.expected, size),
            "lift": self.lift.ravel(),
            "note": "",
        })
        frame.loc[frame["expected"] == 0, "note"] = "no landmark of this group"
        frame.loc[frame["share"].isna(), "note"] = "no test sample of this group"
        return frame


def cross_group(rankings: Mapping[str, Tensor], landmark_groups: Labels, groups: Labels) -> dict[str, CrossGroup]:
    """Cross the groups of test samples with those of their top landmarks, for each method.

    Args:
        rankings: For each method the landmarks of every test sample, best first, ``(t, K)``; only the first is used.
        landmark_groups: Groups of the landmarks, ``(m,)``.
        groups: Groups of the test samples, ``(t,)``.

    Returns:
        A matrix for each method.

    Example:
        >>> cross_group({"ours": torch.tensor([[0], [0], [1]])}, ["a", "b"], ["a", "b", "b"])["ours"].counts
        array([[1, 0],
               [1, 1]])
    """
    names, (of_landmark, of_test) = shared_codes(landmarks=landmark_groups, test=groups)
    t, _ = require_rankings(rankings, m=len(of_landmark))
    require_count(of_test, t, "groups of test samples")
    frequency = torch.bincount(of_landmark, minlength=len(names)).double() / len(of_landmark)
    return {
        method: _matrix(names, of_landmark[top[:, 0].cpu()], of_test, frequency) for method, top in rankings.items()
    }


def _matrix(names: list[Any], anchor: Tensor, of_test: Tensor, frequency: Tensor) -> CrossGroup:
    """Return the matrix of the groups ``anchor`` ``(t,)`` of the top landmarks."""
    size = len(names)
    counts = torch.bincount(of_test * size + anchor, minlength=size * size).reshape(size, size)
    interval = wilson_interval(counts, counts.sum(1, keepdim=True))
    arrays = (counts, interval.estimate, interval.low, interval.high, frequency)
    return CrossGroup(names, *(array.numpy() for array in arrays))
