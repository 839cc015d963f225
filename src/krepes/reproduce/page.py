"""All results of a scale as one page: what was claimed, what holds, and every table and figure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from krepes.errors import InvalidInputError
from krepes.files import publish
from krepes.reproduce.tables import markdown, wide

INTRODUCTION = """# Reproduction

What `krepes reproduce` found on real data. Every number is the mean over seeds of rows, weights, views and landmarks, ±
their standard deviation; figures in brackets are the paper's. Encoders are trained here without labels, on two CPU
cores, far smaller and shorter than the paper's: levels differ, and what is compared stands in the same table.
The damping is that of lowest loss, without labels. How encoders are trained was chosen by linear probes on held-out
rows of another random draw of the data, and the settings of `intervention` on a repetition of its own; the test rows of
a result chose nothing, though a draw of a public data set may share rows with another.

To run it again: set `KREPES_DATA` to the folder of the data sets, then `make reproduce`, or one target at a time by the
command over its table. This page is written by `krepes reproduce page`.
"""


def write_page(folder: str | Path, scale: str, path: str | Path, order: Sequence[str]) -> Path:
    """Write one page of all results that a folder holds.

    Args:
        folder: Where `krepes.reproduce.reproduce` wrote.
        scale: Whose results.
        path: The page; its figures go to a folder of the same name beside it.
        order: Names of targets, in the order of the page; those without a result are named as missing.

    Returns:
        The page's path.

    Raises:
        InvalidInputError: If there is no result at all.
    """
    folder, path = Path(folder), Path(path)
    stored = {name: folder / f"{name}-{scale}.json" for name in order}
    stories = {name: json.loads(file.read_text()) for name, file in stored.items() if file.is_file()}
    if not stories:
        raise InvalidInputError(f"{folder} holds no result of scale {scale!r}: run `krepes reproduce all` first.")
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    sections = [INTRODUCTION, summary(stories)]
    missing = [name for name in order if name not in stories]
    if missing:
        sections.append(f"Not run at this scale: {', '.join(missing)}.\n")
    for name, story in stories.items():
        for picture in story["pictures"]:
            shutil.copyfile(folder / picture, pictures / picture)
        sections.append(section(name, story, pictures.name))
    text = "\n".join(sections)
    return publish(path, lambda temporary: temporary.write_text(text))


def summary(stories: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of claims, those that do not hold included."""
    rows = [
        (f"[{name}](#{name})", claim["claim"], "yes" if claim["holds"] else "**no**")
        for name, story in stories.items()
        for claim in story["claims"]
    ]
    return "## Claims\n\n" + markdown(pd.DataFrame(rows, columns=["target", "claim", "holds"]))


def section(name: str, story: Mapping[str, Any], pictures: str) -> str:
    """Return the part of a page about one target.

    Args:
        name: Of the target.
        story: What its JSON file holds.
        pictures: Folder of the figures, relative to the page.

    Returns:
        Markdown.
    """
    table = pd.DataFrame(story["table"])
    shown = wide(table, story["keys"], story["across"])
    scale = story["scale"]
    command = f"`krepes reproduce {name} --scale {scale['name']}` (m = {scale['m']}, at most {scale['rows']:,} rows)"
    return "\n".join([
        f"## {name}\n",
        f"{story['what']}. {command}, commit {story['commit']}, {scale['seeds']} seeds.\n",
        story["note"] + "\n",
        *(f"![{story['what']}]({pictures}/{picture})\n" for picture in story["pictures"]),
        markdown(shown),
    ])
