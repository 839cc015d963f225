"""Surrogate faithfulness: does a linear probe on the surrogate decide as one on the encoder does?

Both probes are logistic regressions on standardised embeddings, trained on the same labelled rows. Compared are their
accuracies (the gap is paired, sample by sample) and how alike they rank samples and classes by probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from krepes._checks import require_finite
from krepes.audit.intervals import Interval, mean_interval, share_interval
from krepes.audit.kendall import tau_over_classes, tau_over_samples
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.model import Krepes

COLUMNS = ["measure", "class", "estimate", "low", "high", "n", "note"]


def faithfulness(
    model: Krepes, X_train: Batch, labels_train: Labels, X_test: Batch, labels_test: Labels
) -> pd.DataFrame:
    """Compare a model with the encoder it explains.

    Args:
        model: A fitted model of an encoder.
        X_train: Samples that train both probes, ``(n, ...)``.
        labels_train: Their classes.
        X_test: Samples that judge them, ``(t, ...)``.
        labels_test: Their classes.

    Returns:
        A DataFrame; see `faithfulness_of`.

    Raises:
        InvalidInputError: If the model explains a kernel, not an encoder.
    """
    encoder = model.encoder_
    if encoder is None:
        raise InvalidInputError(
            f"this model explains the kernel {type(model.kernel).__name__}: there is no encoder to be faithful to."
        )
    return faithfulness_of(
        (model.embed(X_train), model.embed(X_test)),
        (encoder.encode(X_train), encoder.encode(X_test)),
        labels_train,
        labels_test,
    )


def faithfulness_of(
    surrogate: tuple[Tensor, Tensor], encoder: tuple[Tensor, Tensor], labels_train: Labels, labels_test: Labels
) -> pd.DataFrame:
    """Compare linear probes on two sets of embeddings.

    Args:
        surrogate: Embeddings of training and test samples by the model, ``(n, h)`` and ``(t, h)``.
        encoder: By the encoder, ``(n, d)`` and ``(t, d)``.
        labels_train: Classes of the training samples.
        labels_test: Classes of the test samples.

    Returns:
        One row per measure: ``surrogate accuracy``, ``encoder accuracy``, ``accuracy gap`` (surrogate minus encoder),
        ``same decision``, ``tau over classes`` (mean over samples) and ``tau over samples`` (one row per class).
    """
    names, (train, test) = shared_codes(training=labels_train, test=labels_test)
    (decision_s, P_s), (decision_e, P_e) = (_probe(*pair, train) for pair in (surrogate, encoder))
    require_count(test, len(P_s), "test labels")
    right_s, right_e = (decision == test for decision in (decision_s, decision_e))
    per_sample = tau_over_classes(P_s, P_e)
    defined = ~per_sample.isnan()
    rows = [
        _row("surrogate accuracy", share_interval(right_s.double()), len(test)),
        _row("encoder accuracy", share_interval(right_e.double()), len(test)),
        _row("accuracy gap", mean_interval(right_s.double() - right_e.double()), len(test)),
        _row("same decision", share_interval((decision_s == decision_e).double()), len(test)),
    ]
    if bool(defined.any()):
        note = "" if bool(defined.all()) else f"{int((~defined).sum())} samples with equal probabilities left out"
        rows.append(_row("tau over classes", mean_interval(per_sample[defined]), int(defined.sum()), note=note))
    for column, code in enumerate(train.unique()):
        tau = tau_over_samples(P_s[:, column], P_e[:, column])
        note = "a probe gives every sample the same probability" if bool(tau.estimate.isnan()) else ""
        rows.append(_row("tau over samples", tau, len(test), of_class=names[int(code)], note=note))
    # Classes are the user's own values: beside the missing ones of the first rows, numbers would turn into floats.
    return pd.DataFrame(rows, columns=COLUMNS).assign(**{"class": pd.Series([row[1] for row in rows], dtype=object)})


def _probe(E_train: Tensor, E_test: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """Return decisions ``(t,)`` and probabilities ``(t, C)``, classes in the order of their codes."""
    require_finite(E_train, "the training embeddings")
    require_finite(E_test, "the test embeddings")
    require_count(train, len(E_train), "training labels")
    if len(train.unique()) < 2:
        raise InvalidInputError("the training labels show a single class: a probe needs at least two.")
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    probe.fit(E_train.cpu().numpy(), train.numpy())
    P = probe.predict_proba(E_test.cpu().numpy())
    return torch.from_numpy(probe.classes_[np.argmax(P, axis=1)]), torch.from_numpy(P)


def _row(measure: str, interval: Interval, n: int, *, of_class: Any = None, note: str = "") -> tuple[Any, ...]:
    return (measure, of_class, float(interval.estimate), float(interval.low), float(interval.high), n, note)
