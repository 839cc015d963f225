"""A result in words: which claims hold, and a target's part of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from krepes.reproduce.scale import find_scale
from krepes.reproduce.tables import markdown, wide

NAMED, LONG = 3, 40
"""Readings that a verdict names, at most (the section of the target has all), and lines of a table that is folded."""
KINDS = ("hold", "hold under some readings", "do not hold")
COUNTED = ("hold under every reading", "hold under some of their readings", "do not hold")


def summary(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the paper's claims, first counted, then with their verdicts, and what was asked of each table."""
    claims = [(name, claim) for name, details in stories.items() for claim in details["claims"]]
    checks = [
        (f"[{name}](#{name})", check["check"], _said(check["holds"]))
        for name, details in stories.items()
        for check in details["checks"]
    ]
    parts = [_glance(stories), _claims(claims)] if claims else []
    if checks:
        columns = ["target", "asked of the table", "holds"]
        frame = _once(pd.DataFrame(checks, columns=columns), "target")
        parts.append("## What was asked of the tables\n\n" + markdown(frame))
    return "\n".join(parts)


def _glance(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many claims hold, hold under some of their readings, and do not, for each table of the paper."""
    rows = []
    for name, details in stories.items():
        counts = dict.fromkeys(KINDS, 0)
        for claim in details["claims"]:
            counts[_kind(claim)] += 1
        if details["claims"]:
            rows.append((f"[{name}](#{name})", _place(details["what"]), *counts.values()))
    frame = pd.DataFrame(rows, columns=["target", "in the paper", *KINDS])
    totals = frame[list(KINDS)].sum()
    said = ", ".join(f"{totals[kind]} {words}" for kind, words in zip(KINDS, COUNTED, strict=True))
    return f"Of {totals.sum()} claims, {said}.\n\n{markdown(frame)}"


def _claims(claims: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    rows = [
        (f"[{name}](#{name})", claim["sentence"], f"**{_verdict(claim)}**", _decisive(claim), claim["why"])
        for name, claim in claims
    ]
    frame = pd.DataFrame(rows, columns=["target", "the paper's claim", "verdict", "figure that decides", "why"])
    frame = _once(_once(frame, "why"), "target")
    return f"## The paper's claims\n\n{markdown(frame)}"


def _once(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table in which a cell that repeats the one above it is empty."""
    return frame.assign(**{column: frame[column].where(frame[column] != frame[column].shift(), "")})


def _place(what: str) -> str:
    """Return where the paper has it: what stands in the last brackets of a target's title."""
    found = re.search(r"\(([^()]*)\)$", what)
    return found[1] if found else "–"


def _kind(claim: Mapping[str, Any]) -> str:
    holding = sum(reading["holds"] for reading in claim["readings"])
    return KINDS[0] if holding == len(claim["readings"]) else KINDS[1] if holding else KINDS[2]


def _verdict(claim: Mapping[str, Any]) -> str:
    """Return the verdict; where many readings were tried, how many of them hold and which come first."""
    readings = claim["readings"]
    holding = [reading["name"] for reading in readings if reading["holds"]]
    if not holding or len(holding) == len(readings):
        return str(claim["verdict"])
    more = f" and {len(holding) - NAMED} more" if len(holding) > NAMED else ""
    return f"holds under {len(holding)} of {len(readings)} readings: {'; '.join(holding[:NAMED])}{more}"


def _decisive(claim: Mapping[str, Any]) -> str:
    """Return the figure of the reading that the text suggests first; where it fails, also of the first that holds."""
    readings = claim["readings"]
    if len(readings) == 1:
        return str(readings[0]["figure"])
    holding = next((reading for reading in readings if reading["holds"]), readings[0])
    shown = [readings[0]] if holding is readings[0] else [readings[0], holding]
    return ". ".join(f"{reading['name']}: {reading['figure']}" for reading in shown)


def _readings(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return every reading of a target's claims with its figure; nothing where each claim has one alone."""
    rows = [
        row
        for claim in claims
        if len(claim["readings"]) > 1
        for row in (
            *((claim["sentence"], one["name"], one["figure"], _said(one["holds"])) for one in claim["readings"]),
            *((claim["sentence"], name, "–", "not run") for name in claim["unread"]),
        )
    ]
    if not rows:
        return ""
    frame = _once(pd.DataFrame(rows, columns=["claim", "reading", "figure", "holds"]), "claim")
    return f"Every reading of what the paper claims:\n\n{markdown(frame)}"


def _said(holds: bool) -> str:
    return "yes" if holds else "**no**"


def hours(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how much work the results took in all, those that were timed."""
    timed = {name: sum(run.get("seconds", 0.0) for run in details["runs"]) for name, details in stories.items()}
    untimed = [name for name, seconds in timed.items() if not seconds]
    timed = {name: seconds for name, seconds in timed.items() if seconds}
    if not timed:
        return ""
    longest = max(timed, key=lambda name: timed[name])
    without = f" without {', '.join(untimed)}" if untimed else ""
    return (
        f"The targets of the paper ({len(timed)}{without}) took {sum(timed.values()) / 3600:.1f} core hours in all "
        f"here, `{longest}` most with {timed[longest] / 60:.0f} minutes; stored encoders were not trained again.\n"
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
        _folded(shown),
    ])


def _folded(table: pd.DataFrame) -> str:
    """Return a table, a long one behind a line that opens it."""
    if len(table) <= LONG:
        return markdown(table)
    return f"<details markdown>\n<summary>All {len(table)} lines</summary>\n\n{markdown(table)}\n</details>\n"
