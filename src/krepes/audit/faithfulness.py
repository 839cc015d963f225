"""Surrogate faithfulness: does a linear probe on the surrogate decide as one on the encoder does?

Both probes are logistic regressions on standardised embeddings, trained on the same labelled rows. Compared are their
accuracies (the gap is paired, sample by sample) and how alike they rank samples and classes by probability. How alike
they could rank them says the encoder itself: two probes on it, each trained on one half of the labelled rows.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from torch import Tensor

from krepes.audit.intervals import Interval, mean_interval, share_interval
from krepes.audit.kendall import tau_flattened, tau_over_classes, tau_over_samples
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.audit.probes import LinearProbe, halves
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.model import Krepes

COLUMNS = ["measure", "class", "estimate", "low", "high", "ceiling", "n", "note"]
FLAT, CLASSES, SAMPLES = "tau flattened", "tau over classes", "tau over samples"


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
        ``same decision``, ``tau flattened``, ``tau over classes`` (mean over samples) and ``tau over samples`` (one
        row per class). ``ceiling`` is the agreement of two probes on the encoder, each trained on one half of the
        labelled rows, and missing where a half shows a single class.
    """
    names, (train, test) = shared_codes(training=labels_train, test=labels_test)
    probes = [LinearProbe.fit(E, train) for E, _ in (surrogate, encoder)]
    (decision_s, P_s), (decision_e, P_e) = (
        (probe.decide(E), probe.probabilities(E)) for probe, (_, E) in zip(probes, (surrogate, encoder), strict=True)
    )
    require_count(test, len(P_s), "test labels")
    right_s, right_e = (decision == test for decision in (decision_s, decision_e))
    same = _ceiling(encoder, train)
    same_decision = None if same is None else float((same[0].argmax(1) == same[1].argmax(1)).double().mean())
    rows = [
        _row("surrogate accuracy", share_interval(right_s.double()), len(test)),
        _row("encoder accuracy", share_interval(right_e.double()), len(test)),
        _row("accuracy gap", mean_interval(right_s.double() - right_e.double()), len(test)),
        _row("same decision", share_interval((decision_s == decision_e).double()), len(test), same_decision),
        *_taus(P_s, P_e, same, [names[int(code)] for code in train.unique()]),
    ]
    # Classes are the user's own values: beside the missing ones of the first rows, numbers would turn into floats.
    return pd.DataFrame(rows, columns=COLUMNS).assign(**{"class": pd.Series([row[1] for row in rows], dtype=object)})


def _taus(P: Tensor, Q: Tensor, same: tuple[Tensor, Tensor] | None, names: list[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of the rank correlations of ``P`` and ``Q`` ``(t, C)``, those of ``same`` as their ceilings."""
    t, rows = len(P), []
    ceiling = None if same is None else float(tau_flattened(*same).estimate)
    rows.append(_row(FLAT, tau_flattened(P, Q), t, ceiling))
    per_sample = tau_over_classes(P, Q)
    defined = ~per_sample.isnan()
    if bool(defined.any()):
        note = "" if bool(defined.all()) else f"{int((~defined).sum())} samples with equal probabilities left out"
        ceiling = None if same is None else float(tau_over_classes(*same).nanmean())
        interval = mean_interval(per_sample[defined])
        rows.append(_row(CLASSES, interval, int(defined.sum()), ceiling, note=note))
    for column, name in enumerate(names):
        tau = tau_over_samples(P[:, column], Q[:, column])
        note = "a probe gives every sample the same probability" if bool(tau.estimate.isnan()) else ""
        best = None if same is None else float(tau_over_samples(same[0][:, column], same[1][:, column]).estimate)
        rows.append(_row(SAMPLES, tau, t, best, of_class=name, note=note))
    return rows


def _ceiling(encoder: tuple[Tensor, Tensor], train: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the probabilities ``(t, C)`` of two probes on the encoder, each trained on half of the labelled rows."""
    E_train, E_test = encoder
    parts = halves(train)
    if any(len(train[part].unique()) < 2 for part in parts):
        return None
    classes = train.unique()
    first, second = (LinearProbe.fit(E_train[part], train[part]).probabilities(E_test, classes) for part in parts)
    return first, second


def _row(
    measure: str, interval: Interval, n: int, ceiling: float | None = None, *, of_class: Any = None, note: str = ""
) -> tuple[Any, ...]:
    best = float("nan") if ceiling is None else ceiling
    return (measure, of_class, float(interval.estimate), float(interval.low), float(interval.high), best, n, note)
