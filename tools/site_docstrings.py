"""Docstrings as the site's Markdown wants them: formulas between dollars, an example as a section of its own."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):  # type: ignore[misc]  # griffe is not installed where types are checked
    """Change each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", ROLE.sub(r"$\1$", obj.docstring.value))
