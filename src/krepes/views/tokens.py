"""Augmentations of texts as tokens: whole words are dropped, hidden, cut off or swapped; or channels, as SimCSE does.

Samples are dicts of ``input_ids`` and ``attention_mask``, ``(b, length)``. A word is a token and those that continue
it; tokens that frame a text stay where they are. A view of a text does not depend on how far its batch was padded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.batches import MASK, Batch
from krepes.data.tokenizer import Vocabulary
from krepes.data.tokens import IDS
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation, Compose
from krepes.views.noise import Noise, mixed, shifted

DROPOUT = "dropout"
"""Key under which the noise of a `Dropout` view travels to the encoder."""
SCALE = 2**24


@dataclass(frozen=True)
class Words:
    """Where the words of a batch are.

    Attributes:
        of: Number of the word of each token, ``(b, length)``; -1 where a token frames the text or is padding.
        count: Words of each sample, ``(b,)``.
    """

    of: Tensor
    count: Tensor

    @classmethod
    def find(cls, X: Batch, vocabulary: Vocabulary, name: str) -> Words:
        """Return the words of a batch of tokens; anything else is refused."""
        if not isinstance(X, dict) or IDS not in X or MASK not in X:
            raise InvalidInputError(
                f"{name} takes tokens, a dict of {IDS} and {MASK}, got {type(X).__name__}. Make them of texts with "
                f"krepes.data.tokenized(texts)."
            )
        ids, real = X[IDS], X[MASK] != 0
        if int(ids.max()) >= vocabulary.size:
            raise InvalidInputError(
                f"{name} knows {vocabulary.size} tokens, and one has the number {int(ids.max())}. Make the view of the "
                f"vocabulary of the tokenizer that made the tokens."
            )
        special = torch.tensor(vocabulary.special, dtype=ids.dtype, device=ids.device)
        inside = real & ~torch.isin(ids, special)
        follows = torch.nn.functional.pad(inside, (1, 0))[:, :-1]
        begins = inside & ~(vocabulary.continues.to(ids.device)[ids] & follows)
        number = begins.cumsum(1)
        return cls(torch.where(inside, number - 1, -1), number[:, -1])

    def at(self, values: Tensor) -> Tensor:
        """Return a value of each word, ``(b, length)``, at its tokens."""
        return values.gather(1, self.of.clamp(min=0))


def _kept(X: dict[str, Tensor], keep: Tensor, pad: int) -> dict[str, Tensor]:
    """Return samples with some of their tokens only, moved together to the left."""
    order = (~keep).to(torch.int8).argsort(dim=1, stable=True)
    mask = keep.gather(1, order).to(X[MASK].dtype)
    ids = X[IDS].gather(1, order)
    return {**X, IDS: torch.where(mask != 0, ids, pad), MASK: mask}


@dataclass(frozen=True, eq=False)
class WordDrop(Augmentation):
    """Leave out each word with probability ``rate``; one word always stays.

    Attributes:
        vocabulary: Of the tokenizer.
        rate: Probability.
    """

    vocabulary: Vocabulary
    rate: float = 0.2

    def __post_init__(self) -> None:
        """Refuse a rate that is no probability."""
        require_range(self.rate, "rate", low=0.0, high=1.0)

    def __call__(self, X: Any, noise: Noise) -> dict[str, Tensor]:
        """Return ``X`` with words left out."""
        words = Words.find(X, self.vocabulary, "WordDrop")
        u = noise.uniform("drop", X[IDS].shape[1])
        places = torch.arange(u.shape[1], device=u.device)
        best = u.masked_fill(places >= words.count.unsqueeze(1), -1.0).amax(1, keepdim=True)
        keep = (words.at(u) >= self.rate) | (words.at(u) == best) | (words.of < 0)
        return _kept(X, keep & (X[MASK] != 0), self.vocabulary.pad)


@dataclass(frozen=True, eq=False)
class WordCrop(Augmentation):
    """Keep one run of neighbouring words: a part between ``least`` and all of them, rounded up.

    Attributes:
        vocabulary: Of the tokenizer.
        least: The smallest part that is kept.
    """

    vocabulary: Vocabulary
    least: float = 0.6

    def __post_init__(self) -> None:
        """Refuse what is no part of a whole."""
        require_range(self.least, "least", low=0.0, high=1.0)

    def __call__(self, X: Any, noise: Noise) -> dict[str, Tensor]:
        """Return ``X`` with words cut off on both sides."""
        words = Words.find(X, self.vocabulary, "WordCrop")
        u = noise.uniform("crop", 2, dtype=torch.float64)
        inside = _run(words, self.least + (1 - self.least) * u[:, 0], u[:, 1])
        return _kept(X, (inside | (words.of < 0)) & (X[MASK] != 0), self.vocabulary.pad)


@dataclass(frozen=True, eq=False)
class SpanMask(Augmentation):
    """Hide one run of neighbouring words, the part ``rate`` of a text, behind the token for hidden words.

    Attributes:
        vocabulary: Of the tokenizer; it must have such a token.
        rate: Part of the words, rounded down.
    """

    vocabulary: Vocabulary
    rate: float = 0.15

    def __post_init__(self) -> None:
        """Refuse a rate that is no part of a whole, and a vocabulary without a token to hide words behind."""
        require_range(self.rate, "rate", low=0.0, high=1.0)
        if self.vocabulary.hidden is None:
            raise InvalidInputError("the tokenizer has no token for hidden words: set mask=0, and drop words instead.")

    def __call__(self, X: Any, noise: Noise) -> dict[str, Tensor]:
        """Return ``X`` with a run of words hidden."""
        words = Words.find(X, self.vocabulary, "SpanMask")
        u = noise.uniform("span", 1, dtype=torch.float64)[:, 0]
        hidden = _run(words, torch.full_like(u, self.rate), u, down=True)
        return {**X, IDS: torch.where(hidden, self.vocabulary.hidden or 0, X[IDS])}


@dataclass(frozen=True, eq=False)
class WordSwap(Augmentation):
    """Let neighbouring words change places: each word is in one pair, and a pair swaps with probability ``rate``.

    Attributes:
        vocabulary: Of the tokenizer.
        rate: Probability.
    """

    vocabulary: Vocabulary
    rate: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a rate that is no probability."""
        require_range(self.rate, "rate", low=0.0, high=1.0)

    def __call__(self, X: Any, noise: Noise) -> dict[str, Tensor]:
        """Return ``X`` with words in another order."""
        words = Words.find(X, self.vocabulary, "WordSwap")
        odd = noise.integers("odd", 2, 1)  # whether pairs begin at the first word or at the second
        first = words.of - (words.of - odd) % 2
        swaps = noise.uniform("swap", X[IDS].shape[1] + 1).gather(1, first.clamp(min=0) + 1) < self.rate
        whole = (first >= 0) & (first + 1 < words.count.unsqueeze(1)) & (words.of >= 0)
        place = torch.where(swaps & whole, 2 * first + 1 - words.of, words.of)
        behind = words.of.cummax(1).values >= 0
        place = torch.where(words.of >= 0, place, torch.where(behind, words.of.shape[1], -1))
        order = place.argsort(dim=1, stable=True)
        return {**X, IDS: X[IDS].gather(1, order), MASK: X[MASK].gather(1, order)}


@dataclass(frozen=True)
class Dropout(Augmentation):
    """The same text twice, channels of its tokens dropped at random, as SimCSE's dropout (Gao et al. 2021).

    The view says which: two numbers a sample, from which the encoder makes the same zeros every time. Only an encoder
    with an argument ``dropout`` takes them, such as that of this package. Samples that are no views drop nothing.

    Attributes:
        rate: Probability that a channel of a token is zero; the others are scaled up.
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a rate that leaves nothing."""
        require_range(self.rate, "rate", low=0.0, high=0.95)

    def __call__(self, X: Any, noise: Noise) -> dict[str, Tensor]:
        """Return ``X`` with its noise beside it, ``(b, 2)``: 64 random bits, and the rate in parts of 2**24."""
        if not isinstance(X, dict) or IDS not in X:
            raise InvalidInputError(f"Dropout takes tokens, a dict with {IDS}, got {type(X).__name__}.")
        key = noise.bits(DROPOUT, 1)
        return {**X, DROPOUT: torch.cat([key, torch.full_like(key, round(self.rate * SCALE))], dim=1)}


def word_views(
    vocabulary: Vocabulary, *, drop: float = 0.2, mask: float | None = None, crop: float = 0.7, swap: float = 0.1
) -> Compose:
    """Return the views of texts that are taken where none are named.

    Args:
        vocabulary: Of the tokenizer.
        drop: Probability that a word is left out.
        mask: Part of the words, in one run, that is hidden; by default a tenth, or none where there is no token for it.
        crop: The smallest part of a text that is kept.
        swap: Probability that two neighbours change places.

    Returns:
        Crop, drop, swap and mask, in this order.
    """
    parts = [WordCrop(vocabulary, crop), WordDrop(vocabulary, drop), WordSwap(vocabulary, swap)]
    hidden = (0.0 if vocabulary.hidden is None else 0.1) if mask is None else mask
    return Compose(*parts, *([SpanMask(vocabulary, hidden)] if hidden > 0 else []))


def kept_channels(dropout: Tensor, length: int, width: int) -> Tensor:
    """Return what the channels of tokens are multiplied by in a `Dropout` view.

    Args:
        dropout: Noise, ``(b, 2)``.
        length: Tokens.
        width: Channels.

    Returns:
        ``(b, length, width)``, float64: zero, or one over the probability to stay. The numbers of a token do not depend
        on how many follow it.
    """
    rate = dropout[:, 1, None].double() / SCALE
    bits = shifted(mixed(dropout[:, :1], length * width), 40)  # 24 bits
    kept = (bits >= dropout[:, 1:]).double() / (1 - rate)
    return kept.reshape(-1, length, width)


def _run(words: Words, part: Tensor, u: Tensor, *, down: bool = False) -> Tensor:
    """Return where a run of words is, ``(b, length)``: of ``part`` of them ``(b,)``, its place by ``u`` in [0, 1)."""
    size = (part * words.count).floor().long() if down else (part * words.count).ceil().long().clamp(min=1)
    start = (u * (words.count - size + 1).clamp(min=1)).long()
    return (words.of >= start.unsqueeze(1)) & (words.of < (start + size).unsqueeze(1))
