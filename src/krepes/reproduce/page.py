"""All results of a scale as one page: what was claimed, what holds, and every table and figure."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from krepes.errors import InvalidInputError
from krepes.reproduce import measured
from krepes.reproduce.base import Target, redraw, retell
from krepes.reproduce.measured import Measured
from krepes.reproduce.sections import hours, section, summary
from krepes.storage.files import publish

INTRODUCTION = """# Reproduction

Every claim of the paper, judged by rule from tables made on real data under every reading that its text allows: it
**holds**, it **holds under** the readings that are named (the first three; the section has all), or it **does not
hold**. The figure that decides is that of the paper's own settings first. What to make of it, where it differs from the
paper and why, is told in [findings](findings.md).
"""
METHOD = """## How it was measured

Every number is the mean over seeds, ± their standard deviation (the line over a table says how many seeds); figures in
brackets are the paper's. There is one encoder for each data set and loss, trained here without labels on two CPU cores,
far smaller and shorter than the paper's: levels differ, and what is compared stands in the same table. A seed draws the
training rows of a fit, views, landmarks and test rows. The damping is that of lowest loss, without labels. How encoders
are trained was chosen by linear probes on held-out rows of another random draw of the data, and the settings of
`intervention` on a repetition of its own; a draw of a public data set may share rows with another. Test rows chose
nothing, but for what the notes of `encoders`, `faithfulness` and `intervention` own up to: above all, the augmentation
of the stored encoders of CIFAR-10 was chosen in sight of the test rows.

Rows of the setting `paper` are by the paper's preset but for sizes, for a kernel that is sketched where that is
cheaper, and for the views, which are those that the encoder was trained with. Models of convolutional encoders are
fitted on 2,000 pictures. Not run, for the data or the hours are not at hand: what the paper shows of ImageNet (its row
of table 3, the pictures of its first figure; CIFAR-10 and MNIST stand in its place), its runs on a million rows and on
200,000 of Adult.

To run it again: set `KREPES_DATA` to the folder of the data sets, then `make reproduce`, or one target at a time by the
command over its table. This page is written by `krepes reproduce page`, none of it by hand.
"""


def write_page(folder: str | Path, scale: str, path: str | Path, targets: Sequence[Target]) -> Path:
    """Write one page of all results; claims, words and figures are those of the code of today.

    What was measured is kept beside the page: a target that the folder has no result of stays as it was kept.

    Args:
        folder: Where `krepes.reproduce.reproduce` wrote.
        scale: Whose results.
        path: The page; figures and results go to a folder of the same name beside it.
        targets: In the order of the page; those without a result are named as missing.

    Returns:
        The page's path.

    Raises:
        InvalidInputError: If there is no result at all.
    """
    folder, path = Path(folder), Path(path)
    beside = path.with_suffix("")
    newest = {target.name: _newest(target.name, scale, folder, beside) for target in targets}
    found = {name: result for name, result in newest.items() if result is not None}
    if not found:
        raise InvalidInputError(f"{folder} holds no result of scale {scale!r}: run `krepes reproduce all` first.")
    beside.mkdir(parents=True, exist_ok=True)
    for target in targets:
        if target.name in found:
            _keep(target, found[target.name], folder, beside)
    text = told(found, targets, beside.name)
    return publish(path, lambda temporary: temporary.write_text(text))


def told(found: Mapping[str, Measured], targets: Sequence[Target], pictures: str) -> str:
    """Return the page as text: a function of what was measured and of the words of the targets, and of nothing else.

    Args:
        found: Results by the name of their target.
        targets: In the order of the page.
        pictures: Folder of the figures, relative to the page.

    Returns:
        Markdown.
    """
    stories = {target.name: retell(target, found[target.name]) for target in targets if target.name in found}
    paper = {target.name: stories[target.name] for target in targets if target.name in found and not target.beyond}
    sections = [INTRODUCTION, summary(stories), METHOD, hours(paper)]
    missing = [target.name for target in targets if target.name not in found]
    if missing:
        sections.append(f"Not run at this scale: {', '.join(missing)}.\n")
    return "\n".join([*sections, *(section(name, story, pictures) for name, story in stories.items())])


def _newest(name: str, scale: str, folder: Path, beside: Path) -> Measured | None:
    """Return the result of a target: of the folder, with studies that only the page has."""
    kept, new = (measured.read(measured.result_path(place, name, scale)) for place in (beside, folder))
    return kept if new is None else measured.together(kept, new)


def _keep(target: Target, result: Measured, folder: Path, beside: Path) -> None:
    """Write a result and its figures beside the page."""
    measured.write(result, measured.result_path(beside, target.name, result["scale"]))
    redraw(target, result, beside)
    for picture in result["pictures"]:
        if (folder / picture).is_file() and folder != beside:
            shutil.copyfile(folder / picture, beside / picture)
