"""Rows of a table become rows of numbers ``(n, d)``, by what the training rows showed and nothing else.

numeric, date   (x - mean) / scale; the median where missing, and a 0/1 indicator if training rows missed any
boolean         0 or 1; the more frequent where missing, and an indicator likewise
categorical     one 0/1 column for each category of training, "(missing)" among them if training rows missed any; an
                ordered column likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from krepes.data.encoded import CategoryColumn, NumberColumn, Unknown, stored_column
from krepes.data.schema import Schema
from krepes.data.text import brief
from krepes.data.values import shown
from krepes.errors import InvalidInputError, NotFittedError


class TabularEncoder:
    """Encode tables of one schema.

    Args:
        schema: Kinds of the columns.
        unknown: What a category means that training rows did not have, or a missing value where they missed none:
            ``"error"``, or ``"bucket"``: a category of its own, ``(unknown)``, and the median in place of a number.
        beside: Kinds of columns that are hidden from the encoder: kept for who audits them.

    Attributes:
        columns_: How each used column is encoded, once fitted.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [20.0, 40.0, None, 60.0], "city": ["Bonn", "Ulm", "Ulm", None]})
        >>> encoder = TabularEncoder(Schema.infer(frame)).fit(frame)
        >>> encoder.feature_names
        ['age', 'age is missing', 'city=(missing)', 'city=Bonn', 'city=Ulm']
        >>> encoder.groups
        {'age': [0, 1], 'city': [2, 3, 4]}
        >>> encoder.transform(frame)[2]
        tensor([0., 1., 0., 0., 1.])
    """

    def __init__(self, schema: Schema, *, unknown: Unknown = "error", beside: Schema | None = None) -> None:
        if unknown not in get_args(Unknown):
            raise InvalidInputError(f"unknown={unknown!r} is not one of {', '.join(get_args(Unknown))}.")
        schema.require_used()
        self.schema = schema
        self.unknown = unknown
        self.beside = Schema(()) if beside is None else beside

    def fit(self, table: Any, rows: np.ndarray[Any, Any] | None = None) -> TabularEncoder:
        """Read means, scales, ranges and categories from training rows.

        Args:
            table: Whatever `read_table` takes.
            rows: Places of the training rows in it; by default all.

        Returns:
            Itself.
        """
        found: list[NumberColumn | CategoryColumn] = []
        for name, values in self.schema.columns_of(table, rows):
            kind = self.schema.used[name]
            categorical = kind in {"categorical", "ordered"}
            found.append(CategoryColumn.fit(values, self.unknown) if categorical else NumberColumn.fit(values, kind))
        self.columns_: tuple[NumberColumn | CategoryColumn, ...] = tuple(found)
        return self

    def transform(self, table: Any) -> Tensor:
        """Encode rows.

        Args:
            table: Whatever `read_table` takes, with the columns of the schema in any order.

        Returns:
            ``(n, d)``, float32.
        """
        groups = self.groups
        frame = self.schema.apply(table)
        out = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        for column in self.columns_:
            where = groups[column.name]
            column.encode(frame[column.name], out[:, where[0] : where[-1] + 1], self.unknown)
        return torch.from_numpy(out)

    @property
    def groups(self) -> dict[str, list[int]]:
        """Encoded columns of each used column of the table."""
        ends = np.cumsum([len(column.feature_names) for column in self._fitted()])
        return {
            column.name: list(range(int(end) - len(column.feature_names), int(end)))
            for column, end in zip(self._fitted(), ends, strict=True)
        }

    @property
    def feature_names(self) -> list[str]:
        """Names of the ``d`` encoded columns."""
        return [name for column in self._fitted() for name in column.feature_names]

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest training value of each numeric, boolean and date column, in its own unit."""
        return {c.name: (c.low, c.high) for c in self._fitted() if isinstance(c, NumberColumn)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted encoder as plain JSON values."""
        columns = [asdict(column) for column in self._fitted()]
        stored = {"schema": self.schema.to_dict(), "unknown": self.unknown, "columns": columns}
        return stored | ({"beside": self.beside.to_dict()} if self.beside.columns else {})

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TabularEncoder:
        """Return a fitted encoder.

        Args:
            stored: What `to_dict` returned, or a file of it.

        Returns:
            The encoder.

        Raises:
            InvalidInputError: If that is not what was stored: parts are absent, of another type or do not fit.
        """
        try:
            beside = Schema.from_dict(stored.get("beside", {}))
            encoder = cls(Schema.from_dict(stored["schema"]), unknown=stored["unknown"], beside=beside)
            encoder.columns_ = tuple(stored_column(column) for column in stored["columns"])
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            reason = str(error) if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {brief(error)}"
            raise InvalidInputError(
                f"this is no stored encoder of a table ({reason}). Fit the encoder again, or take the file whole from "
                f"where it was written."
            ) from error
        if sorted(column.name for column in encoder.columns_) != sorted(encoder.schema.used):  # JSON may sort its keys
            raise InvalidInputError(
                f"the stored encoder has {len(encoder.columns_)} columns that are not those of its schema: "
                f"{shown(list(encoder.schema.used))}. Fit the encoder again."
            )
        return encoder

    def _fitted(self) -> tuple[NumberColumn | CategoryColumn, ...]:
        if not hasattr(self, "columns_"):
            raise NotFittedError("this TabularEncoder knows no training rows yet. Call fit(table) first.")
        return self.columns_
