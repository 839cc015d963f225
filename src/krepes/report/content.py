"""What a report says, as plain data: parts, sections and blocks; how it looks is the renderer's business.

A block carries text from the data as it is. Escaping happens once, where text becomes HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, ClassVar, Literal

from krepes.data.marks import MarkedText
from krepes.registry import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tone = Literal["", "attracts", "repels", "ours", "muted"]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: What is shown.
        value: What it is sorted by; without one, by its text.
        tone: Its role, which the renderer colours and never by colour alone.
        shade: 0 to 3: how far it differs from what it is compared with.
    """

    text: str
    value: float | None = None
    tone: Tone = ""
    shade: int = 0


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
    """

    title: str
    picture: Picture
    lines: tuple[str, ...] = ()
    tone: Tone = ""


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
    """

    title: str
    text: MarkedText
    lines: tuple[str, ...] = ()
    tone: Tone = ""


@dataclass(frozen=True)
class Quotes:
    """Texts below one another."""

    kind: ClassVar[str] = "quotes"
    caption: str
    quotes: tuple[Quote, ...]


@dataclass(frozen=True)
class Choice:
    """One entry of a `Chooser`: a name to pick it by, and what it shows."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Chooser:
    """Entries of which a reader sees one at a time; all of them on paper and without JavaScript."""

    kind: ClassVar[str] = "chooser"
    label: str
    choices: tuple[Choice, ...]


Block = Paragraph | Warnings | Facts | Table | Picture | Gallery | Quotes | Chooser


@dataclass(frozen=True)
class Headline:
    """The one number of a section, for the top of the page, and what it counts."""

    value: str
    label: str


@dataclass(frozen=True)
class Section:
    """One question and its answer.

    Attributes:
        key: Short name, unique in its part.
        title: The heading.
        finding: What was found, one sentence of plain words with its numbers; or what to pass to find it.
        caveat: What the finding does not say; empty if there is none to qualify.
        blocks: The evidence.
        headline: Its number for the top of the page.
        verdict: Whether that is good or bad news, or neither.
    """

    key: str
    title: str
    finding: str
    caveat: str = ""
    blocks: tuple[Block, ...] = ()
    headline: Headline | None = None
    verdict: Literal["good", "bad", "neutral"] = "neutral"

    @property
    def missing(self) -> bool:
        """Whether the report lacks what this section needs."""
        return not self.blocks


@dataclass(frozen=True)
class Part:
    """The audit of one model."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Report:
    """One or more audits on a page.

    Attributes:
        title: Of the page.
        parts: The audits.
    """

    title: str
    parts: tuple[Part, ...]

    def section(self, key: str, part: int = 0) -> Section:
        """Return a section by its key."""
        return next(section for section in self.parts[part].sections if section.key == key)

    def plot(self) -> Figure:
        """Draw the verdicts and headlines of all sections that have one."""
        sections = [section for part in self.parts for section in part.sections if section.headline is not None]
        rows = [(s.title, s.verdict, f"{s.headline.value} {s.headline.label}") for s in sections if s.headline]
        return load("krepes.figures:verdict_board")(rows)

    def _repr_html_(self) -> str:
        page, title = escape(load("krepes.report.html:render")(self)), escape(self.title)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 800px; border: 0" title="{title}"></iframe>'


def join(title: str, reports: list[Report]) -> Report:
    """Return one report with the parts of several."""
    return Report(title, tuple(part for report in reports for part in report.parts))
