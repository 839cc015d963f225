"""A report as one HTML file: styles, script and pictures inside, everything from data escaped.

Equal reports give equal bytes. The page forbids itself any network request, and any script but its own, by a content
security policy. Characters that cannot be seen, or turn the direction of writing, are written out.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from krepes.data.text import printable
from krepes.report.blocks import Picture
from krepes.report.content import Report
from krepes.report.glossary import GLOSSARY, anchor, glossed
from krepes.storage.files import publish

# Circle, square, triangle, diamond, cross, bar, wedge: told apart without colour.
SHAPES = (
    "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0-1 0Z",
    "M-.9-.9H.9V.9H-.9Z",
    "M0-1.15 1.1.85H-1.1Z",
    "M0-1.3 1.1 0 0 1.3-1.1 0Z",
    "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "M-1.2-.45H1.2V.45H-1.2Z",
    "M0 1.15 1.1-.85H-1.1Z",
)
STAR = "M0-1.9.55-.6 1.8-.6.8.25 1.15 1.6 0 .8-1.15 1.6-.8.25-1.8-.6-.55-.6Z"


def render(report: Report) -> str:
    """Return the report as HTML; the same report gives the same text."""
    environment = _environment()
    script = environment.get_template("script.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("report.html.j2").render(report=report, script=Markup(script), digest=digest)


def write_report(report: Report, path: str | Path) -> Path:
    """Write the report: to a temporary neighbour, flushed to disk, then renamed.

    Args:
        report: What to write.
        path: The file; its folder is made, an earlier file is replaced.

    Returns:
        The path of the file.
    """
    return publish(path, lambda temporary: temporary.write_bytes(render(report).encode()))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("krepes.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters["data_uri"] = _data_uri
    environment.filters["glossed"] = lambda text, seen: glossed(printable(text, lines=True), seen)
    environment.globals.update(
        glossary=GLOSSARY, anchor=anchor, new_set=set, stretch=_stretch, shapes=SHAPES, star=STAR
    )
    return environment


def _stretch(x: float) -> float:
    """Return where a point of a map lies from the left, as maps are wider than they are high."""
    return round(1.6 * x, 1)


def _data_uri(picture: Picture) -> str:
    return f"data:{picture.media};base64,{base64.b64encode(picture.content).decode('ascii')}"


def _shown(value: Any) -> Any:
    """Return what an expression of a template gives, hidden characters written out; markup is ours and stays."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
