"""Surrogate faithfulness: does a linear probe on the surrogate decide as one on the encoder does?

Both probes are logistic regressions on standardised embeddings, trained on the same labelled rows. Compared are their
accuracies (the gap is paired, sample by sample) and how alike they rank samples and classes by probability. How alike
they could rank them says the encoder itself: two probes on it, each trained on one half of the labelled rows. Probes
that share their labels share their errors too, so what is held against that ceiling is a probe on the surrogate with
one half and one on the encoder with the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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

COLUMNS = ["measure", "class", "estimate", "low", "high", "apart", "ceiling", "n", "note"]
Pair = tuple[Tensor, Tensor]
"""Probabilities by two probes, ``(t, C)`` each."""
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
        labelled rows, and ``apart`` that of one on the surrogate with one half and one on the encoder with the other
        (mean of both ways), which the ceiling bounds; both are missing where a half shows a single class.
    """
    return EncoderProbes.fit(encoder, labels_train, labels_test).compared(surrogate)


@dataclass(frozen=True, eq=False)
class EncoderProbes:
    """What probes on the encoder say, once for all models that are compared with it.

    Attributes:
        names: Classes, by their codes.
        train: Codes of the training samples, ``(n,)``.
        test: Codes of the test samples, ``(t,)``.
        decision: Of a probe on the encoder, ``(t,)``.
        P: Its probabilities, ``(t, C)``.
        same: Those of two probes on the encoder, each trained on half of the labelled rows; ``None`` where a half shows
            a single class.
    """

    names: Sequence[Any]
    train: Tensor
    test: Tensor
    decision: Tensor
    P: Tensor
    same: tuple[Tensor, Tensor] | None

    @classmethod
    def fit(cls, encoder: tuple[Tensor, Tensor], labels_train: Labels, labels_test: Labels) -> EncoderProbes:
        """Fit the probes; `faithfulness_of` has the arguments."""
        names, (train, test) = shared_codes(training=labels_train, test=labels_test)
        probe = LinearProbe.fit(encoder[0], train)
        require_count(test, len(encoder[1]), "test labels")
        same = _of_halves(encoder, train)
        return cls(names, train, test, probe.decide(encoder[1]), probe.probabilities(encoder[1]), same)

    def compared(self, surrogate: tuple[Tensor, Tensor]) -> pd.DataFrame:
        """Return how a probe on a model's embeddings, ``(n, h)`` and ``(t, h)``, compares; see `faithfulness_of`."""
        probe = LinearProbe.fit(surrogate[0], self.train)
        decision, P = probe.decide(surrogate[1]), probe.probabilities(surrogate[1])
        require_count(self.test, len(P), "test labels")
        right_s, right_e = (found == self.test for found in (decision, self.decision))
        t, halves = len(self.test), _Halves.of(self.same, _of_halves(surrogate, self.train))
        alike = halves.both(lambda P, Q: float((P.argmax(1) == Q.argmax(1)).double().mean()))
        rows = [
            _row("surrogate accuracy", share_interval(right_s.double()), t),
            _row("encoder accuracy", share_interval(right_e.double()), t),
            _row("accuracy gap", mean_interval(right_s.double() - right_e.double()), t),
            _row("same decision", share_interval((decision == self.decision).double()), t, alike),
            *_taus(P, self.P, halves, [self.names[int(code)] for code in self.train.unique()]),
        ]
        # Classes are the user's own values: beside the missing ones of the first rows, numbers would turn into floats.
        of_class = pd.Series([row[1] for row in rows], dtype=object)
        return pd.DataFrame(rows, columns=COLUMNS).assign(**{"class": of_class})


@dataclass(frozen=True, eq=False)
class _Halves:
    """Pairs of probes that share no labelled row: ``crossed``, surrogate and encoder; ``same``, encoder and encoder."""

    crossed: tuple[Pair, ...] = ()
    same: Pair | None = None

    @classmethod
    def of(cls, encoder: Pair | None, surrogate: Pair | None) -> _Halves:
        """Return the pairs that probes on the halves of the labelled rows make; none where a half shows one class."""
        if encoder is None or surrogate is None:
            return cls()
        return cls(((surrogate[0], encoder[1]), (surrogate[1], encoder[0])), encoder)

    def both(self, alike: Callable[[Tensor, Tensor], float]) -> tuple[float, float]:
        """Return how alike the pairs of surrogate and encoder are, on average, and those of the encoder with itself."""
        if self.same is None:
            return float("nan"), float("nan")
        return sum(alike(*pair) for pair in self.crossed) / len(self.crossed), alike(*self.same)


def _taus(P: Tensor, Q: Tensor, halves: _Halves, names: list[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of the rank correlations of ``P`` and ``Q`` ``(t, C)``, those of the halves beside them."""
    t, rows = len(P), []
    rows.append(_row(FLAT, tau_flattened(P, Q), t, halves.both(lambda P, Q: float(tau_flattened(P, Q).estimate))))
    per_sample = tau_over_classes(P, Q)
    defined = ~per_sample.isnan()
    if bool(defined.any()):
        note = "" if bool(defined.all()) else f"{int((~defined).sum())} samples with equal probabilities left out"
        beside = halves.both(lambda P, Q: float(tau_over_classes(P, Q).nanmean()))
        rows.append(_row(CLASSES, mean_interval(per_sample[defined]), int(defined.sum()), beside, note=note))
    for column, name in enumerate(names):
        tau = tau_over_samples(P[:, column], Q[:, column])
        note = "a probe gives every sample the same probability" if bool(tau.estimate.isnan()) else ""
        beside = halves.both(partial(_of_class, column))
        rows.append(_row(SAMPLES, tau, t, beside, of_class=name, note=note))
    return rows


def _of_class(column: int, P: Tensor, Q: Tensor) -> float:
    return float(tau_over_samples(P[:, column], Q[:, column]).estimate)


def _of_halves(embeddings: tuple[Tensor, Tensor], train: Tensor) -> Pair | None:
    """Return the probabilities ``(t, C)`` of two probes on embeddings, each trained on half of the labelled rows."""
    Z_train, Z_test = embeddings
    parts = halves(train)
    if any(len(train[part].unique()) < 2 for part in parts):
        return None
    classes = train.unique()
    first, second = (LinearProbe.fit(Z_train[part], train[part]).probabilities(Z_test, classes) for part in parts)
    return first, second


def _row(
    measure: str,
    interval: Interval,
    n: int,
    beside: tuple[float, float] = (float("nan"), float("nan")),
    *,
    of_class: Any = None,
    note: str = "",
) -> tuple[Any, ...]:
    return (measure, of_class, float(interval.estimate), float(interval.low), float(interval.high), *beside, n, note)
