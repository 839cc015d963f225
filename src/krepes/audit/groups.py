r"""Cross-group attribution: to which group belongs the landmark that a sample of each group is anchored to?

    counts[g, g'] = #{ t in g : top landmark of t in g' }
    share = counts / row sum,        lift = share / P(landmark in g')

A lift of one is what random landmarks give. The diagonal is in-group anchoring; a large lift off the diagonal says that
the latent space conflates the two groups.

Every share is judged against the same share when the groups of the landmarks are shuffled among them. Which landmark
comes first for which sample stays, and so do the sizes of all groups. The mean over shuffles is the expected share; its
spread is wider than that of coin flips, for many samples may have the same landmark first: a Wilson interval, which
takes the landmarks as given, does not see that.
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
from krepes.audit.permutation import PermutationTest, holm
from krepes.audit.rankings import require_rankings
from krepes.audit.shuffles import LEVEL, enough_draws, landmark_orders

MOST_DRAWS = 9_999
"""Enough for 22 groups; among more of them no single pair can be told from chance."""


@dataclass(frozen=True)
class CrossGroup:
    """Attribution between groups; every matrix has the groups of test samples as rows, of landmarks as columns.

    Attributes:
        groups: Their names, in the order of rows and columns.
        counts: Test samples of each row group whose top landmark is of the column group.
        shares: Counts over row sums; NaN for a group without a test sample.
        low: Lower end of the Wilson interval of each share.
        high: Upper end.
        null_low: 5 % quantile of each share over shuffles of the landmarks' groups.
        null_high: 95 % quantile.
        p: Share of shuffles that reach the share as measured, itself counted; NaN where there is nothing to expect.
        p_corrected: The same by Holm over all pairs of groups.
        expected: Shares that random landmarks would give, one per column: the groups' frequencies among the landmarks.
        own: The share of all samples whose top landmark is of their own group, against the same shuffles.
    """

    groups: list[Any]
    counts: np.ndarray[Any, Any]
    shares: np.ndarray[Any, Any]
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    null_low: np.ndarray[Any, Any]
    null_high: np.ndarray[Any, Any]
    p: np.ndarray[Any, Any]
    p_corrected: np.ndarray[Any, Any]
    expected: np.ndarray[Any, Any]
    own: PermutationTest

    @property
    def lift(self) -> np.ndarray[Any, Any]:
        """Shares over expected shares; NaN for a group that has no landmark, where there is nothing to expect."""
        return self.shares / np.where(self.expected > 0, self.expected, np.nan)

    @property
    def beyond(self) -> np.ndarray[Any, Any]:
        """Whether a share is beyond its null, corrected for the number of pairs."""
        return (self.p_corrected <= LEVEL) & (self.shares > self.expected)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair of groups, ``p_own`` of all of them, and a ``note`` where a value is undefined."""
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
            "null_low": self.null_low.ravel(),
            "null_high": self.null_high.ravel(),
            "p": self.p.ravel(),
            "p_corrected": self.p_corrected.ravel(),
            "p_own": float(self.own.p[0]),
            "note": "",
        })
        frame.loc[frame["expected"] == 0, "note"] = "no landmark of this group"
        frame.loc[frame["share"].isna(), "note"] = "no test sample of this group"
        return frame


def cross_group(
    rankings: Mapping[str, Tensor], landmark_groups: Labels, groups: Labels, *, seed: int = 0
) -> dict[str, CrossGroup]:
    """Cross the groups of test samples with those of their top landmarks, for each method.

    Args:
        rankings: For each method the landmarks of every test sample, best first, ``(t, K)``; only the first is used.
        landmark_groups: Groups of the landmarks, ``(m,)``.
        groups: Groups of the test samples, ``(t,)``.
        seed: Of the shuffles.

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
    return {method: _matrix(names, top[:, 0].cpu(), of_landmark, of_test, seed) for method, top in rankings.items()}


def _matrix(names: list[Any], top: Tensor, of_landmark: Tensor, of_test: Tensor, seed: int) -> CrossGroup:
    """Return the matrix of the first landmarks ``top`` ``(t,)``."""
    size, m = len(names), len(of_landmark)
    frequency = torch.bincount(of_landmark, minlength=size).double() / m
    anchored = torch.bincount(of_test * m + top, minlength=size * m).reshape(size, m).double()
    orders = landmark_orders(m, draws=min(enough_draws(size * size), MOST_DRAWS), seed=seed)
    kinds = torch.nn.functional.one_hot(of_landmark, size).double()
    counts = torch.cat([anchored @ kinds[part] for part in orders.split(64)])  # (1 + draws, size, size)
    totals = anchored.sum(1, keepdim=True)
    interval = wilson_interval(counts[0], totals)
    test = PermutationTest.of(counts[0].flatten(), counts[1:].flatten(1), slack=1e-6)
    possible = ((totals > 0) & (frequency > 0)).flatten()
    p = torch.where(possible, test.p, torch.nan)
    corrected = p.clone()
    corrected[possible] = holm(p[possible])
    band = ((value.reshape(size, size) / totals) for value in (test.low, test.high))
    squares = (value.reshape(size, size) for value in (p, corrected))
    arrays = (counts[0].long(), interval.estimate, interval.low, interval.high, *band, *squares, frequency)
    values: list[Any] = [*(array.numpy() for array in arrays), _own(anchored, of_landmark[orders])]
    return CrossGroup(names, *values)


def anchoring_test(top: Tensor, of_landmark: Tensor, of_test: Tensor, *, draws: int, seed: int = 0) -> PermutationTest:
    """Test how many samples have a landmark of their own group first.

    Args:
        top: First landmark of every test sample, ``(t,)``.
        of_landmark: Group codes of the landmarks, ``(m,)``; they are shuffled.
        of_test: Group codes of the test samples, ``(t,)``.
        draws: Shuffles.
        seed: Of the shuffles.

    Returns:
        The test of one share.
    """
    m, size = len(of_landmark), 1 + int(torch.cat([of_landmark, of_test]).max())
    anchored = torch.bincount(of_test * m + top, minlength=size * m).reshape(size, m).double()
    return _own(anchored, of_landmark[landmark_orders(m, draws=draws, seed=seed)])


def _own(anchored: Tensor, groups: Tensor) -> PermutationTest:
    """Return the test of the own-group share, from counts ``(size, m)`` and groups by order, ``(1 + draws, m)``."""
    shares = anchored[groups, torch.arange(groups.shape[1])].sum(1, keepdim=True) / anchored.sum()
    return PermutationTest.of(shares[0], shares[1:], slack=1e-9)
