"""Which samples are meant: some ids, a condition, what a lasso on the map holds, or a cell of a matrix."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from krepes.data.conditions import parse_condition
from krepes.errors import InvalidInputError
from krepes.explore.cards import Cards, Json, shown
from krepes.explore.maps import Maps, inside
from krepes.explore.matrix import Matrix
from krepes.explore.room import Array
from krepes.explore.state import State

CORNERS, IDS = 500, 100_000
"""Corners of a lasso and ids of a list, at most."""
LISTED = 200
"""Samples of a selection that the page lists."""


class Strict(BaseModel):
    """A request that holds what it may hold and nothing else."""

    model_config = ConfigDict(extra="forbid")


class Lasso(Strict):
    """A polygon on a map."""

    polygon: list[tuple[float, float]] = Field(min_length=3, max_length=CORNERS)
    space: str = "encoder"
    projection: str = "pca"


class Cell(Strict):
    """A cell of a matrix of groups: samples of one group whose first landmark is of another."""

    column: str
    of: str
    landmark: str


class Selection(Strict):
    """Samples, by exactly one way to name them."""

    ids: list[str] | None = Field(default=None, max_length=IDS)
    where: str | None = None
    lasso: Lasso | None = None
    cell: Cell | None = None
    split: Literal["training", "held out"] | None = None


@dataclass(frozen=True, eq=False)
class Selections:
    """Finds the samples that a selection means."""

    state: State
    maps: Maps
    cards: Cards
    matrix: Matrix

    def places(self, chosen: Selection) -> Array:
        """Return the places of the samples, sorted.

        Args:
            chosen: How they are named.

        Returns:
            Places; none if nothing fulfils a condition.

        Raises:
            InvalidInputError: If not exactly one way is taken, or an id or a column is unknown.
        """
        ways = [way for way in ("ids", "where", "lasso", "cell") if getattr(chosen, way) is not None]
        if len(ways) != 1:
            raise InvalidInputError(
                f"{len(ways)} ways to choose samples were given: ids, where, lasso or cell is needed."
            )
        if chosen.ids is not None:
            found = self._by_id(chosen.ids)
        elif chosen.where is not None:
            found = self.where(chosen.where)
        elif chosen.lasso is not None:
            lasso = chosen.lasso
            corners = np.array(lasso.polygon, dtype=np.float64)
            if not np.isfinite(corners).all():
                raise InvalidInputError("a corner of the lasso is not a finite number.")
            found = np.flatnonzero(inside(self.maps.places(lasso.space, lasso.projection), corners))
        else:
            assert chosen.cell is not None
            found = self.matrix.members(chosen.cell.column, chosen.cell.of, chosen.cell.landmark)
        n = self.state.subject.n
        if chosen.split is not None:
            found = found[(found < n) == (chosen.split == "training")]
        return found

    def where(self, condition: str) -> Array:
        """Return the places of the samples that fulfil a condition on the columns."""
        return np.flatnonzero(parse_condition(condition, "filter").holds(self.state.subject.series))

    def _by_id(self, ids: list[str]) -> Array:
        known = self.state.subject.place_of
        unknown = [id for id in ids if id not in known]
        if unknown:
            raise InvalidInputError(f"{len(unknown)} of {len(ids)} ids are unknown, such as {shown(unknown[0])!r}.")
        return np.unique(np.array([known[id] for id in ids], dtype=np.int64))

    def summary(self, rows: Array) -> Json:
        """Return how many samples there are, what they are, and the first of them."""
        labels, n = self.cards.labels, self.state.subject.n
        counted = [] if labels is None else Counter(labels[rows].tolist()).most_common(8)
        return {
            "count": len(rows),
            "training": int((rows < n).sum()),
            "labels": [{"label": shown(label), "count": count} for label, count in counted],
            "samples": [self.cards.brief(row) for row in rows[:LISTED]],
            "columns": self.cards.columns,
        }

    def frame(self, rows: Array) -> pd.DataFrame:
        """Return the samples as a table for export: id, split, first landmark, then the original columns."""
        subject, first = self.state.subject, self.state.landmarks[self.state.found.first[rows]]
        found: dict[str, Any] = {
            "id": [subject.ids[row] for row in rows],
            "split": np.where(rows < subject.n, "training", "held out"),
            "first landmark": [subject.ids[row] for row in first],
        }
        table, columns = pd.DataFrame(found), subject.table
        if columns is None:
            return table
        more = columns.iloc[rows].reset_index(drop=True)
        return pd.concat([table, more.rename(columns={name: f"{name} (column)" for name in found})], axis=1)

    def search(self, text: str, most: int = 20) -> list[Json]:
        """Return samples whose id is a text, begins with it or holds it, then those with a value that holds it."""
        subject, wanted = self.state.subject, text.strip().casefold()
        if not wanted:
            return []
        exact = [subject.place_of[text.strip()]] if text.strip() in subject.place_of else []
        ids = [str(id).casefold() for id in subject.ids]
        found = exact + [i for i, id in enumerate(ids) if id.startswith(wanted)][:most]
        found += [i for i, id in enumerate(ids) if wanted in id][:most] if len(set(found)) < most else []
        for column in subject.columns if len(set(found)) < most and subject.table is not None else []:
            series = subject.series(column)
            if not pd.api.types.is_numeric_dtype(series):
                hit = (
                    series
                    .astype(str)
                    .str.casefold()
                    .str.contains(wanted, regex=False)
                    .to_numpy(dtype=bool, na_value=False)
                )
                found += np.flatnonzero(hit)[:most].tolist()
        return [self.cards.brief(row) for row in list(dict.fromkeys(found))[:most]]
