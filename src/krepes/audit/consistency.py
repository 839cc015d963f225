r"""Label consistency: do the landmarks that a method ranks first share the test sample's class?

    Precision@K   share of the top K with the sample's class
    Majority@K    1 if the most frequent class among the top K is the sample's
    HitRate@K     1 if any of the top K has the sample's class

A ranking is only as good as its distance from the others, so the table holds one row per method. "Class" can be meant
in three ways, of the sample and of its landmarks: the true one of both; what a classifier predicts for the sample,
against the true ones of the landmarks; or predictions of both. `consistency_readings` has all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.audit.intervals import share_interval
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.rankings import require_rankings

DEPTHS = (1, 2, 3, 5, 10, 20, 50)
"""The K of the paper's table."""
PIECE = 8192
"""Test samples that are judged at a time."""
TRUE, MIXED, PREDICTED = "true / true", "predicted / true", "predicted / predicted"
READINGS = (TRUE, MIXED, PREDICTED)
"""Whose classes are compared: those of the sample / those of the landmarks."""


def label_consistency(
    rankings: Mapping[str, Tensor],
    landmark_labels: Labels,
    labels: Labels,
    *,
    predictions: Labels | None = None,
    depths: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Compare methods by how far their top landmarks share the class of the test sample.

    A tie of Majority@K goes to the class that reached the count first, that is, with better ranks.

    Args:
        rankings: For each method the landmarks of every test sample, best first, ``(t, K)``; see
            `krepes.audit.rankings`.
        landmark_labels: Classes of the landmarks, ``(m,)``.
        labels: True classes of the test samples, ``(t,)``.
        predictions: Classes that a classifier predicted, ``(t,)``; adds Majority@K against them.
        depths: The values of K; by default those of the paper's table that the rankings reach.

    Returns:
        One row per method, metric and K: ``method``, ``metric``, ``k``, ``estimate``, ``low``, ``high``, ``n``.

    Example:
        >>> top = torch.tensor([[0, 1], [2, 1]])
        >>> table = label_consistency({"ours": top}, ["a", "b", "b"], ["a", "b"], depths=[2])
        >>> table[["metric", "estimate"]].to_dict("list")
        {'metric': ['precision', 'majority', 'hit_rate'], 'estimate': [0.75, 1.0, 1.0]}
    """
    asked = {} if predictions is None else {"prediction": predictions}
    names, (of_landmark, truth, *predicted) = shared_codes(landmarks=landmark_labels, test=labels, **asked)
    t, reach = require_rankings(rankings, m=len(of_landmark))
    if depths is None:
        depths = [k for k in DEPTHS if k <= reach]
    for k in depths:
        require_range(k, "K", low=1, high=reach)
    require_count(truth, t, "test labels")
    for guess in predicted:
        require_count(guess, t, "predictions")
    rows = []
    for method, top in rankings.items():
        for metric, values in _at_depths(top, of_landmark, [truth, *predicted], len(names), depths).items():
            for i, k in enumerate(depths):
                interval = share_interval(values[:, i])
                ends = float(interval.estimate), float(interval.low), float(interval.high)
                rows.append((method, metric, k, *ends, t))
    return pd.DataFrame(rows, columns=["method", "metric", "k", "estimate", "low", "high", "n"])


def consistency_readings(
    rankings: Mapping[str, Tensor],
    landmark_labels: tuple[Labels, Labels],
    labels: tuple[Labels, Labels],
    *,
    depths: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Compare methods under each reading of "class"; Majority against predictions asks whether the vote is foretold.

    Args:
        rankings: As in `label_consistency`.
        landmark_labels: True and predicted classes of the landmarks, ``(m,)`` each.
        labels: True and predicted classes of the test samples, ``(t,)`` each.
        depths: As in `label_consistency`.

    Returns:
        As `label_consistency`, with a first column ``labels``, one of `READINGS`.
    """
    pairs = ((labels[0], landmark_labels[0]), (labels[1], landmark_labels[0]), (labels[1], landmark_labels[1]))
    tables = []
    for reading, (of_sample, of_landmark) in zip(READINGS, pairs, strict=True):
        table = label_consistency(rankings, of_landmark, of_sample, depths=depths)
        table.insert(0, "labels", reading)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _at_depths(
    top: Tensor, of_landmark: Tensor, classes_of: Sequence[Tensor], classes: int, depths: Sequence[int]
) -> dict[str, Tensor]:
    """Return each metric at the depths asked for, ``(t, depths)``, from a few thousand samples at a time."""
    columns, pieces = torch.tensor([k - 1 for k in depths]), dict[str, list[Tensor]]()
    for start in range(0, len(top), PIECE):
        truth, *predicted = (codes[start : start + PIECE] for codes in classes_of)
        found = of_landmark[top[start : start + PIECE].cpu()]  # (b, K)
        metrics = _metrics(found, truth, classes)
        for guess in predicted:
            metrics["majority_of_prediction"] = (_running_majority(found, classes) == guess[:, None]).double()
        for metric, values in metrics.items():
            pieces.setdefault(metric, []).append(values[:, columns])
    return {metric: torch.cat(found) for metric, found in pieces.items()}


def _metrics(found: Tensor, truth: Tensor, classes: int) -> dict[str, Tensor]:
    """Return each metric at every depth, ``(t, K)``, of the classes ``found`` ``(t, K)`` for ``truth`` ``(t,)``."""
    hits = (found == truth[:, None]).double()
    depth = torch.arange(1, found.shape[1] + 1)
    return {
        "precision": hits.cumsum(1) / depth,
        "majority": (_running_majority(found, classes) == truth[:, None]).double(),
        "hit_rate": hits.cummax(1).values,
    }


def _running_majority(found: Tensor, classes: int) -> Tensor:
    """Return the most frequent class among the first 1, 2, ..., K, ``(t, K)``."""
    rows = torch.arange(len(found))
    counts = torch.zeros(len(found), classes, dtype=torch.int32)
    best = found[:, 0].clone()
    majority = torch.empty_like(found)
    for k in range(found.shape[1]):
        counts[rows, found[:, k]] += 1
        leads = counts[rows, found[:, k]] > counts[rows, best]
        best = torch.where(leads, found[:, k], best)
        majority[:, k] = best
    return majority
