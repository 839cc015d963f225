"""Groups crossed with those of their first landmarks, and columns that the latent space keeps; with their samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from krepes import registry
from krepes.audit.features import FeatureSpace
from krepes.audit.groups import cross_group
from krepes.audit.study import Study
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.explore.cards import Json, shown
from krepes.explore.room import Array
from krepes.explore.state import State
from krepes.views.source import evenly_spaced

LEVELS, BINS = 12, 4
"""Groups of a column that are shown, the others together; and parts that numbers are cut into."""
OTHERS = "(others)"
ASKED = 1000
"""Explained samples that the features are measured on, evenly spaced."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """Groups and features of a run."""

    state: State
    _levels: dict[str, Array] = field(default_factory=dict, repr=False)
    _found: dict[str, Json] = field(default_factory=dict, repr=False)

    @property
    def asked(self) -> Array:
        """Places of the samples that are judged: those that are explained, or all if there are none."""
        n, N = self.state.subject.n, self.state.subject.N
        return np.arange(n, N) if N > n else np.arange(N)

    def levels(self, column: str) -> Array:
        """Return the group of every sample, ``(N,)``: a value, a quarter of the numbers, or one of the others."""
        if column not in self._levels:
            subject = self.state.subject
            series = subject.series(column)
            if subject.is_number(column) and series.nunique() > LEVELS:
                cut = pd.qcut(series, BINS, duplicates="drop")
                found = cut.astype(str).where(series.notna(), "(missing)").to_numpy(dtype=object)
            else:
                found = subject.texts(column).astype(object)
                common = pd.Series(found).value_counts().index[:LEVELS]
                found = np.where(np.isin(found.astype(str), common.astype(str)), found, OTHERS)
            self._levels[column] = found
        return self._levels[column]

    def of(self, column: str) -> Json:
        """Return the matrix of a column: shares, lifts and p of every pair of groups, rows are samples.

        Args:
            column: Whose values are the groups.

        Returns:
            Plain values for the page.
        """
        if column not in self._found:
            levels, asked = self.levels(column), self.asked
            top = torch.from_numpy(self.state.found.first[asked].astype(np.int64))[:, None]
            found = cross_group({"influence": top}, levels[self.state.landmarks].tolist(), levels[asked].tolist())
            frame = found["influence"].to_frame()
            beyond = found["influence"].beyond.ravel()
            cells = [
                {
                    "of": row["group"],
                    "landmark": row["landmark_group"],
                    "count": int(row["count"]),
                    **{name: _number(row[name]) for name in ("share", "expected", "lift", "p_corrected")},
                    "beyond": bool(far),
                }
                for row, far in zip(frame.to_dict("records"), beyond, strict=True)
            ]
            groups = [str(group) for group in found["influence"].groups]
            self._found[column] = {"column": column, "groups": groups, "cells": cells, "samples": len(asked)}
        return self._found[column]

    def members(self, column: str, of: str, landmark: str) -> Array:
        """Return the samples of one group whose first landmark is of another, sorted."""
        levels, asked = self.levels(column).astype(str), self.asked
        first = levels[self.state.landmarks[self.state.found.first[asked]]]
        return asked[(levels[asked] == of) & (first == landmark)]

    @cached_property
    def features(self) -> Json:
        """The features audit: on which columns samples agree with the landmarks that attract them.

        Raises:
            InvalidInputError: If the data are no table.
        """
        subject, asked = self.state.subject, self.asked
        if subject.table is None:
            raise InvalidInputError("features are columns, and the data of this run have none.")
        chosen = asked[evenly_spaced(len(asked), ASKED).numpy()]
        audit: Any = registry.chosen(registry.AUDITS, ["features"], "features")["features"]
        with self.state.lock:
            result = audit(self._study(chosen, subject.samples(torch.from_numpy(chosen))))
        table = result.table
        ours = table[(table["method"] == "influence") & (table["variant"] == "normalised")]
        ours = ours.sort_values("estimate", ascending=False, kind="stable")
        rows = [
            {
                "column": shown(row["column"]),
                "gap": _number(row["estimate"]),
                "low": _number(row["low"]),
                "high": _number(row["high"]),
                "null_low": _number(row["null_low"]),
                "null_high": _number(row["null_high"]),
                "p": _number(row["p_corrected"]),
                "note": shown(row["note"]),
            }
            for row in ours.to_dict("records")
        ]
        return {"features": rows, "sentence": result.sentence, "caveat": result.caveat, "samples": len(chosen)}

    def _study(self, chosen: Array, X: Batch) -> Study:
        """Return the material of the audit, for some samples."""
        subject = self.state.subject
        assert subject.table is not None
        columns = [name for name in subject.table if name != subject.label]
        tables = subject.table[columns].iloc[: subject.n], subject.table[columns].iloc[chosen]
        return Study(
            subject.model,
            X,
            train_ids=list(subject.ids[: subject.n]),
            stream=subject.stream,
            tables=tables,
            features=FeatureSpace.of(tables[0], agreement=subject.agreement),
            k=min(5, len(subject.model.landmark_ids_)),
            shown=1,
        )


def _number(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
