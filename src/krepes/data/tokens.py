"""Texts as samples: tokenized once, padded batch by batch with a mask, so that short texts stay cheap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krepes.batches import MASK
from krepes.data.text import printable
from krepes.data.tokenizer import HashedTokenizer, Tokenizer
from krepes.errors import InvalidInputError

IDS = "input_ids"


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """Texts and their tokens; what a `krepes.ViewStream` takes.

    Attributes:
        texts: As a person reads them, ``n`` of them.
        tokenizer: What made the tokens.
        flat: The tokens of all texts, one text after another, int32.
        starts: Where each text starts among them, and where the last one ends, ``(n + 1,)``.
        width: Length to which every batch is padded, and texts are cut; by default that of the longest in the batch.
    """

    texts: Sequence[str]
    tokenizer: Tokenizer
    flat: np.ndarray[Any, np.dtype[np.int32]] = field(repr=False)
    starts: np.ndarray[Any, np.dtype[np.int64]] = field(repr=False)
    width: int | None = None

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of texts."""
        return len(self.texts)

    def ids(self, row: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return the tokens of one text."""
        return self.flat[self.starts[row] : self.starts[row + 1]]

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return int(np.diff(self.starts).max())

    def take(self, indices: Tensor) -> dict[str, Tensor]:
        """Return some texts as an encoder takes them.

        Args:
            indices: ``(b,)``.

        Returns:
            ``input_ids`` and ``attention_mask``, ``(b, length of the longest of them, or width)``, int64.
        """
        rows = [self.ids(row)[: self.width] for row in indices.tolist()]
        longest = self.width or max((len(row) for row in rows), default=1)
        ids = np.full((len(rows), longest), self.tokenizer.vocabulary.pad, dtype=np.int64)
        mask = np.zeros((len(rows), longest), dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        return {IDS: torch.from_numpy(ids), MASK: torch.from_numpy(mask)}


def tokenized(texts: Sequence[str], tokenizer: Tokenizer | None = None, *, one_width: bool = False) -> TokenizedTexts:
    """Return texts as samples.

    Args:
        texts: At least one.
        tokenizer: By default a `HashedTokenizer`, which suits the encoder ``text`` of this package.
        one_width: Pad all batches to the longest of all texts: needed by encoders with a table of positions.

    Returns:
        The samples.

    Raises:
        InvalidInputError: If there is no text, an entry is none, or all are empty.

    Example:
        >>> tokenized(["good food", "bad"]).take(torch.tensor([1]))["attention_mask"]
        tensor([[1]])
    """
    tokenizer, texts = tokenizer or HashedTokenizer(), list(texts)
    if not texts:
        raise InvalidInputError("there is no text. At least one is required.")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"text {place} is a {type(text).__name__} ({printable(text)[:40]}). Every text must be a string."
            )
    if not any(map(str.strip, texts)):
        raise InvalidInputError(f"all {len(texts)} texts are empty: there is nothing to read.")
    rows = [np.asarray(tokenizer.tokens(text).ids, dtype=np.int32) for text in texts]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    found = TokenizedTexts(texts, tokenizer, np.concatenate(rows), starts)
    return replace(found, width=found.longest) if one_width else found
