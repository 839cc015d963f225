"""What audits and report see: the model, the samples to explain, and whatever else is known about either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes import batches
from krepes._checks import require_range
from krepes.attribution import Attribution, attribute
from krepes.audit.columns import ColumnUse, uses_of
from krepes.audit.features import FeatureSpace
from krepes.audit.labels import Labels, as_text, require_count, shared_codes
from krepes.audit.orders import Orders
from krepes.audit.quick import quick_influence
from krepes.audit.rankings import held_landmarks
from krepes.batches import Batch
from krepes.concepts import ConceptVector
from krepes.data.chosen import in_place
from krepes.data.tokenizer import Tokenizer
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.influence import How, Influence, Outcome, rows, similarity
from krepes.model import Krepes
from krepes.views import ViewStream
from krepes.views.source import RowsOf, Through, as_source, evenly_spaced

if TYPE_CHECKING:
    from krepes.audit.standing import Comparison

Pair = tuple[Labels, Labels]  # of the training rows and of the test samples, in their order


@dataclass(frozen=True, eq=False)
class Study:
    """The material of one audit; results that several questions need are computed once.

    Attributes:
        model: A fitted model.
        X_test: Un-augmented samples to explain, ``(t, ...)``.
        test_ids: Their ids.
        train_ids: Ids of all training rows.
        stream: The training data, for a model that was loaded without it.
        tables: Original columns of the training rows and of the test samples.
        features: Kinds and ranges of those columns; by default read from the training rows.
        groups: For each way of grouping, the groups of training rows and of test samples.
        labels: Classes of training rows and of test samples.
        hidden: Columns of the table that the encoder does not see.
        predictions: Classes that a classifier of the user's gave the test samples.
        concepts: Directions that were fitted before.
        inputs: What a sample is, hence how it is shown.
        texts: What training rows and test samples say, if they are texts.
        tokenizer: That made their tokens.
        shown: Samples to show one by one.
        k: Landmarks to show of each sign.
        counterfactual: Whether to pass over the training data again, for the influence of every row.
        method: By which rung, see `krepes.influence.ladder`; by default as `krepes.audit.quick` chooses.
        proved: The rung that a proof found best: taken where no ``method`` is named, unless it cannot answer.
        how: What a replay needs to know; by default the loss is that of the model's objective.
        replayed: The training data as a replay of the whole training sees it; by default ``stream``.
        trust: What retraining said of influence on this run, by the name of the rung.
        seed: Of everything random.
        by_flags: Whether the reader types flags, or else arguments of Python.
        notes: What must be said of the data in every output.
        columns: What became of every column of the table; by default read from ``tables`` and ``hidden``.
        run: Where the run lies, for commands that a reader may type.
        listed: Samples to list with their landmarks, those to show in depth among them.
        standing: The findings of this run beside those of others.
        title: What the data are called; ``drawn_from``: of how many samples, if not all; ``preset``: of the settings.
    """

    model: Krepes
    X_test: Batch
    test_ids: Sequence[Any] | None = None
    train_ids: Sequence[Any] | None = None
    stream: ViewStream | None = None
    tables: tuple[pd.DataFrame, pd.DataFrame] | None = None
    features: FeatureSpace | None = None
    groups: Mapping[str, Pair] = field(default_factory=dict)
    labels: Pair | None = None
    hidden: Sequence[str] = ()
    predictions: Labels | None = None
    concepts: Sequence[ConceptVector] = ()
    inputs: Literal["table", "image", "text", "other"] = "other"
    texts: tuple[Sequence[str], Sequence[str]] | None = None
    tokenizer: Tokenizer | None = None
    shown: int = 12
    k: int = 5
    counterfactual: bool = True
    method: str | None = None
    proved: str | None = None
    how: How | None = None
    replayed: ViewStream | None = None
    trust: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    by_flags: bool = False
    notes: tuple[str, ...] = ()
    columns: tuple[ColumnUse, ...] = ()
    run: str = ""
    listed: int = 100
    standing: Comparison | None = None
    title: str = "KREPES report"
    drawn_from: int | None = None
    preset: str | None = None

    def __post_init__(self) -> None:
        """Refuse material that does not belong together, before anything expensive is computed."""
        require_range(self.shown, "shown", low=1)
        require_range(self.k, "k", low=1, high=self.m)
        if self.inputs not in {"table", "image", "text", "other"}:
            raise InvalidInputError(f"inputs={self.inputs!r} is unknown: choose 'table', 'image', 'text' or 'other'.")
        named: dict[str, tuple[Any, Any]] = dict(self.groups)
        others = {"labels": self.labels, "tables": self.tables, "texts": self.texts}
        named |= {name: pair for name, pair in others.items() if pair is not None}
        named |= {"ids": (self._train_ids, self._test_ids)}
        for name, (train, test) in named.items():
            if len(train) != self.n or len(test) != self.t:
                raise InvalidInputError(
                    f"{name} has {len(train)} training and {len(test)} test entries: the model was fitted on {self.n} "
                    f"rows and {self.t} test samples were given. Pass one for each, in order."
                )

    @property
    def n(self) -> int:
        """Training rows, those that a model was told to leave out included."""
        return self.model.n_samples_ if self.data is None else self.data.n

    @cached_property
    def t(self) -> int:
        """Test samples."""
        return as_source(self.X_test)[0].n

    @property
    def m(self) -> int:
        """Landmarks."""
        return len(self.model.landmark_ids_)

    @property
    def moved(self) -> bool:
        """Whether the objective moved anything: else there is nothing to attribute."""
        return bool(self.model.solution_.accepted)

    @property
    def encoder(self) -> FrozenEncoder | None:
        """The encoder that the model explains, if it explains one and not a kernel."""
        return self.model.encoder_

    @property
    def data(self) -> ViewStream | None:
        """The training data: as given, else what the model was fitted on, else none."""
        return self.stream or getattr(self.model, "stream_", None)

    @cached_property
    def chosen(self) -> Tensor:
        """Positions of the samples to show, evenly spaced, ``(s,)``."""
        return evenly_spaced(self.t, self.shown)

    @cached_property
    def samples(self) -> Batch:
        """The samples to show, ``(s, ...)``."""
        return self.test(self.chosen)

    def test(self, places: Tensor) -> Batch:
        """Return the test samples ``places`` ``(b,)``."""
        return as_source(self.X_test)[0].take(places)

    def train(self, rows: Tensor) -> Through:
        """Return the training rows ``(b,)``, not augmented, read when they are asked for."""
        assert self.data is not None
        return Through(RowsOf(self.data.source, rows), self.data.augment.plain)

    @cached_property
    def sample_ids(self) -> list[Any]:
        """Ids of the samples to show."""
        return [self._test_ids[i] for i in self.chosen.tolist()]

    @cached_property
    def places(self) -> Tensor:
        """Positions of the samples to list: first those to show, then others, evenly spaced, ``(s,)``."""
        shown = self.chosen.tolist()
        others = [place for place in evenly_spaced(self.t, self.listed).tolist() if place not in shown]
        return torch.tensor([*shown, *others[: max(0, self.listed - len(shown))]])

    @cached_property
    def listing(self) -> Attribution:
        """Of the samples to list."""
        return attribute(self.model, self.test(self.places), ids=[self.test_id(i) for i in self.places.tolist()])

    def test_id(self, place: int) -> Any:
        """Return the id of a test sample."""
        return self._test_ids[place]

    @cached_property
    def uses(self) -> tuple[ColumnUse, ...]:
        """What became of every column of the table."""
        if self.columns or self.tables is None:
            return self.columns
        return uses_of(self.tables[0], self.hidden, self.groups)

    @cached_property
    def _test_ids(self) -> Sequence[Any]:
        return range(self.t) if self.test_ids is None else in_place(self.test_ids)

    @cached_property
    def _train_ids(self) -> Sequence[Any]:
        return range(self.n) if self.train_ids is None else in_place(self.train_ids)

    @property
    def ids(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """Ids of all training rows and of all test samples."""
        return self._train_ids, self._test_ids

    def train_id(self, row: int) -> Any:
        """Return the id of a training row."""
        return self._train_ids[row]

    @cached_property
    def attribution(self) -> Attribution:
        """Of the samples to show."""
        return attribute(self.model, self.samples, ids=self.sample_ids)

    @cached_property
    def landmarks(self) -> Batch | None:
        """The landmarks before any augmentation, ``(m, ...)``, or ``None`` without training data."""
        return None if self.data is None else held_landmarks(self.model, self.data)

    @cached_property
    def orders(self) -> Orders | None:
        """All landmarks of every test sample by every method, or ``None`` without training data."""
        return None if self.landmarks is None else Orders(self.model, self.X_test, self.landmarks, self.seed)

    @property
    def rankings(self) -> dict[str, Tensor]:
        """The first landmarks of every test sample by every method, ``(t, K)``; nothing without training data."""
        return {} if self.orders is None else self.orders.first

    @cached_property
    def embeddings(self) -> tuple[Tensor, Tensor] | None:
        """The encoder's embeddings of test samples and landmarks, ``(t, d)`` and ``(m, d)``, if there is one."""
        if self.encoder is None or self.landmarks is None:
            return None
        return self.encoder.encode(self.X_test), self.encoder.encode(self.landmarks)

    @cached_property
    def space(self) -> FeatureSpace | None:
        """Kinds and ranges of the original columns, if there are any."""
        return FeatureSpace.of(self.tables[0]) if self.features is None and self.tables is not None else self.features

    def of_landmarks(self, values: Labels) -> list[Any]:
        """Return the entries of the landmarks among those of all training rows."""
        plain = values.tolist() if isinstance(values, (Tensor, np.ndarray)) else list(values)
        return [plain[i] for i in self.model.landmarks_.tolist()]

    @cached_property
    def label_of(self) -> tuple[list[str], list[str]] | None:
        """Classes of training rows and test samples as text, if there are any."""
        if self.labels is None:
            return None
        names, codes = shared_codes(training=self.labels[0], test=self.labels[1])
        for part, size, what in zip(codes, (self.n, self.t), ("training labels", "test labels"), strict=True):
            require_count(part, size, what)
        train, test = (as_text(names, part) for part in codes)
        return train, test

    @cached_property
    def predictions_of(self) -> list[str] | None:
        """Classes that a classifier gave the test samples as text, if there are any."""
        if self.predictions is None:
            return None
        names, (codes,) = shared_codes(predictions=self.predictions)
        require_count(codes, self.t, "predictions")
        return as_text(names, codes)

    @cached_property
    def bonds(self) -> list[Outcome]:
        """For each sample to show: how close it lies to the landmark that attracts it most, as a cosine."""
        first = self.attribution.top(1).indices[:, 0]
        points, origin = batches.take(self.landmarks, first), rows(self.model, self.model.reference_)
        return [
            similarity(
                self.model,
                batches.take(self.samples, slice(i, i + 1)),
                batches.take(points, slice(i, i + 1)),
                reference=origin,
                name=str(i),
            )
            for i in range(len(self.chosen))
        ]

    @cached_property
    def influence(self) -> Influence:
        """Influence of every training row on every one of the `bonds`; its details say why it is no better rung."""
        return quick_influence(self)
