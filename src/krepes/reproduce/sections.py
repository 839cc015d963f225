"""A result in words: which claims hold, and a target's part of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from krepes.reproduce.scale import find_scale
from krepes.reproduce.tables import markdown, wide


def summary(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the paper's claims with their verdicts, then what was asked of each table, failures included."""
    claims = [
        (f"[{name}](#{name})", claim["sentence"], f"**{claim['verdict']}**", _figures(claim), claim["why"])
        for name, details in stories.items()
        for claim in details["claims"]
    ]
    checks = [
        (f"[{name}](#{name})", check["check"], "yes" if check["holds"] else "**no**")
        for name, details in stories.items()
        for check in details["checks"]
    ]
    parts = []
    if claims:
        columns = ["target", "the paper's claim", "verdict", "figures that decide", "why"]
        parts.append("## The paper's claims\n\n" + markdown(pd.DataFrame(claims, columns=columns)))
    if checks:
        columns = ["target", "asked of the table", "holds"]
        parts.append("## What was asked of the tables\n\n" + markdown(pd.DataFrame(checks, columns=columns)))
    return "\n".join(parts)


def _figures(claim: Mapping[str, Any]) -> str:
    """Return the figure of every reading, each with its verdict."""
    readings = claim["readings"]
    if len(readings) == 1:
        return str(readings[0]["figure"])
    return "<br>".join(f"{r['name']}: {r['figure']} ({'yes' if r['holds'] else 'no'})" for r in readings)


def hours(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how long the results took in all, those that were timed."""
    timed = {name: details["seconds"] for name, details in stories.items() if "seconds" in details}
    if not timed:
        return ""
    longest = max(timed, key=lambda name: timed[name])
    return (
        f"The targets of the paper ({len(timed)}) took {sum(timed.values()) / 3600:.1f} hours in all here, "
        f"`{longest}` longest with {timed[longest] / 60:.0f} minutes; stored encoders were not trained again.\n"
    )


def _minutes(details: Mapping[str, Any]) -> str:
    return f"{details['seconds'] / 60:.1f} minutes"


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
    took = f", {_minutes(details)}" if "seconds" in details else ""
    return "\n".join([
        f"## {name}\n",
        f"{details['what']}. {command}, commit {details['commit']}, {seeds}{took}.\n",
        details["note"] + "\n",
        *(f"![{details['what']}]({pictures}/{picture})\n" for picture in details["pictures"]),
        markdown(shown),
    ])
