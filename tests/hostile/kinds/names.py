"""Names and values from data on their way out: no formula in a table, no script in a page, no escape in a terminal."""

import csv
from collections.abc import Iterator
from html.parser import HTMLParser
from random import Random
from xml.etree import ElementTree

import pandas as pd
import torch

from hostile.case import Case
from krepes import figures
from krepes.audit import FeatureSpace
from krepes.data.export import NUMBER, STARTS, write_csv
from krepes.data.text import HIDDEN, printable
from krepes.data.values import groups
from krepes.figures.style import new_figure
from krepes.report import render
from krepes.report.blocks import Cell, Paragraph, Table
from krepes.report.content import Part, Report, Section

figures.render(new_figure(1.0), format="svg")  # matplotlib makes its caches when it is first used

SEEDS = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "=HYPERLINK(\"http://x\")", "＝1",
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "' onmouseover='x",
    "</style><script>", "{{7*7}}", "{% raw %}",
    "&lt;b&gt;", "javascript:alert(1)", "]]>", "<!--", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07",
    "\x1b[2J", "\x9b31m", "a\rb", "a\nb",
    "\u202eevil", "\u2066x\u2069", "\u200f", "\ufeff", "\u200b", "\x00", "\x7f", "\u2028",
    "\U000e0041", "$x_1^2$", r"$\frac{1}{0$",
    "$", "$$", r"\$", "_hidden", "^", r"\alpha", "%s", "{0}", "[bold]x[/]", "a" * 300, "", " ",
    "日本語", "👩‍🔬", "نص", "e\u0301",
]  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page, and the attributes that would run a script."""

    def __init__(self):
        super().__init__()
        self.found, self.handlers = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        links = [value for name, value in attrs if name in {"href", "src", "action"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.handlers += [link for link in links if not link.startswith(("#", "data:image/"))]


def table_out(text):
    def run(folder):
        write_csv(pd.DataFrame({text or "x": [text, "plain"], "n": [-1.5, 2.0]}), folder / "out.csv")
        with (folder / "out.csv").open(newline="", encoding="utf-8") as handle:
            return list(csv.reader(handle))

    def check(rows):
        assert len(rows) == 3 and all(len(row) == 2 for row in rows), rows
        cells = [cell for row in rows for cell in row]
        assert not any(cell.startswith(STARTS) and not NUMBER.fullmatch(cell) for cell in cells), cells
        assert rows[1][0].removeprefix("'") == text or rows[1][0] == text

    return run, check


def page_out(text):
    def run(folder):
        rows = ((Cell(text), Cell(text, 1.0)),) * 2
        blocks = (Paragraph(text), Table(text, (Cell(text), Cell(text)), rows))
        return render(Report(text, (Part(text, (Section("key", text, text, text, blocks),)),)))

    def check(html):
        tags = Tags()
        tags.feed(html)
        assert tags.found.count("script") == 1 and tags.found.count("style") == 1 and "img" not in tags.found
        assert not tags.handlers and not HIDDEN.search(html.replace("\n", ""))

    return run, check


def figure_out(text):
    def run(folder):
        frame = pd.DataFrame({text or "x": [text, "b"] * 5, "y": range(10)})
        drawn = figures.row_diffs(
            frame[:1], frame[1:3], torch.tensor([0.5, -0.2]), FeatureSpace.of(frame), landmark_ids=[text, 1]
        )
        return figures.render(drawn, format="svg")

    return run, lambda svg: ElementTree.fromstring(svg)


def terminal_out(text):
    def check(shown):
        assert not HIDDEN.search(shown)
        if not HIDDEN.search(text):
            assert shown == text

    return (lambda folder: printable(text)), check


def group_out(text):
    def check(found):
        assert list(found) == [text if text.strip() else "(missing)", "(missing)", "b"]

    return (lambda folder: groups([text, None, "b"])), check


WAYS = {"table": table_out, "page": page_out, "figure": figure_out, "terminal": terminal_out, "group": group_out}


def cases(rng: Random) -> Iterator[Case]:
    mixed = ["".join(rng.sample(SEEDS, 2)) for _ in range(30)]
    for text in [*SEEDS, *mixed]:
        for way, make in WAYS.items():
            if way == "figure" and text in mixed:
                continue
            run, check = make(text)
            yield Case("names", f"{way}: {text[:30]!r}", lambda folder: None, run, "read", check)
