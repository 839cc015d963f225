"""All results of a scale as one page: what was claimed, what holds, and every table and figure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from krepes.errors import InvalidInputError
from krepes.reproduce.base import Target, redraw, retell
from krepes.reproduce.sections import hours, section, summary
from krepes.storage.files import publish

INTRODUCTION = """# Reproduction

What `krepes reproduce` found on real data. Every number is the mean over seeds, ± their standard deviation; figures in
brackets are the paper's. There is one encoder for each data set and loss, trained here without labels on two CPU cores,
far smaller and shorter than the paper's: levels differ, and what is compared stands in the same table. A seed draws the
training rows of a fit, views, landmarks and test rows. The damping is that of lowest loss, without labels. How encoders
are trained was chosen by linear probes on held-out rows of another random draw of the data, and the settings of
`intervention` on a repetition of its own; a draw of a public data set may share rows with another. Test rows chose
nothing, but for what the notes of `encoders`, `faithfulness` and `intervention` own up to.

A claim of the paper is judged under every reading that its text allows: it **holds**, it **holds under** the readings
that are named, or it **does not hold**. All of it is decided by rule from the tables below, none by hand.

To run it again: set `KREPES_DATA` to the folder of the data sets, then `make reproduce`, or one target at a time by the
command over its table. This page is written by `krepes reproduce page`; what to make of it, where it differs from the
paper and why, is told in [findings](findings.md).
"""


def write_page(folder: str | Path, scale: str, path: str | Path, targets: Sequence[Target]) -> Path:
    """Write one page of all results that a folder holds; claims, words and figures are those of the code of today.

    Args:
        folder: Where `krepes.reproduce.reproduce` wrote.
        scale: Whose results.
        path: The page; its figures go to a folder of the same name beside it.
        targets: In the order of the page; those without a result are named as missing.

    Returns:
        The page's path.

    Raises:
        InvalidInputError: If there is no result at all.
    """
    folder, path = Path(folder), Path(path)
    stored = {target.name: folder / f"{target.name}-{scale}.json" for target in targets}
    stories = {name: json.loads(file.read_text()) for name, file in stored.items() if file.is_file()}
    if not stories:
        raise InvalidInputError(f"{folder} holds no result of scale {scale!r}: run `krepes reproduce all` first.")
    pictures = path.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    told = {target.name: retell(target, stories[target.name]) for target in targets if target.name in stories}
    paper = {target.name: told[target.name] for target in targets if target.name in told and not target.beyond}
    sections = [INTRODUCTION, hours(paper), summary(told)]
    missing = [target.name for target in targets if target.name not in told]
    if missing:
        sections.append(f"Not run at this scale: {', '.join(missing)}.\n")
    for target in targets:
        if target.name in told:
            sections.append(_illustrated(target, told[target.name], folder, pictures))
    text = "\n".join(sections)
    return publish(path, lambda temporary: temporary.write_text(text))


def _illustrated(target: Target, details: Mapping[str, Any], folder: Path, pictures: Path) -> str:
    """Return a target's part of the page, its figures copied beside the page."""
    redraw(target, details, folder)
    for picture in details["pictures"]:
        shutil.copyfile(folder / picture, pictures / picture)
    return section(target.name, details, pictures.name)
