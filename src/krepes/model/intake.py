"""What a model accepts as data: views as they are, tables through a schema, all else through an augmentation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from krepes import batches
from krepes.budget import Budget
from krepes.data.chosen import in_place
from krepes.data.schema import Schema
from krepes.data.tabular import TabularEncoder
from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError
from krepes.objectives.base import Objective
from krepes.views import (
    Augmentation,
    Compose,
    FeatureDrop,
    FunctionAugmentation,
    GaussianNoise,
    Identity,
    ViewStream,
    word_views,
)
from krepes.views.source import RowsOf

Augment: TypeAlias = Augmentation | Callable[..., Any]
"""An augmentation, or a plain function of samples."""


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a DataFrame: pandas, or anything with ``to_pandas``, such as a polars one."""
    return isinstance(X, pd.DataFrame) or (hasattr(X, "to_pandas") and not isinstance(X, Dataset))


def fit_encoding(table: Any) -> TabularEncoder:
    """Return how the columns of a training table become numbers, their kinds inferred."""
    return TabularEncoder(Schema.infer(table)).fit(table)


def encoded(X: Any, encoding: TabularEncoder | None) -> Any:
    """Return samples as the encoder takes them: a DataFrame encoded as the training table was, all else unchanged.

    Args:
        X: Samples, or a DataFrame with the columns of the training table.
        encoding: Of the training table, or ``None`` if the model was not fitted on one.

    Returns:
        The samples; of a table ``(n, d)``, float32.

    Raises:
        InvalidInputError: If a DataFrame is given to a model that was fitted on something else.
    """
    if not is_frame(X):
        return X
    if encoding is None:
        raise InvalidInputError(
            "a DataFrame was given, but this model was fitted on arrays and does not know how its columns become "
            "numbers. Encode it as the training data was, or fit the model on a DataFrame."
        )
    return encoding.transform(X)


def as_augmentation(augment: Augment | None, encoding: TabularEncoder | None = None) -> Augmentation | None:
    """Return what makes the views.

    Args:
        augment: An augmentation, a plain function, or ``None``.
        encoding: Of the training table: without ``augment``, its columns are dropped at random, each with all that
            encodes it, and noise is added; the default of the command line, too.

    Returns:
        The augmentation, or ``None`` if nothing says what a view is.

    Raises:
        InvalidInputError: If ``augment`` is neither.
    """
    if augment is None:
        if encoding is None:
            return None
        groups = tuple(tuple(columns) for columns in encoding.groups.values())
        return Compose(FeatureDrop(0.2, groups=groups), GaussianNoise(0.1))
    if isinstance(augment, Augmentation):
        return augment
    if callable(augment):
        return FunctionAugmentation(augment)
    raise InvalidInputError(
        f"augment must be an augmentation of krepes.views or a function of samples, got {type(augment).__name__}."
    )


def open_stream(
    X: Any,
    objective: Objective[Any],
    *,
    augment: Augment | None,
    encoding: TabularEncoder | None,
    seed: int,
    budget: Budget,
) -> ViewStream:
    """Return the stream of views, made from plain data if need be.

    Args:
        X: A `ViewStream`, or samples.
        objective: Says how many views of a sample it compares.
        augment: What makes views of plain data.
        encoding: Of a table.
        seed: Of views made here.
        budget: Batches made here fit a quarter of it: samples, their views, and the stack of them.

    Returns:
        The stream, with enough views for the objective.

    Raises:
        InvalidInputError: If there are too few views.
    """
    if not isinstance(X, ViewStream):
        chosen = as_augmentation(augment, encoding) or _of_texts(X)
        if objective.views > 1 and chosen is None:
            raise InvalidInputError(
                f"objective '{objective.name}' compares {objective.views} views of a sample and none were given. "
                f"Pass augment=..., such as GaussianNoise(0.1) or a function of samples, or fit a ViewStream."
            )
        X = ViewStream(encoded(X, encoding), chosen or Identity(), seed=seed)
        each = (2 * X.p + 1) * batches.sample_bytes(X.plain(torch.arange(1)))
        X = X.with_batch_size(budget.rows(each, what="a sample and its views", share=1 / 4, most=X.batch_size))
    require_views(objective, X.p)
    return X


def _of_texts(X: Any) -> Augmentation | None:
    """Return the views of texts where none were named; nothing for other samples."""
    source = X.source if isinstance(X, RowsOf) else X
    return word_views(source.tokenizer.vocabulary) if isinstance(source, TokenizedTexts) else None


def require_views(objective: Objective[Any], p: int) -> None:
    """Raise `InvalidInputError` unless ``p`` views of a sample are enough for an objective."""
    if p < objective.views:
        raise InvalidInputError(
            f"objective '{objective.name}' needs {objective.views} views of a sample, the stream makes {p}."
        )


def row_ids(ids: Sequence[Any] | None, X: Any, n: int) -> Sequence[Any]:
    """Return the ids of ``n`` samples; `plain_id` makes one of them a value that JSON can hold.

    Args:
        ids: As the user gave them, or ``None`` for the index of a pandas DataFrame, else ``0..n-1``.
        X: The data.
        n: Number of samples.

    Returns:
        One id per sample.

    Raises:
        InvalidInputError: If there is not one for each.
    """
    default = X.index.tolist() if isinstance(X, pd.DataFrame) else range(n)
    found = in_place(default if ids is None else ids)
    if len(found) != n:
        raise InvalidInputError(f"{len(found)} row ids were given for {n} samples: there must be one for each.")
    return found


def plain_id(value: Any) -> Any:
    """Return an id as a plain value that JSON can hold."""
    if isinstance(value, (np.generic, Tensor)):
        value = value.item()
    return value if isinstance(value, (str, int, float, bool)) else str(value)


@contextmanager
def width_explained(encoder: Any, encoding: TabularEncoder | None) -> Generator[None, None, None]:
    """Where an encoder fails on the rows of a table because of their width, raise `InvalidInputError` with both."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        layers = encoder.modules() if isinstance(encoder, nn.Module) and encoding is not None else ()
        takes = next((layer.in_features for layer in layers if isinstance(layer, nn.Linear)), None)
        if encoding is None or takes is None or takes == len(encoding.feature_names):
            raise
        d = len(encoding.feature_names)
        raise InvalidInputError(
            f"the table's {len(encoding.groups)} columns are encoded as {d} numbers, and the encoder takes {takes}. "
            f"Build the encoder for {d}, or encode the table as for the encoder's training and pass the array."
        ) from error
