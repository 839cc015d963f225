"""From a fitted model and what is known about its data to a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from krepes.audit import FeatureSpace
from krepes.batches import Batch
from krepes.concepts import ConceptVector
from krepes.model import Krepes
from krepes.report.content import Part, Report
from krepes.report.evidence import Evidence, Pair
from krepes.report.sections import SECTIONS
from krepes.views import ViewStream


def build_report(
    model: Krepes,
    *,
    X_test: Batch,
    test_ids: Sequence[Any] | None = None,
    train_ids: Sequence[Any] | None = None,
    stream: ViewStream | None = None,
    tables: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    features: FeatureSpace | None = None,
    groups: Mapping[str, Pair] | None = None,
    labels: Pair | None = None,
    concepts: Sequence[ConceptVector] = (),
    inputs: Literal["table", "image", "other"] = "other",
    title: str = "KREPES report",
    shown: int = 12,
    k: int = 5,
    counterfactual: bool = True,
    seed: int = 0,
) -> Report:
    """Audit a model and write down what was found.

    Nothing but the model and samples to explain is required; a section that lacks its input says what to pass.

    Args:
        model: A fitted model.
        X_test: Un-augmented samples to explain, ``(t, ...)``.
        test_ids: Their ids; by default ``0..t-1``.
        train_ids: Ids of all training rows; by default ``0..n-1``.
        stream: The training data; only a model that was loaded from a run folder needs it.
        tables: Original columns of the training rows and of the test samples, in their order.
        features: Kinds and ranges of those columns; by default read from the training rows.
        groups: For each way of grouping, the groups of training rows and of test samples.
        labels: Classes of training rows and of test samples; they judge, they never reach the fit.
        concepts: Directions fitted by `krepes.concepts.ConceptVector`.
        inputs: How to show a sample: a row of ``tables``, an image ``(C, H, W)``, or its id alone.
        title: Of the report and its part.
        shown: Samples to show one by one, evenly spaced among the test samples.
        k: Landmarks to show of each sign.
        counterfactual: Whether to pass over the training data again for the influence of every row.
        seed: Of everything random.

    Returns:
        The report: plain data, for `krepes.report.render`.

    Example:
        >>> import torch
        >>> from krepes.kernels.classic import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = Krepes(RBF(2.0), m=20, h=5, augment=GaussianNoise(0.1), progress=False).fit(X)
        >>> report = build_report(model, X_test=X[:40])
        >>> [section.key for section in report.parts[0].sections if section.missing]
        ['features', 'groups', 'concepts']
    """
    evidence = Evidence(
        model,
        X_test,
        test_ids=test_ids,
        train_ids=train_ids,
        stream=stream,
        tables=tables,
        features=features,
        groups=groups or {},
        labels=labels,
        concepts=concepts,
        inputs=inputs,
        shown=shown,
        k=k,
        counterfactual=counterfactual,
        seed=seed,
    )
    return Report(title, (Part(title, tuple(section(evidence) for section in SECTIONS)),))
