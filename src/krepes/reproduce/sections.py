"""A result in words: which claims hold, and a target's part of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from krepes.reproduce.scale import find_scale
from krepes.reproduce.tables import markdown, wide


def summary(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of claims, those that do not hold included."""
    rows = [
        (f"[{name}](#{name})", claim["claim"], "yes" if claim["holds"] else "**no**")
        for name, details in stories.items()
        for claim in details["claims"]
    ]
    return "## Claims\n\n" + markdown(pd.DataFrame(rows, columns=["target", "claim", "holds"]))


def section(name: str, details: Mapping[str, Any], pictures: str) -> str:
    """Return the part of a page about one target.

    Args:
        name: Of the target.
        details: What its JSON file holds.
        pictures: Folder of the figures, relative to the page.

    Returns:
        Markdown.
    """
    table = pd.DataFrame(details["table"])
    shown = wide(table, details["keys"], details["across"])
    scale = details["scale"]
    sizes = f"m = {scale['m']}, at most {scale['rows']:,} rows, unless said below"
    fewer = "" if scale["seeds"] == find_scale(scale["name"]).seeds else f" --seeds {scale['seeds']}"
    parts = "".join(f" --{flag} {value}" for flag in ("only", "without") for value in details.get(flag, ()))
    command = f"`krepes reproduce {name} --scale {scale['name']}{fewer}{parts}` ({sizes})"
    seeds = "1 seed" if scale["seeds"] == 1 else f"{scale['seeds']} seeds"
    return "\n".join([
        f"## {name}\n",
        f"{details['what']}. {command}, commit {details['commit']}, {seeds}.\n",
        details["note"] + "\n",
        *(f"![{details['what']}]({pictures}/{picture})\n" for picture in details["pictures"]),
        markdown(shown),
    ])
