r"""Linear probes on embeddings, as one matrix: what they decide, and by which weights.

    logit_c(x) = <w_c, e(x)> + b_c,        P(c | x) = softmax_c,        two classes: w_1 = -w_0

The regression sees standardised embeddings; its scaling is folded into ``w`` and ``b``, so that a difference of logits
is linear in the embedding itself and can be taken apart.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn import exceptions
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from krepes._checks import require_finite
from krepes.audit.labels import Labels, require_count, shared_codes
from krepes.errors import ConvergenceWarning, InvalidInputError

Array = np.ndarray[Any, Any]
PROBE_ROWS = 5000
"""Training samples of a probe in an audit: more make it hardly better."""


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A multinomial logistic regression on embeddings of ``h`` dimensions.

    Attributes:
        weights: ``(C, h)``, float64.
        bias: ``(C,)``, float64.
        classes: Codes of the classes that the training rows show, ascending, ``(C,)``.
    """

    weights: Tensor
    bias: Tensor
    classes: Tensor

    @classmethod
    def fit(cls, E: Tensor, codes: Tensor) -> LinearProbe:
        """Fit a probe to embeddings.

        Args:
            E: Embeddings of training samples, ``(n, h)``.
            codes: Their classes as whole numbers, ``(n,)``.

        Returns:
            The probe.

        Raises:
            InvalidInputError: If there is a single class, not one code for each sample, or an entry is not finite.
        """
        require_finite(E, "the training embeddings")
        require_count(codes, len(E), "training labels")
        if len(codes.unique()) < 2:
            raise InvalidInputError("the training labels show a single class: a probe needs at least two.")
        scaler = StandardScaler()
        found = _regression(scaler.fit_transform(E.cpu().numpy()), codes.numpy(), max_iter=1000)
        coefficients, intercept = (torch.from_numpy(x).double() for x in (found.coef_, found.intercept_))
        if len(coefficients) == 1:
            coefficients, intercept = (torch.cat([-x, x]) / 2 for x in (coefficients, intercept))
        weights = coefficients / torch.from_numpy(scaler.scale_)
        bias = intercept - weights @ torch.from_numpy(scaler.mean_)
        return cls(weights, bias, torch.from_numpy(found.classes_))

    def logits(self, E: Tensor) -> Tensor:
        """Return the logits of embeddings ``(t, h)``, ``(t, C)``, float64."""
        require_finite(E, "the test embeddings")
        return E.to("cpu", torch.float64) @ self.weights.T + self.bias

    def probabilities(self, E: Tensor, classes: Tensor | None = None) -> Tensor:
        """Return class probabilities of embeddings ``(t, h)``.

        Args:
            E: The embeddings.
            classes: Codes that the columns stand for, by default those of the probe; one it never saw has none.

        Returns:
            ``(t, C)``, float64.
        """
        P = torch.softmax(self.logits(E), dim=1)
        if classes is None:
            return P
        place = torch.searchsorted(classes, self.classes)
        return P.new_zeros(len(P), len(classes)).index_copy_(1, place, P)

    def decide(self, E: Tensor) -> Tensor:
        """Return the code of the class with the largest logit, ``(t,)``."""
        return self.classes[self.logits(E).argmax(1)]


def predicted_labels(E_train: Tensor, labels_train: Labels, *others: Tensor) -> list[list[Any]]:
    """Return what a probe predicts for other samples, in the words of the labels.

    Args:
        E_train: Embeddings of the samples that train it, ``(n, d)``.
        labels_train: Their classes.
        *others: Embeddings of samples to judge, ``(t, d)`` each; leave them out of the training for an honest answer.

    Returns:
        For each of ``others`` the predicted classes.

    Example:
        >>> E = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
        >>> predicted_labels(E, ["low", "low", "high", "high"], torch.tensor([[0.2], [0.9]]))
        [['low', 'high']]
    """
    names, (codes,) = shared_codes(training=labels_train)
    probe = LinearProbe.fit(E_train, codes)
    return [[names[int(code)] for code in probe.decide(E)] for E in others]


def halves(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Split samples into two halves, every other one of each class: rows of ``codes`` ``(n,)``, ascending."""
    order = codes.argsort(stable=True)
    return order[::2].sort().values, order[1::2].sort().values


def is_right(Z_train: Array, y_train: Array, Z_test: Array, y_test: Array) -> Array:
    """Return of which test samples a probe names the class; it judges, and never chooses.

    Args:
        Z_train: Embeddings of training samples, ``(n, h)``.
        y_train: Their classes, ``(n,)``.
        Z_test: Embeddings of test samples, ``(t, h)``.
        y_test: Their classes, ``(t,)``.

    Returns:
        Whether a logistic regression on standardised embeddings is right, ``(t,)``.
    """
    scaler = StandardScaler()
    found = _regression(scaler.fit_transform(Z_train), y_train, max_iter=300)
    return np.asarray(found.predict(scaler.transform(Z_test)) == y_test)


def probe(Z_train: Array, y_train: Array, Z_test: Array, y_test: Array) -> float:
    """Return how often a probe is right: the mean of `is_right`, which has the arguments."""
    return float(is_right(Z_train, y_train, Z_test, y_test).mean())


def _regression(Z: Array, y: Array, *, max_iter: int) -> LogisticRegression:
    """Fit a regression, which warns if it is stopped before it has converged."""
    # By one thread: its products have a column a class, and threads wait for each other at each.
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = LogisticRegression(max_iter=max_iter).fit(Z, y)
    stopped = [one for one in said if issubclass(one.category, exceptions.ConvergenceWarning)]
    for one in said:
        if one not in stopped:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if stopped:  # scikit-learn advises to scale, which was done
        warnings.warn(
            f"a linear probe of {Z.shape[1]} dimensions and {len(found.classes_)} classes was stopped after "
            f"{max(found.n_iter_)} iterations, before it had converged: what it reads off may be a little less than is "
            f"there.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return found
