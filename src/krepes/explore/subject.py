"""What the explorer looks at: a fitted model and its samples, training samples first, then those that are explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes import batches
from krepes.audit.features import Agreement
from krepes.audit.study import Study
from krepes.batches import Batch
from krepes.data.values import categories
from krepes.errors import InvalidInputError
from krepes.influence.ladder import METHODS
from krepes.model import Krepes
from krepes.runs.proving import trust_in_rows
from krepes.runs.workspace import Workspace
from krepes.views import ViewStream

Taken = Callable[[Tensor], Batch]
"""From places ``(b,)`` to samples."""
Array = np.ndarray[Any, Any]
LABEL, TEXT = "label", "text"
"""Columns of what the data bring along beside a table: classes, and what is read of a sample that is a text."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with samples: place ``i < n`` is training sample ``i`` of the stream, the others are explained.

    Attributes:
        model: Fitted.
        stream: Views of the training samples.
        ids: Of all samples, as the user knows them.
        train: From places among the training samples to samples, as the encoder takes them.
        test: The same for the samples that are explained.
        drawn: From the place of a sample to what it is in the data, if that is a picture; or ``None``.
        table: Original columns of all samples; or ``None``.
        columns: Names that can be asked for, in the order of the data.
        label: The column that judges, or ``None``.
        groups: Columns to offer first as groups.
        kind: What a sample is.
        title: What the data are called.
        folder: Name of the run's folder, without the way to it, or ``None`` where there is none.
        notes: What a reader must know.
        trust: What retraining said of influence here, by the name of the method.
        agreement: When two categories agree in the features.
    """

    model: Krepes
    stream: ViewStream = field(repr=False)
    ids: Sequence[Any] = field(repr=False)
    train: Taken = field(repr=False)
    test: Taken = field(repr=False)
    drawn: Callable[[int], Tensor] | None = field(default=None, repr=False)
    table: pd.DataFrame | None = field(default=None, repr=False)
    label: str | None = None
    groups: tuple[str, ...] = ()
    kind: str = "other"
    title: str = "this model"
    folder: str | None = None
    notes: tuple[str, ...] = ()
    trust: Mapping[str, str] = field(default_factory=dict)
    agreement: Agreement = "indicator"

    @property
    def n(self) -> int:
        """Training samples."""
        return self.stream.n

    @property
    def N(self) -> int:
        """All samples."""
        return len(self.ids)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that can be asked for."""
        return [] if self.table is None else [str(name) for name in self.table.columns]

    def samples(self, places: Tensor) -> Batch:
        """Return samples ``(b,)`` as the encoder takes them, training samples first in any order of places.

        Args:
            places: Of samples, ``(b,)``; those below ``n`` must come first.

        Returns:
            The samples, not augmented.
        """
        inside = places < self.n
        parts = [self.train(places[inside])] if bool(inside.any()) else []
        parts += [self.test(places[~inside] - self.n)] if not bool(inside.all()) else []
        return batches.concatenate(parts) if len(parts) > 1 else parts[0]

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Place of each id, as text; where a new file has ids of the training data, the new one is meant."""
        return {str(id): place for place, id in enumerate(self.ids)}

    def texts(self, column: str) -> Array:
        """Return a column as text, ``(N,)``; a missing value is ``(missing)``."""
        return categories(self.series(column)).astype(str).to_numpy()

    def series(self, column: str) -> pd.Series[Any]:
        """Return a column of all samples, as it is in the data.

        Args:
            column: Its name.

        Returns:
            The values, ``(N,)``.

        Raises:
            InvalidInputError: If there is no such column.
        """
        if self.table is None or column not in self.table:
            raise InvalidInputError(f"there is no column {column!r}. Columns are {', '.join(self.columns[:12])}.")
        return self.table[column]

    def is_number(self, column: str) -> bool:
        """Say whether a column holds numbers, so that it is coloured by a scale."""
        found = self.series(column)
        return bool(pd.api.types.is_numeric_dtype(found) and not pd.api.types.is_bool_dtype(found))


def of_workspace(space: Workspace, *, groups: Sequence[str] = (), label: str | None = None) -> Subject:
    """Return what the explorer sees of an opened run.

    Args:
        space: The run.
        groups: Columns to offer as groups, beside the sensitive ones of the settings.
        label: Column that judges; by default that of the settings, or the labels that the data brought along.

    Returns:
        The subject.
    """
    named = tuple(dict.fromkeys([*space.settings.sensitive, *groups]))
    judging = label or space.settings.label or (LABEL if space.data.labels is not None else None)
    space.require_columns(named, judging)
    n, folder = len(space.train), space.folder.name

    def drawn(place: int) -> Tensor:
        data, rows = (space.data, space.train) if place < n else (space.asked, space.test)
        found = data.take(rows[[place if place < n else place - n]])
        if not isinstance(found, Tensor):
            raise InvalidInputError("only samples that are single pictures can be drawn.")
        return found[0]

    return Subject(
        space.model,
        space.stream,
        [*space.train_ids, *space.test_ids],
        space.train_samples,
        space.held_out,
        drawn if space.asked.kind == "image" else None,
        _table(space),
        judging,
        named,
        space.asked.kind,
        space.title,
        folder,
        space.notes,
        {method: said for method in METHODS if (said := trust_in_rows(space, method))},
        space.settings.agreement,
    )


def _table(space: Workspace) -> pd.DataFrame | None:
    """Return the original columns of all samples, with the labels that came along as a column."""
    train, test = space.train.numpy(), space.test.numpy()
    parts = []
    for data, rows in ((space.data, train), (space.asked, test)):
        part = pd.DataFrame(index=range(len(rows)))
        if data.table is not None:
            part = data.table.iloc[rows].reset_index(drop=True)
        if data.texts is not None and TEXT not in part:
            part.insert(0, TEXT, [data.texts[row] for row in rows.tolist()])
        if data.labels is not None and LABEL not in part:
            part = part.assign(**{LABEL: data.labels[rows]})
        parts.append(part)
    shared = [name for name in parts[0] if name in parts[1]]
    return pd.concat([part[shared] for part in parts], ignore_index=True) if shared else None


def of_study(study: Study) -> Subject:
    """Return what the explorer sees of a study, in Python.

    Args:
        study: A fitted model, samples that are explained, and whatever is known about them.

    Returns:
        The subject.

    Raises:
        InvalidInputError: If the training data are not at hand.
    """
    stream = study.data
    if stream is None:
        raise InvalidInputError(
            "a loaded model does not hold its training data: pass stream=, the ViewStream of the fit."
        )
    columns: dict[str, Any] = {} if study.texts is None else {TEXT: study.texts}
    columns |= {} if study.labels is None else {LABEL: study.labels}
    columns |= {name: pair for name, pair in study.groups.items() if name not in columns}
    tables = study.tables or tuple(pd.DataFrame(index=range(size)) for size in (study.n, study.t))
    table = pd.concat([part.reset_index(drop=True) for part in tables], ignore_index=True)
    for name, (train, test) in columns.items():
        table[name] = [*map(str, _listed(train)), *map(str, _listed(test))]

    def drawn(place: int) -> Tensor:
        found = stream.plain(torch.tensor([place])) if place < study.n else study.test(torch.tensor([place - study.n]))
        if not isinstance(found, Tensor):
            raise InvalidInputError("only samples that are single pictures can be drawn.")
        return found[0]

    return Subject(
        study.model,
        stream,
        [*study.ids[0], *study.ids[1]],
        stream.plain,
        study.test,
        drawn if study.inputs == "image" else None,
        table if len(table.columns) else None,
        LABEL if study.labels is not None else None,
        tuple(study.groups),
        study.inputs,
        study.title,
        notes=study.notes,
        trust=study.trust,
    )


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
