"""A result in words: which claims hold, and a target's part of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from krepes.reproduce.scale import find_scale
from krepes.reproduce.tables import markdown, wide

NAMED = 3
"""Readings that a verdict names, at most; the section of the target has all."""


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
    """Return the verdict; where many readings were tried, how many of them hold and which come first."""
    readings = claim["readings"]
    holding = [reading["name"] for reading in readings if reading["holds"]]
    if not holding or len(holding) == len(readings):
        return str(claim["verdict"])
    more = f" and {len(holding) - NAMED} more" if len(holding) > NAMED else ""
    return f"holds under {len(holding)} of {len(readings)} readings: {'; '.join(holding[:NAMED])}{more}"


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
    """Return how much work the results took in all, those that were timed."""
    timed = {name: sum(run.get("seconds", 0.0) for run in details["runs"]) for name, details in stories.items()}
    timed = {name: seconds for name, seconds in timed.items() if seconds}
    if not timed:
        return ""
    longest = max(timed, key=lambda name: timed[name])
    return (
        f"The targets of the paper ({len(timed)}) took {sum(timed.values()) / 3600:.1f} core hours in all here, "
        f"`{longest}` most with {timed[longest] / 60:.0f} minutes; stored encoders were not trained again.\n"
    )


def _command(name: str, scale: str, run: Mapping[str, Any]) -> str:
    """Return what was typed, with the commit, the seeds and the work that it took."""
    fewer = "" if run["seeds"] == find_scale(scale).seeds else f" --seeds {run['seeds']}"
    choices = "".join(f" --{flag} {value}" for flag in ("only", "without") for value in run[flag])
    seeds = "1 seed" if run["seeds"] == 1 else f"{run['seeds']} seeds"
    took = f", {run['seconds'] / 60:.1f} core minutes" if "seconds" in run else ""
    took += " beside what an earlier call had kept" if run.get("kept") else ""
    kept = "" if run["data"] == run["only"] or not run["only"] else f", of which {', '.join(run['data'])} stand here"
    rounded = ", figures as a page of that commit printed them" if run.get("printed") else ""
    said = f"commit {run['commit']}, {seeds}{took}{rounded}"
    return f"`krepes reproduce {name} --scale {scale}{fewer}{choices}`{kept}: {said}"


def section(name: str, details: Mapping[str, Any], pictures: str) -> str:
    """Return the part of a page about one target.

    Args:
        name: Of the target.
        details: What was measured, with the target's words and its claims judged.
        pictures: Folder of the figures, relative to the page.

    Returns:
        Markdown.
    """
    shown = wide(details["table"], details["keys"], details["across"])
    commands = "; ".join(_command(name, details["scale"], run) for run in details["runs"])
    scale = details["runs"][0]["sizes"]
    sizes = f"m = {scale['m']}, at most {scale['rows']:,} rows, unless said below"
    return "\n".join([
        f"## {name}\n",
        f"{details['what']} ({sizes}). {commands}.\n",
        details["note"] + "\n",
        *(f"![{details['what']}]({pictures}/{picture})\n" for picture in details["pictures"]),
        _readings(details["claims"]),
        *(f"{title}:\n\n{markdown(digest)}" for title, digest in details["digests"].items()),
        *(["All of it:\n"] if details["digests"] else []),
        markdown(shown),
    ])
