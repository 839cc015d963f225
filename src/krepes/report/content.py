"""What a report says, as plain data: a verdict, parts, sections; blocks are in `krepes.report.blocks`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from krepes.registry import load
from krepes.report.blocks import Block, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        mark: Whether the finding stands in other runs, in words; empty if that was not asked.
        data: The tidy table behind it as JSON records; empty if it is no audit.
    """

    key: str
    title: str
    finding: str
    caveat: str = ""
    blocks: tuple[Block, ...] = ()
    headline: Headline | None = None
    verdict: Literal["good", "bad", "neutral"] = "neutral"
    mark: str = ""
    data: str = ""

    @property
    def missing(self) -> bool:
        """Whether the report lacks what this section needs."""
        return not self.blocks


@dataclass(frozen=True)
class Point:
    """One sentence of the first page: what was found, whether that is good or bad news, and where it stands."""

    text: str
    verdict: Literal["good", "bad", "neutral"]
    key: str


@dataclass(frozen=True)
class Step:
    """What a reader may do next: in words, and what to type."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class Front:
    """What comes first: may the explanation be trusted, what was found, what to do.

    Attributes:
        light: Green, amber or red; grey if nothing was measured.
        word: The light in words.
        why: What made it so, one sentence.
        rules: Every rule with its number.
        points: Three findings.
        steps: What to do next.
    """

    light: Literal["green", "amber", "red", "grey"]
    word: str
    why: str
    rules: Table
    points: tuple[Point, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Part:
    """The audit of one model."""

    title: str
    sections: tuple[Section, ...]
    front: Front | None = None


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

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as plain values: verdict, findings, and every table."""
        return load("krepes.report.plain:report_values")(self)

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
