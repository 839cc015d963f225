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
from krepes.report.content import Picture, Report
from krepes.storage.files import publish


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
    return environment


def _data_uri(picture: Picture) -> str:
    return f"data:{picture.media};base64,{base64.b64encode(picture.content).decode('ascii')}"


def _shown(value: Any) -> Any:
    """Return what an expression of a template gives, hidden characters written out; markup is ours and stays."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
