"""A result in words: which claims hold, and a target's part of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from krepes.reproduce.scale import find_scale
from krepes.reproduce.tables import markdown, wide


def summary(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the paper's claims with their verdicts, then what was asked of each table, failures included."""
    claims = [(name, claim) for name, details in stories.items() for claim in details["claims"]]
    checks = [
        (f"[{name}](#{name})", check["check"], "yes" if check["holds"] else "**no**")
        for name, details in stories.items()
        for check in details["checks"]
    ]
    parts = []
    if claims:
        columns = ["target", "the paper's claim", "verdict", "figure that decides", "why"]
        rows = [
            (f"[{name}](#{name})", claim["sentence"], f"**{_verdict(claim)}**", _decisive(claim), claim["why"])
            for name, claim in claims
        ]
        parts.append(f"## The paper's claims\n\n{markdown(pd.DataFrame(rows, columns=columns))}")
    if checks:
        columns = ["target", "asked of the table", "holds"]
        parts.append("## What was asked of the tables\n\n" + markdown(pd.DataFrame(checks, columns=columns)))
    return "\n".join(parts)


def _verdict(claim: Mapping[str, Any]) -> str:
    """Return the verdict; where many readings were tried, how many of them hold."""
    readings = claim["readings"]
    holding = [reading["name"] for reading in readings if reading["holds"]]
    if not holding or len(holding) == len(readings):
        return str(claim["verdict"])
    named = f": {holding[0]}" if len(holding) == 1 else ""
    return f"holds under {len(holding)} of {len(readings)} readings{named}"


def _decisive(claim: Mapping[str, Any]) -> str:
    """Return the figure of the first reading that holds, or of the first one, and whose it is."""
    readings = claim["readings"]
    chosen = next((reading for reading in readings if reading["holds"]), readings[0])
    return str(chosen["figure"]) if len(readings) == 1 else f"{chosen['name']}: {chosen['figure']}"


def _readings(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return every reading of a target's claims with its figure; nothing where each claim has one alone."""
    rows = [
        (claim["sentence"], reading["name"], reading["figure"], "yes" if reading["holds"] else "**no**")
        for claim in claims
        if len(claim["readings"]) > 1
        for reading in claim["readings"]
    ]
    if not rows:
        return ""
    columns = ["claim", "reading", "figure", "holds"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["claim"] = frame["claim"].where(frame["claim"] != frame["claim"].shift(), "")
    return f"Every reading of what the paper claims:\n\n{markdown(frame)}"


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
        _readings(details["claims"]),
        markdown(shown),
    ])
