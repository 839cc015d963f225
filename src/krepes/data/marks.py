"""Texts with words marked, for people: in three strengths, cut to what fits, and safe to print."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from krepes.data.text import printable
from krepes.data.tokenizer import WORD, Span

LEVELS = (0.1, 0.35, 0.7)
"""A word is marked from the first of these shares of the strongest word on, and more strongly from the others."""
LONGEST = 160
GAP = "…"


@dataclass(frozen=True)
class MarkedText:
    """A text in pieces.

    Attributes:
        pieces: Parts of the text in order, each with the strength of its mark, 0 (none) to 3.
    """

    pieces: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, text: str) -> MarkedText:
        """Return a text without marks."""
        return cls(((text, 0),))

    @property
    def words(self) -> list[str]:
        """What is marked, in order."""
        return [text for text, level in self.pieces if level]

    def __str__(self) -> str:
        """Return one line of safe characters, asterisks around runs of words that are marked."""
        marks = [level > 0 for _, level in self.pieces]
        # A space between two marked words belongs to the run.
        inside = [
            mark or (text.isspace() and any(marks[:i][-1:]) and any(marks[i + 1 : i + 2]))
            for i, ((text, _), mark) in enumerate(zip(self.pieces, marks, strict=True))
        ]
        runs = groupby(zip(self.pieces, inside, strict=True), key=lambda piece: piece[1])
        parts = [(mark, printable("".join(text for (text, _), _ in run))) for mark, run in runs]
        return "".join(f"*{text}*" if mark else text for mark, text in parts)


def marked(
    text: str, spans: Sequence[Span], parts: Sequence[float], agree: Sequence[bool], strongest: float = 0.0
) -> MarkedText:
    """Return a text whose words are marked by the parts that their tokens have in something.

    Args:
        text: The text.
        spans: Where each token, or its word, stands.
        parts: Of each token.
        agree: Whether the other text has the token too; a word whose first token it has not is never marked.
        strongest: What a word is compared with; by default, and at least, the strongest word of this text.

    Returns:
        The text; words with less than a tenth of the strongest one's part, or a negative one, are not marked, nor are
        stops and commas but between two marked words.

    Example:
        >>> str(marked("good soup, bad bread", [(0, 4), (5, 9), (9, 10)], [1.0, 0.5, 0.01], [True] * 3))
        '*good soup*, bad bread'
    """
    words = [match.span() for match in WORD.finditer(text)]
    totals = [0.0] * len(words)
    shared: dict[int, bool] = {}
    place = 0
    for (start, end), part, both in zip(spans, parts, agree, strict=False):
        while place < len(words) and words[place][1] <= start:
            place += 1
        if place < len(words) and start < end:
            totals[place] += part
            shared.setdefault(place, both)
    strongest = max(strongest, *(totals[place] for place, both in shared.items() if both), 0.0)
    levels = [
        sum(total >= share * strongest for share in LEVELS) if shared.get(place) and total > 0 else 0
        for place, total in enumerate(totals)
    ]
    pieces: list[tuple[str, int]] = []
    after = 0
    for (start, end), level in zip(words, _without_stray_stops(text, words, levels), strict=True):
        if level:
            pieces += [(text[after:start], 0), (text[start:end], level)]
            after = end
    return MarkedText(tuple(piece for piece in [*pieces, (text[after:], 0)] if piece[0]))


def _without_stray_stops(text: str, words: Sequence[Span], levels: Sequence[int]) -> list[int]:
    """Return strengths of marks without those of punctuation that does not stand between two marked words."""
    stops = [all(unicodedata.category(sign).startswith("P") for sign in text[start:end]) for start, end in words]
    real = [0 if stop else level for stop, level in zip(stops, levels, strict=True)]
    beside = [0, *real, 0]
    between = [bool(beside[place] and beside[place + 2]) for place in range(len(real))]
    return [level if not stop or inside else 0 for level, stop, inside in zip(levels, stops, between, strict=True)]


def merged(texts: Sequence[MarkedText]) -> MarkedText:
    """Return one text from several markings of it: each part has the strongest of its marks.

    Args:
        texts: The same text, marked in several ways; at least one.

    Returns:
        The text.

    Example:
        >>> str(merged([MarkedText((("good", 1), (" soup", 0))), MarkedText((("good ", 0), ("soup", 2)))]))
        '*good soup*'
    """
    levels = [[level for piece, level in text.pieces for _ in piece] for text in texts]
    strongest = [max(marks) for marks in zip(*levels, strict=True)]
    # Two marked words that touch stay two pieces: a cut of any marking is kept.
    cuts = {0, len(strongest)}
    for text in texts:
        end = 0
        for piece, _ in text.pieces:
            end += len(piece)
            cuts.add(end)
    whole = "".join(piece for piece, _ in texts[0].pieces)
    places = sorted(cuts)
    return MarkedText(tuple((whole[a:b], strongest[a]) for a, b in zip(places, places[1:], strict=False)))


def shortened(text: MarkedText | str, length: int = LONGEST) -> MarkedText:
    """Return a text of at most about ``length`` characters: whole words around its strongest marks, dots where cut.

    Args:
        text: Marked or plain.
        length: Characters.

    Returns:
        The text itself if it is short.

    Example:
        >>> str(shortened("one two three four five six", 12))
        'one two…'
    """
    marks = MarkedText.of(text) if isinstance(text, str) else text
    words = _words(marks)
    if sum(len(word) for word, _ in words) <= length:
        return marks
    start, end = _window(words, length)
    kept = [words[i] for i in range(start, end)]
    kept = [(kept[0][0].lstrip(), kept[0][1]), *kept[1:]]
    kept[-1] = (kept[-1][0].rstrip()[:length], kept[-1][1])
    before, behind = [(GAP, 0)] * (start > 0), [(GAP, 0)] * (end < len(words))
    return MarkedText(tuple([*before, *kept, *behind]))


def _words(marks: MarkedText) -> list[tuple[str, int]]:
    """Return the pieces split further, after every space, so that a cut falls between words."""
    found: list[tuple[str, int]] = []
    for text, level in marks.pieces:
        if level:
            found.append((text, level))
            continue
        start = 0
        for place, character in enumerate(text):
            if character.isspace():
                found.append((text[start : place + 1], 0))
                start = place + 1
        found += [(text[start:], 0)] if text[start:] else []
    return found


def _window(words: Sequence[tuple[str, int]], length: int) -> tuple[int, int]:
    """Return the run of words of at most ``length`` characters with the strongest marks; the first of equals."""
    best, chosen = -1, (0, 1)
    end, size, weight = 0, 0, 0
    for start in range(len(words)):
        while end < len(words) and (size + len(words[end][0]) <= length or end == start):
            size, weight, end = size + len(words[end][0]), weight + words[end][1], end + 1
        if weight > best:
            best, chosen = weight, (start, end)
        size, weight = size - len(words[start][0]), weight - words[start][1]
    return chosen
