"""A linear probe: how much of the classes can be read off embeddings. It judges, and never chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def probe(Z_train: Array, y_train: Array, Z_test: Array, y_test: Array) -> float:
    """Return the test accuracy of a logistic regression on standardised embeddings ``(n, h)`` and ``(t, h)``."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    return float(classifier.fit(Z_train, y_train).score(Z_test, y_test))
