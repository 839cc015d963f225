"""Groups: is a sample anchored to landmarks of its own group, and which groups does the encoder conflate?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from krepes.audit import CrossGroup, cross_group
from krepes.figures import cross_group_heatmap
from krepes.report.content import Block, Cell, Headline, Section, Table
from krepes.report.evidence import Evidence
from krepes.report.pictures import drawn
from krepes.report.wording import cell, heads, method_cell, missing, percent, text

KEY, TITLE = "groups", "Groups: who anchors whom"


def groups(evidence: Evidence) -> Section:
    """Return the section on cross-group attribution, for every way of grouping."""
    if not evidence.groups:
        return missing(KEY, TITLE, "which groups anchor one another", "groups={name: (training, test)}")
    if not evidence.rankings:
        return missing(KEY, TITLE, "which groups anchor one another", "stream=, the training data,")
    blocks: list[Block] = []
    sentences, lifts = [], {}
    for name, (train, test) in evidence.groups.items():
        found = cross_group(evidence.rankings, evidence.of_landmarks(train), test)
        ours = found["influence"]
        lifts[name] = _in_group(ours)
        sentences.append(_sentence(name, ours))
        alt = f"Heat map of {text(name)}: group of the sample against group of its top landmark; numbers below."
        blocks += [drawn(cross_group_heatmap(ours), alt, f"Grouped by {text(name)}"), *_tables(name, found)]
    strongest = max(lifts, key=lambda name: lifts[name][0] - lifts[name][1])
    share, expected = lifts[strongest]
    return Section(
        KEY,
        TITLE,
        " ".join(sentences),
        "Anchoring in one's own group shows that the encoder separates the groups; whether that is wanted, and whether "
        "it harms anyone, is not a question the latent space answers.",
        tuple(blocks),
        Headline(percent(share), f"anchored in their own {text(strongest, 18)}; random {percent(expected)}"),
    )


def _in_group(found: CrossGroup) -> tuple[float, float]:
    """Return the share of all samples whose top landmark is of their group, and what random landmarks give."""
    sizes = found.counts.sum(1)
    return float(np.trace(found.counts) / sizes.sum()), float(found.expected @ sizes / sizes.sum())


def _sentence(name: str, found: CrossGroup) -> str:
    share, expected = _in_group(found)
    start = (
        f"By {text(name)}, {percent(share)} of the samples are anchored to a landmark of their own group "
        f"(random: {percent(expected)})"
    )
    off = np.where(np.eye(len(found.groups), dtype=bool), -np.inf, np.nan_to_num(found.lift, nan=-np.inf))
    off = np.where(found.low > found.expected, off, -np.inf)
    if not np.isfinite(off).any():
        return f"{start}; no group leans on another more than chance would have it."
    g, h = np.unravel_index(int(off.argmax()), off.shape)
    return (
        f"{start}; {text(found.groups[g])} leans on {text(found.groups[h])} {off[g, h]:.1f} times as "
        f"often as chance would have it ({int(found.counts[g, h])} of {int(found.counts[g].sum())})."
    )


def _tables(name: str, found: dict[str, CrossGroup]) -> list[Block]:
    """Return the shares of own-group anchoring by method, and all counts and lifts of ours."""
    ours = found["influence"]
    rows = []
    for method, matrix in found.items():
        own = [_own(matrix, g) for g in range(len(matrix.groups))]
        share, _ = _in_group(matrix)
        rows.append((method_cell(method), Cell(percent(share), share), *own))
    chance = [Cell(percent(float(p)), float(p), "muted") for p in ours.expected]
    everyone = Cell(percent(_in_group(ours)[1]), _in_group(ours)[1], "muted")
    rows.append((Cell("share of the landmarks (chance)", None, "muted"), everyone, *chance))
    own_caption = f"Samples anchored in their own {text(name)}, by what ranks the landmarks"
    pairs = tuple(_pair(row) for row in ours.to_frame().to_dict("records"))
    columns = heads("group of the sample", "group of its top landmark", "samples", "share", "lift", "note")
    return [
        Table(own_caption, heads("ranked by", "all", *(text(g) for g in ours.groups)), tuple(rows)),
        Table(f"All pairs of {text(name)}, by influence score", columns, pairs, folded=True),
    ]


def _pair(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    """Return the cells of one pair of groups."""
    share, lift = float(row["share"]), float(row["lift"])
    ends = f"{percent(share)} [{percent(row['low'])}, {percent(row['high'])}]"
    return (
        *(cell(row[name]) for name in ("group", "landmark_group", "count")),
        Cell("–", None, "muted") if np.isnan(share) else Cell(ends, share),
        Cell("–", None, "muted") if np.isnan(lift) else Cell(f"×{lift:.2f}", lift),
        Cell(row["note"]),
    )


def _own(matrix: CrossGroup, g: int) -> Cell:
    share = float(matrix.shares[g, g])
    return Cell("–", None, "muted") if np.isnan(share) else Cell(percent(share), share)
