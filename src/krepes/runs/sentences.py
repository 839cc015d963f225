"""Samples and training rows of a run of texts in their own words, those on which they agree marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from krepes.attribution import Agreements, agreements
from krepes.data.marks import merged, shortened
from krepes.runs.workspace import Workspace

LONG = 400
"""Characters of a sample that is shown by itself."""
MEANING = "*words* are those on which a sample and its {others} agree, by the table of the encoder's tokens"


@dataclass(frozen=True)
class InWords:
    """A table of training rows as texts, beside the samples that were asked about.

    Attributes:
        frame: The table, with a column ``text`` if samples are texts.
        samples: What each sample says, marked, by its id; empty if samples are no texts or none was asked about.
        note: What the marks mean, or why nothing is marked.
    """

    frame: pd.DataFrame
    samples: dict[str, str]
    note: str = ""


def landmarks_in_words(space: Workspace, frame: pd.DataFrame) -> InWords:
    """Return the landmarks of some samples as texts, with the words marked on which each agrees with its sample.

    Args:
        space: The run.
        frame: What `krepes.runs.answers.made_of` gave: columns ``sample`` and ``landmark``.

    Returns:
        The table, each landmark marked by the sample of its line.
    """
    if space.texts is None:
        return InWords(frame, {})
    ids, known = list(dict.fromkeys(frame["sample"])), {id: l for l, id in enumerate(space.model.landmark_ids_)}
    rows = [int(space.model.landmarks_[known[name]]) for name in frame["landmark"]]
    pairs = [(ids.index(id), place) for place, id in enumerate(frame["sample"])]
    found = _agreements(space, ids, rows, pairs)
    texts = [str(shortened(text)) for text in found.others]
    return InWords(frame.assign(text=texts), _told(ids, found), found.note or MEANING.format(others="landmark"))


def rows_in_words(space: Workspace, frame: pd.DataFrame, ids: Sequence[Any]) -> InWords:
    """Return training rows as texts, with the words marked on which each agrees with the samples asked about.

    Args:
        space: The run.
        frame: A column ``row`` holds places among the training samples.
        ids: The samples; none for a question about groups, whose rows are shown without marks.

    Returns:
        The table; a word of a row is marked as strongly as by the sample that it agrees with most.
    """
    if space.texts is None:
        return InWords(frame, {})
    rows, ids = [int(row) for row in frame["row"]], list(dict.fromkeys(ids))
    if not ids or not rows:
        return InWords(frame.assign(text=[str(shortened(space.texts[0][row])) for row in rows]), {})
    pairs = [(i, j) for j in range(len(rows)) for i in range(len(ids))]
    found = _agreements(space, ids, rows, pairs)
    of_row = [merged(found.others[j * len(ids) : (j + 1) * len(ids)]) for j in range(len(rows))]
    note = found.note or MEANING.format(others="training rows")
    return InWords(frame.assign(text=[str(shortened(text)) for text in of_row]), _told(ids, found), note)


def with_texts(space: Workspace, frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table of training samples with what each says, if they are texts; ``column`` holds their ids."""
    if space.data.texts is None:
        return frame
    texts = [str(shortened(space.data.texts[space.data.place(id)])) for id in frame[column]]
    return frame.assign(text=texts)


def _agreements(
    space: Workspace, ids: Sequence[Any], rows: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> Agreements:
    """Return samples and training rows with marks; ``pairs`` are places in ``ids`` and in ``rows``."""
    assert space.asked.texts is not None and space.texts is not None and space.tokenizer is not None
    samples = (space.samples(ids), [space.asked.texts[space.asked.place(id)] for id in ids])
    others = (space.train_samples(torch.tensor(rows)), [space.texts[0][row] for row in rows])
    return agreements(space.model, space.tokenizer, samples, others, pairs)


def _told(ids: Sequence[Any], found: Agreements) -> dict[str, str]:
    return {str(id): str(shortened(text, LONG)) for id, text in zip(ids, found.samples, strict=True)}
