"""Blocks of a report, as plain data: tables, pictures, cards; how they look is the renderer's business.

A block carries text from the data as it is. Escaping happens once, where text becomes HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from krepes.data.marks import MarkedText

Tone = Literal["", "attracts", "repels", "ours", "muted"]
"""Role of what is shown, which is coloured and always said in a word too."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: What is shown.
        value: What it is sorted by; without one, by its text.
        tone: Its role, which the renderer colours and never by colour alone.
        shade: 0 to 3: how far it differs from what it is compared with.
        link: Key of a sheet or a sample of the same part that it leads to.
        note: A second line, smaller.
    """

    text: str
    value: float | None = None
    tone: Tone = ""
    shade: int = 0
    link: str = ""
    note: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Plain words."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Warnings:
    """What a reader must know before believing anything else; shown as a list that stands out."""

    kind: ClassVar[str] = "warnings"
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for, two columns.

    Attributes:
        items: Name and text of each fact.
    """

    kind: ClassVar[str] = "facts"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows.

    Attributes:
        caption: What it shows, one sentence.
        columns: Heads.
        rows: Cells, as many in a row as there are heads.
        folded: Whether a reader has to open it.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """An image file.

    Attributes:
        content: Its bytes.
        media: Its media type.
        alt: What it shows, for those who do not see it.
        caption: A line below; may be empty.
    """

    kind: ClassVar[str] = "picture"
    content: bytes
    media: str
    alt: str
    caption: str = ""


@dataclass(frozen=True)
class Card:
    """A small picture with a few words.

    Attributes:
        title: First line.
        picture: What is shown.
        lines: Further lines.
        tone: Frames the card.
        link: Key of a sheet of the same part.
    """

    title: str
    picture: Picture
    lines: tuple[str, ...] = ()
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True)
class Gallery:
    """Cards in a row that breaks where the page ends."""

    kind: ClassVar[str] = "gallery"
    caption: str
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Quote:
    """A text with marked words, and a few words about it.

    Attributes:
        title: First line.
        text: What it says; marks have a strength of 1 to 3.
        lines: Further lines.
        tone: Frames the quote.
        link: Key of a sheet of the same part.
    """

    title: str
    text: MarkedText
    lines: tuple[str, ...] = ()
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True)
class Quotes:
    """Texts below one another."""

    kind: ClassVar[str] = "quotes"
    caption: str
    quotes: tuple[Quote, ...]


@dataclass(frozen=True)
class Titled:
    """Blocks under a small heading."""

    kind: ClassVar[str] = "titled"
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Mark:
    """A point of a map.

    Attributes:
        x: From the left, 0 to 100.
        y: From the top, 0 to 100.
        name: What it is, in words.
        shape: Which of the shapes and colours it has.
        link: Key of a sheet or a sample of the same part.
    """

    x: float
    y: float
    name: str
    shape: int = 0
    link: str = ""


@dataclass(frozen=True)
class Tie:
    """A line of a map from a sample to a landmark, solid if it attracts and dashed if it repels."""

    x: float
    y: float
    tone: Tone
    width: float


@dataclass(frozen=True)
class Map:
    """Samples among landmarks.

    Attributes:
        caption: What it shows.
        landmarks: Points.
        samples: Points, one for each choice of the chooser beside it.
        ties: For each sample its lines.
        legend: What the shapes stand for; empty if all are alike.
    """

    caption: str
    landmarks: tuple[Mark, ...]
    samples: tuple[Mark, ...]
    ties: tuple[tuple[Tie, ...], ...]
    legend: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """One entry of a `Chooser`.

    Attributes:
        key: Under which links find it, unique in its part.
        name: To pick it by.
        blocks: What it shows.
    """

    key: str
    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Chooser:
    """Entries of which a reader sees one at a time; all of them without JavaScript.

    Attributes:
        label: What is chosen.
        choices: The entries.
        hint: How to see those that are not here.
        map: Where they lie, the one that is picked marked.
    """

    kind: ClassVar[str] = "chooser"
    label: str
    choices: tuple[Choice, ...]
    hint: str = ""
    map: Map | None = None


@dataclass(frozen=True)
class Sheet:
    """All that is known of one training sample, opened by a link.

    Attributes:
        key: Under which links find it, unique in its part.
        title: Its heading.
        blocks: What it shows.
    """

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Sheets:
    """Sheets that open one at a time over the page."""

    kind: ClassVar[str] = "sheets"
    sheets: tuple[Sheet, ...]


Block = Paragraph | Warnings | Facts | Table | Picture | Gallery | Quotes | Titled | Chooser | Sheets
