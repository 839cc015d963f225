"""A run as one object that answers for it: settings, data, split, views and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes import registry
from krepes.batches import Batch
from krepes.data.chosen import ChosenIds
from krepes.data.kept import rows_of
from krepes.data.schema import Schema
from krepes.data.tokenizer import Tokenizer
from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.runs.dataset import Dataset
from krepes.runs.recipe import Recipe
from krepes.runs.settings import Settings
from krepes.views import ViewStream
from krepes.views.source import RowsOf, Through

Column = np.ndarray[Any, Any]
MEMBERS = 500
"""Samples of a group that stand for it in an outcome."""


@dataclass(frozen=True, eq=False)
class Workspace:
    """A fitted model with the data it was fitted on and those it is asked about.

    Attributes:
        settings: What decided it.
        data: Samples of the fit.
        train: Rows of ``data`` that were fitted, in the order of the stream.
        asked: Samples that can be asked about: ``data``, or those of a new file.
        test: Rows of ``asked`` that are explained and audited, sorted.
        stream: The views of the training samples.
        model: The fitted model.
        notes: What a reader must know about the data, such as that they were changed after the fit.
        recipe: How the encoder was trained, or ``None`` if nobody knows.
        folder: Where the run lies.
    """

    settings: Settings
    data: Dataset
    train: Tensor
    asked: Dataset
    test: Tensor
    stream: ViewStream
    model: Krepes = field(repr=False)
    notes: tuple[str, ...] = ()
    recipe: Recipe | None = None
    folder: Path = Path()

    @cached_property
    def train_ids(self) -> ChosenIds:
        """Ids of the training samples."""
        return ChosenIds(self.data.ids, self.train)

    @cached_property
    def test_ids(self) -> ChosenIds:
        """Ids of the samples that are explained."""
        return ChosenIds(self.asked.ids, self.test)

    @property
    def title(self) -> str:
        """What a person calls the data."""
        return self.asked.name

    def samples(self, ids: Sequence[Any]) -> Batch:
        """Return the samples of some ids as the encoder wants them, not augmented."""
        return self._plain(self.asked, torch.tensor([self.asked.place(id) for id in ids]))

    @cached_property
    def test_samples(self) -> Batch:
        """The samples that are explained, ``(t, ...)``, held in memory."""
        return self._plain(self.asked, self.test)

    @property
    def test_source(self) -> Through:
        """The samples that are explained, ``t`` of them, not augmented, read when they are asked for."""
        _ = self.asked.samples  # of a table: all of it is asked about, so it is encoded once and not at each look
        return Through(RowsOf(self.asked, self.test), self.stream.augment.plain)

    def train_source(self, places: Tensor) -> Through:
        """Return training samples by their place in the stream, ``(b,)``, not augmented, read when asked for."""
        return Through(RowsOf(self.data, self.train[places]), self.stream.augment.plain)

    def held_out(self, places: Tensor) -> Batch:
        """Return samples that are explained by their place among them, ``(b,)``, not augmented."""
        return self._plain(self.asked, self.test[places])

    def train_samples(self, places: Tensor) -> Batch:
        """Return training samples by their place in the stream, ``(b,)``, not augmented."""
        return self._plain(self.data, self.train[places])

    def pictures(self, ids: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return samples of some ids and the landmarks as they are in the data, before any normalisation."""
        samples = self.asked.take(torch.tensor([self.asked.place(id) for id in ids]))
        landmarks = self.data.take(self.train[self.model.landmarks_])
        if not isinstance(samples, Tensor) or not isinstance(landmarks, Tensor):
            raise InvalidInputError("only samples that are single pictures can be drawn.")
        return samples, landmarks

    def of_train(self, column: str, asked_by: str = "--label") -> Column:
        """Return a column's values at the training samples, in the order of the stream."""
        return self.data.column(column, asked_by)[self.train.numpy()]

    def of_test(self, column: str, asked_by: str = "--label") -> Column:
        """Return a column's values at the samples that are explained."""
        return self.asked.column(column, asked_by)[self.test.numpy()]

    def of_landmarks(self, column: str, asked_by: str = "--label") -> Column:
        """Return a column's values at the landmarks."""
        return self.of_train(column, asked_by)[self.model.landmarks_.numpy()]

    def pair(self, column: str, asked_by: str = "--label") -> tuple[Column, Column]:
        """Return a column's values at the training samples and at those that are explained."""
        return self.of_train(column, asked_by), self.of_test(column, asked_by)

    @cached_property
    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Original columns of the training samples and of those explained, without ids and labels; or ``None``."""
        if self.data.table is None or self.asked.table is None or self.data.table.columns.empty:
            return None
        judging = {self.settings.id_column, self.settings.label}
        columns = [name for name in self.data.table if name not in judging and name in self.asked.table]
        found = (
            rows_of(self.data.table[columns], self.train.numpy()),
            rows_of(self.asked.table[columns], self.test.numpy()),
        )
        return self.schema.with_values(found[0]), self.schema.with_values(found[1])

    @cached_property
    def schema(self) -> Schema:
        """Kinds of the original columns: as the fit took them, hidden ones too, and others as they look."""
        assert self.data.table is not None
        encoding = self.data.encoding
        known = () if encoding is None else (*encoding.schema.columns, *encoding.beside.columns)
        other = self.data.table.drop(columns=[column.name for column in known], errors="ignore")
        return Schema((*known, *(() if other.columns.empty else Schema.look(other).columns)))

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that the encoder does not see: those that settings hide; of texts, all that stand beside them."""
        beside = () if self.data.texts is None or self.data.table is None else tuple(map(str, self.data.table))
        return tuple(dict.fromkeys((*self.settings.hidden, *beside)))

    @property
    def texts(self) -> tuple[list[str], list[str]] | None:
        """What the training samples and those explained say, if they are texts."""
        if self.data.texts is None or self.asked.texts is None:
            return None
        return [self.data.texts[i] for i in self.train.tolist()], [self.asked.texts[i] for i in self.test.tolist()]

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What makes tokens of texts, if samples are texts."""
        return self.data.arrays.tokenizer if isinstance(self.data.arrays, TokenizedTexts) else None

    def require_columns(self, groups: Sequence[str], label: str | None) -> None:
        """Refuse a group or a label that the data do not have, before any work."""
        for name in groups:
            self.pair(name, "--group")
        if label is not None:
            self.pair(label)

    def members(self, column: str, value: str, asked_by: str = "--toward") -> tuple[Through, Through]:
        """Return training samples of a group, and of the others, at most 500 each.

        Args:
            column: Whose values are the groups.
            value: Of the group.
            asked_by: The flag that named them, for the message.

        Returns:
            Samples inside and outside, read when they are asked for.
        """
        values = self.of_train(column, asked_by)
        inside = require_group(values, column, value, asked_by)
        outside = torch.from_numpy(np.flatnonzero(values != value))
        return self.train_source(inside[:MEMBERS]), self.train_source(outside[:MEMBERS])

    def _plain(self, dataset: Dataset, rows: Tensor) -> Batch:
        return self.stream.augment.plain(dataset.take(rows))


def column_and_value(text: str, asked_by: str = "--concept") -> tuple[str, str]:
    """Return the two sides of ``column=value``."""
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise InvalidInputError(f"{asked_by} {text!r} is not column=value.")
    return column, value


def require_group(values: Column, column: str, value: str, asked_by: str) -> Tensor:
    """Return the places of a group among the training samples, ``(g,)``; refuse one that nobody, or everybody, is in.

    Args:
        values: Of the column at the training samples.
        column: Its name.
        value: Of the group.
        asked_by: The flag that named them, for the message.

    Returns:
        The places.

    Raises:
        InvalidInputError: If no training sample is of the group, or all are.
    """
    inside = torch.from_numpy(np.flatnonzero(values == value))
    if not 0 < len(inside) < len(values):
        known = sorted(set(values.tolist()))
        hint = registry.suggestion(value, known) or f" Values are {', '.join(known[:8])}."
        raise InvalidInputError(
            f"{asked_by} {column}={value} names {len(inside)} of {len(values)} training samples: some must have "
            f"the value and some not.{hint}"
        )
    return inside
