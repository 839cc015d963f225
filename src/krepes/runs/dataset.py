"""From a name or a path to samples with ids, original columns and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.batches import Batch
from krepes.data.frames import read_table
from krepes.data.schema import Schema
from krepes.data.synthetic import applicants
from krepes.data.tabular import TabularEncoder
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings
from krepes.views import Identity, ViewStream

TABLES = (".csv", ".parquet", ".pq", ".csv.gz", ".tsv", ".data")
Kind = Literal["table", "image", "other"]


@dataclass(frozen=True, eq=False)
class Source:
    """Samples as an encoder and as a reader see them.

    Attributes:
        kind: How a sample is shown.
        data: What a `ViewStream` takes; ``n`` samples.
        ids: The user's row ids.
        table: Original columns, or ``None``.
        labels: Classes, or ``None``; they never reach a fit.
        encoding: How the table became numbers, or ``None``.
    """

    kind: Kind
    data: Any
    ids: Sequence[Any]
    table: pd.DataFrame | None = None
    labels: np.ndarray[Any, Any] | None = None
    encoding: TabularEncoder | None = None

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.ids)

    def take(self, rows: Tensor) -> Batch:
        """Return the samples at ``rows`` ``(b,)``, un-augmented."""
        return ViewStream(self.data, Identity()).plain(rows)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column of the table, or the labels under the name ``label``.

        Args:
            name: Of the column.

        Returns:
            One value a sample.

        Raises:
            InvalidInputError: If there is no such column.
        """
        if self.table is not None and name in self.table:
            return self.table[name].astype(str).to_numpy()
        if name == "label" and self.labels is not None:
            return self.labels
        known = [] if self.table is None else list(self.table.columns)
        raise InvalidInputError(
            f"there is no column {name!r}. Known are {known + ['label'] * (self.labels is not None)}."
        )

    def row(self, id: Any) -> int:
        """Return the place of a row id.

        Args:
            id: As the user wrote it; compared as text.

        Returns:
            Its index.

        Raises:
            InvalidInputError: If no row has it.
        """
        places = {str(known): place for place, known in enumerate(self.ids)}
        if str(id) not in places:
            raise InvalidInputError(f"there is no row {id!r} among {self.n}: ids look like {list(self.ids[:3])}.")
        return places[str(id)]


def split(n: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Return training rows of ``range(n)``, shuffled, and held-out rows, sorted; at least one is held out.

    Shuffled, because objectives that compare the samples of a batch take them in order: a folder sorted by class would
    give batches of one class.
    """
    if settings.max_rows is not None:
        require_range(settings.max_rows, "max_rows", low=2)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(settings.seed))[: settings.max_rows]
    held = max(1, round(len(order) * settings.holdout))
    return order[held:], order[:held].sort().values


def open_source(settings: Settings, encoding: TabularEncoder | None = None) -> Source:
    """Open the data of some settings.

    Args:
        settings: Where the data are and how to read them.
        encoding: How a table becomes numbers; by default read from its training rows. A category that only held-out
            rows have becomes ``(unknown)``.

    Returns:
        The source.
    """
    path = Path(settings.data)
    if settings.data == "digits":
        return _digits()
    if settings.data == "applicants":
        people = applicants(4000, seed=settings.seed)
        return _table(people.frame, settings, encoding)
    if path.name.lower().endswith(TABLES) and path.is_file():
        return _table(read_table(path), settings, encoding)
    if path.suffix == ".npy" and path.is_file():
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return Source("image" if array.ndim == 4 else "other", array, range(len(array)))
    if path.is_dir():
        return _folder(path, settings)
    return _named(settings, encoding)


def _digits() -> Source:
    from sklearn.datasets import load_digits

    digits = load_digits()
    X = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32)
    return Source("image", X, range(len(X)), labels=np.asarray([str(y) for y in digits.target]))


def _table(frame: pd.DataFrame, settings: Settings, encoding: TabularEncoder | None) -> Source:
    hidden = {name for name in (settings.id_column, settings.label, *settings.exclude) if name and name in frame}
    missing = [name for name in (settings.id_column, *settings.exclude) if name and name not in frame]
    if missing:
        raise InvalidInputError(f"the table has no column {missing}. It has {list(frame.columns)}.")
    seen = frame.drop(columns=sorted(hidden))
    if encoding is None:
        override = None if settings.schema is None else Schema.from_toml(settings.schema).kinds
        train, _ = split(len(seen), settings)
        encoding = TabularEncoder(Schema.infer(seen, override), unknown="bucket").fit(seen.iloc[train.numpy()])
    ids = list(range(len(frame))) if settings.id_column is None else frame[settings.id_column].tolist()
    labels = frame[settings.label].astype(str).to_numpy() if settings.label and settings.label in frame else None
    return Source("table", encoding.transform(seen), ids, frame, labels, encoding)


def _folder(path: Path, settings: Settings) -> Source:
    from krepes.data.images import image_folder

    folder = image_folder(path, size=settings.size, on_error="skip" if settings.skip_broken else "raise")
    return Source("image", folder, folder.ids, labels=np.asarray(folder.labels))


def _named(settings: Settings, encoding: TabularEncoder | None) -> Source:
    from krepes.data import DATASETS, NamedImages, NamedTable

    if settings.data == "adult_1m":
        return _adult_1m(settings, encoding)
    if settings.data not in DATASETS:
        raise InvalidInputError(
            f"{settings.data!r} is no file, no folder and no data set. Data sets are digits, applicants, "
            f"{', '.join(sorted(DATASETS))} and adult_1m."
        )
    found: NamedTable | NamedImages = DATASETS[settings.data](settings.data_dir)
    if isinstance(found, NamedTable):
        return replace(_table(found.frame, settings, encoding), ids=found.ids, labels=found.labels)
    attributes = found.attributes if len(found.attributes.columns) else None
    return Source("image", found.X, found.ids, attributes, found.labels)


def _adult_1m(settings: Settings, encoding: TabularEncoder | None) -> Source:
    from krepes.data import adult
    from krepes.data.adult_1m import adult_1m

    found = adult.load(settings.data_dir)
    grown = adult_1m(found.frame.assign(label=found.labels), seed=settings.seed)
    return _table(grown, replace(settings, label="label"), encoding)
