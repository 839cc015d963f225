"""From a name or a path to samples with ids, original columns and labels: read once, encoded when needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes import batches, registry
from krepes.batches import Batch
from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.data.arrays import open_array
from krepes.data.frames import read_table
from krepes.data.kept import held_bytes
from krepes.data.sentences import ENDINGS, read_sentences
from krepes.data.spill import encoded_table
from krepes.data.tabular import TabularEncoder
from krepes.data.values import texts_of
from krepes.errors import InvalidInputError
from krepes.runs.columns import LABEL, encoding_of, missing, require_columns, unique_ids
from krepes.runs.holdout import split
from krepes.runs.refusals import unknown_data
from krepes.runs.settings import Settings, flag
from krepes.runs.store import is_run
from krepes.runs.texts import read_texts, text_column
from krepes.views import Identity, ViewStream
from krepes.views.source import RowsOf

__all__ = ["Dataset", "open_dataset", "split"]

TABLES = (".csv", ".parquet", ".pq", ".csv.gz", ".tsv", ".data")
Kind = Literal["table", "image", "text", "other"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples as an encoder and as a reader see them.

    Attributes:
        name: What a person calls it: the file's name, or that of the data set.
        kind: How a sample is shown.
        ids: The user's ids, ``n`` of them.
        arrays: What a `ViewStream` takes; ``None`` for a table, which is encoded when it is needed.
        table: Original columns, or ``None``.
        labels: Classes that came along, or ``None``; they never reach a fit.
        encoding: How the table becomes numbers, or ``None``.
        texts: What is read of each sample, or ``None`` if they are no texts.
        budget: A table of more numbers than a part of it holds is encoded into a temporary file.
    """

    name: str
    kind: Kind
    ids: Sequence[Any]
    arrays: Any = None
    table: pd.DataFrame | None = None
    labels: np.ndarray[Any, Any] | None = None
    encoding: TabularEncoder | None = None
    texts: Sequence[str] | None = None
    budget: Budget = DEFAULT_BUDGET

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.ids)

    @cached_property
    def samples(self) -> Any:
        """All samples, as a `ViewStream` takes them."""
        if self.encoding is None or self.table is None:
            return self.arrays
        return encoded_table(self.encoding, self.table[self._seen], self.budget)

    @property
    def held(self) -> int:
        """Bytes of samples and columns that are in memory all the time, about."""
        table = 0 if self.table is None else held_bytes(self.table)
        return table + (self.samples.nbytes if isinstance(self.samples, Tensor) else 0)

    def take(self, rows: Tensor) -> Batch:
        """Return the samples at ``rows`` ``(b,)``, not augmented; of a table only they are encoded."""
        if self.encoding is not None and "samples" not in self.__dict__:
            return self._encode(rows.numpy())
        return ViewStream(self.samples, Identity()).plain(rows)

    def part(self, rows: Tensor) -> Any:
        """Return the samples at ``rows`` as a `ViewStream` takes them."""
        samples = self.samples
        held = isinstance(samples, Tensor) and self.budget.fits(samples.nbytes, share=1 / 8)
        return batches.take(samples, rows) if held else RowsOf(samples, rows)

    @property
    def names(self) -> list[str]:
        """Names that `column` knows."""
        known = [] if self.table is None else [str(name) for name in self.table.columns]
        return known + [LABEL] * (self.labels is not None and LABEL not in known)

    def column(self, name: str, asked_by: str = "--label") -> np.ndarray[Any, Any]:
        """Return a column of the table, or the labels that came along, as text; a missing value is ``(missing)``.

        Args:
            name: Of the column.
            asked_by: The flag or argument that named it, for the message.

        Returns:
            One text per sample.

        Raises:
            InvalidInputError: If there is no such column.
        """
        if self.table is not None and name in self.table:
            return texts_of(self.table[name])
        if name == LABEL and self.labels is not None:
            return self.labels
        raise InvalidInputError(f"{asked_by}: {missing(self.name, name, self.names)}")

    @cached_property
    def places(self) -> dict[str, int]:
        """Row of each id, as text."""
        return {str(known): place for place, known in enumerate(self.ids)}

    def place(self, id: Any) -> int:
        """Return the row of an id.

        Args:
            id: As the user wrote it; compared as text.

        Returns:
            Its row.

        Raises:
            InvalidInputError: If no sample has it.
        """
        if self.ids == range(self.n) and str(id).isdecimal() and str(int(id)) == str(id) and int(id) < self.n:
            return int(id)  # without a million entries of `places`
        if str(id) not in self.places:
            hint = registry.suggestion(id, list(self.places)[:10_000])
            raise InvalidInputError(
                f"there is no row {str(id)!r} among the {self.n} of {self.name}: ids look like "
                f"{', '.join(str(known) for known in list(self.ids[:3]))}.{hint}"
            )
        return self.places[str(id)]

    def _encode(self, rows: Any) -> Tensor:
        assert self.table is not None and self.encoding is not None
        return self.encoding.transform(self.table[self._seen].iloc[rows])

    @property
    def _seen(self) -> list[str]:
        """Columns that the encoding knows."""
        assert self.table is not None and self.encoding is not None
        return [name for name in self.encoding.schema.kinds if name in self.table]


def open_dataset(settings: Settings, encoding: TabularEncoder | None = None) -> Dataset:
    """Open the data of some settings, and check every column that they name.

    Args:
        settings: Where the data are and how to read them.
        encoding: How a table becomes numbers; by default read from its training rows. A category that only held-out
            rows have becomes ``(unknown)``.

    Returns:
        The data set.

    Raises:
        InvalidInputError: If the data cannot be read, or a column that the settings name does not exist.
    """
    path = Path(settings.data)
    if settings.data in registry.EMBEDDED:
        found = _embedded(settings, encoding)
    elif path.name.lower().endswith(TABLES) and path.is_file():
        frame = _read(path, settings)
        if settings.text_column is None:
            found = _table(frame, path.name, settings, encoding)
        else:
            found = _text(frame, path.name, settings)
    elif path.name.lower().endswith(ENDINGS) and path.is_file():
        found = _text(read_sentences(path), path.name, settings)
    elif path.suffix == ".npy" and path.is_file():
        found = _array(path)
    elif path.suffix.lower() == ".tar" and path.is_file():
        found = _folder(path, settings)
    elif path.is_dir() and not (
        settings.data in registry.DATASETS and is_run(path)
    ):  # a run may bear the name of a data set
        found = _folder(path, settings)
    else:
        found = _named(settings, encoding)
    if settings.label is not None:
        found.column(settings.label)
    if found.texts is None and settings.text_column is not None:
        raise InvalidInputError(f"{flag('text_column')}: {found.name} is no file with a column of texts.")
    hidden = (*settings.exclude, *settings.sensitive)
    for column in () if found.encoding is not None or found.texts is not None else hidden:
        raise InvalidInputError(f"{found.name} is no table: there is no column {column!r} to hide from the encoder.")
    return replace(found, budget=Budget.of(settings.memory))


def _read(path: Path, settings: Settings) -> pd.DataFrame:
    """Return a table of a file; an error names flags, for who reads it typed some."""
    try:
        return read_table(path, delimiter=settings.delimiter, memory_budget=settings.memory)
    except InvalidInputError as error:
        typed = str(error).replace("delimiter='\\t'", "--delimiter $'\\t'").replace("delimiter='", "--delimiter '")
        raise InvalidInputError(typed) from error


def _embedded(settings: Settings, encoding: TabularEncoder | None) -> Dataset:
    if settings.data == "applicants":
        from krepes.data.synthetic import applicants

        return _table(applicants(4000, seed=settings.seed).frame, "applicants", settings, encoding)
    if settings.data == "people":
        from krepes.data.people import people

        return _table(people(), "people", settings, encoding)
    if settings.data == "drawings":
        from krepes.data.drawings import drawings

        drawn = drawings(1500)
        return Dataset("drawings", "image", range(len(drawn.X)), drawn.X, drawn.frame)
    from sklearn.datasets import load_digits

    digits = load_digits()
    X = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float32)
    return Dataset("digits", "image", range(len(X)), X, labels=np.asarray([str(y) for y in digits.target]))


def _array(path: Path) -> Dataset:
    array = open_array(path)
    return Dataset(path.name, "image" if array.ndim == 4 else "other", range(array.n), array)


def _table(frame: pd.DataFrame, name: str, settings: Settings, encoding: TabularEncoder | None) -> Dataset:
    require_columns(frame, settings, name)
    ids = range(len(frame)) if settings.id_column is None else unique_ids(frame[settings.id_column], name)
    if encoding is None:
        encoding = encoding_of(frame, settings, split(len(frame), settings)[0].numpy())
    return Dataset(name, "table", ids, table=frame, encoding=encoding)


def _text(frame: pd.DataFrame, name: str, settings: Settings) -> Dataset:
    """Return a column of texts as what the encoder sees; the other columns judge."""
    require_columns(frame, settings, name)
    ids = range(len(frame)) if settings.id_column is None else unique_ids(frame[settings.id_column], name)
    column = text_column(frame, settings, name)
    found = read_texts(frame[column], settings, name)
    return Dataset(name, "text", ids, found, frame.drop(columns=column), texts=found.texts)


def _folder(path: Path, settings: Settings) -> Dataset:
    from krepes.data.images import image_folder
    from krepes.data.shards import tar_files, tar_images

    if settings.size is None:
        raise InvalidInputError(
            f"{flag('size')}: {settings.encoder} does not say how large its images are. Give their side in pixels."
        )
    on_error: Literal["skip", "raise"] = "skip" if settings.skip_broken else "raise"
    read = tar_images if tar_files(path) else image_folder
    folder = read(path, size=settings.size, channels=settings.channels, on_error=on_error, workers=settings.workers)
    return Dataset(path.name, "image", folder.ids, folder, labels=np.asarray(folder.labels))


def _named(settings: Settings, encoding: TabularEncoder | None) -> Dataset:
    from krepes.data import DATASETS, NamedTable

    if settings.data == "adult_1m":
        return _adult_1m(settings, encoding)
    if settings.data not in DATASETS:
        known = [*registry.EMBEDDED, *DATASETS, "adult_1m"]
        read = {"tables": TABLES, "texts": ENDINGS, "arrays": (".npy",), "images": (".tar", "folders")}
        raise InvalidInputError(unknown_data(settings.data, known, read))
    found = DATASETS[settings.data](settings.data_dir)
    if isinstance(found, NamedTable):
        made = _table(found.frame, settings.data, settings, encoding)
        return replace(made, ids=found.ids, labels=found.labels)
    attributes = found.attributes if len(found.attributes.columns) else None
    return Dataset(settings.data, "image", found.ids, found.X, attributes, found.labels)


def _adult_1m(settings: Settings, encoding: TabularEncoder | None) -> Dataset:
    from krepes.data import adult
    from krepes.data.adult_1m import adult_1m

    found = adult.load(settings.data_dir)
    grown = adult_1m(found.frame.assign(label=found.labels), seed=settings.seed, memory_budget=settings.memory)
    return _table(grown, settings.data, replace(settings, label=LABEL), encoding)
