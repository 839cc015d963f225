r"""Words as numbers without a vocabulary file: pieces of words, hashed.

    text -> words and marks -> NFKC, folded case -> pieces of at most 5, then 4 characters -> blake2b -> a bucket

``Waiters!`` becomes ``waite``, ``##rs``, ``!``. First pieces have the lower half of the buckets, pieces that continue a
word the upper half, so that the numbers alone tell where words begin. Chinese, Japanese and Korean are read one
character at a time. Nothing is learned and nothing is stored: the same text gives the same numbers on every machine.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes._describe import Description, described

# Ideographs and syllables one by one, runs of letters and digits with inner apostrophes, single marks.
WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+(?:['\u2019][^\\W\\d_]+)*|[^\\w\\s]"
)
FIRST, NEXT = 5, 4
"""Characters of the first piece of a word, and of each that continues it."""
PAD, HIDDEN, EMPTY = 0, 1, 2
"""Numbers of padding, of a hidden word, and of a text without any."""
RESERVED = 3
Span = tuple[int, int]


@dataclass(frozen=True)
class Tokens:
    """One text as numbers.

    Attributes:
        ids: Of the tokens.
        spans: Where in the text each of them, or its word, stands; an empty span for one that stands nowhere.
        pieces: What each of them stands for: two may share a number and not a piece.
    """

    ids: Sequence[int]
    spans: Sequence[Span]
    pieces: Sequence[str]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """What a view must know of the numbers.

    Attributes:
        size: Numbers are below it.
        pad: Of padding.
        hidden: Stands for a word that is hidden; ``None`` if there is none such.
        special: Numbers that frame a text and are never dropped.
        continues: Whether a token continues the word of the one before it, ``(size,)``.
    """

    size: int
    pad: int
    hidden: int | None
    special: tuple[int, ...]
    continues: Tensor

    def describe(self) -> Description:
        """Return plain values."""
        parts = {"size": self.size, "pad": self.pad, "hidden": self.hidden, "special": self.special}
        return described("vocabulary", {**parts, "continues": self.continues})


class Tokenizer(Protocol):
    """From a text to numbers."""

    @property
    def vocabulary(self) -> Vocabulary:
        """What its numbers mean to a view."""

    def tokens(self, text: str) -> Tokens:
        """Return the tokens of a text, at least one."""


@dataclass(frozen=True)
class HashedTokenizer:
    """Pieces of words, hashed: needs no file and never meets an unknown word.

    Attributes:
        buckets: Numbers; half of them for first pieces, half for those that continue a word.
        longest: Tokens of a text that are read; what follows is cut off.

    Example:
        >>> found = HashedTokenizer().tokens("Waiters!")
        >>> len(found.ids), found.spans
        (3, [(0, 7), (0, 7), (7, 8)])
        >>> list(found.ids) == list(HashedTokenizer().tokens("WAITERS !").ids)
        True
    """

    buckets: int = 16384
    longest: int = 128

    def __post_init__(self) -> None:
        """Refuse sizes that leave no room."""
        require_range(self.buckets, "buckets", low=16)
        require_range(self.longest, "longest", low=1)

    @property
    def vocabulary(self) -> Vocabulary:
        """Upper half of the numbers: pieces that continue a word."""
        continues = torch.arange(self.buckets) >= self.buckets // 2
        return Vocabulary(self.buckets, PAD, HIDDEN, (EMPTY,), continues)

    def tokens(self, text: str) -> Tokens:
        """Return the pieces of a text; each has the span of its whole word."""
        ids: list[int] = []
        spans: list[Span] = []
        found: list[str] = []
        for word in WORD.finditer(text):
            for place, piece in enumerate(pieces(word[0])):
                ids.append(bucket(piece, place > 0, self.buckets))
                spans.append(word.span())
                found.append(f"##{piece}" if place else piece)
            if len(ids) >= self.longest:
                break
        if not ids:
            return Tokens([EMPTY], [(0, 0)], [""])
        return Tokens(ids[: self.longest], spans[: self.longest], found[: self.longest])


def pieces(word: str) -> list[str]:
    """Return the pieces of a word, case and compatibility forms folded.

    Example:
        >>> pieces("Waiters"), pieces("ﬁne")
        (['waite', 'rs'], ['fine'])
    """
    plain = unicodedata.normalize("NFKC", word).casefold()
    return [plain[:FIRST], *(plain[start : start + NEXT] for start in range(FIRST, len(plain), NEXT))]


@lru_cache(maxsize=2**16)
def bucket(piece: str, continues: bool, buckets: int) -> int:
    """Return the number of a piece: the first 8 bytes of its blake2b, modulo the buckets of its half.

    Args:
        piece: A few characters.
        continues: Whether it continues a word.
        buckets: Of both halves.

    Returns:
        A number between ``RESERVED`` and ``buckets - 1``.
    """
    digest = hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    half = buckets // 2
    low, high = (half, buckets) if continues else (RESERVED, half)
    return low + int.from_bytes(digest, "little") % (high - low)
