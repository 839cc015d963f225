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
from krepes.report.sections.guard import explains_a_step
from krepes.report.wording import METHODS, NONE, cell, heads, missing, percent, text

KEY, TITLE = "groups", "Groups: who anchors whom"


@explains_a_step(KEY, TITLE)
def groups(evidence: Evidence) -> Section:
    """Return the section on cross-group attribution, for every way of grouping."""
    if not evidence.groups:
        return missing(KEY, TITLE, "which groups anchor one another", "groups={name: (training, test)}")
    if not evidence.rankings:
        return missing(KEY, TITLE, "which groups anchor one another", "stream=, the training data,")
    blocks: list[Block] = []
    found = {}
    for name, (train, test) in evidence.groups.items():
        matrices = cross_group(evidence.rankings, evidence.of_landmarks(train), test)
        found[name] = matrices["influence"]
        alt = f"Heat map of {text(name)}: group of the sample against group of its top landmark; numbers below."
        picture = drawn(cross_group_heatmap(found[name]), alt, f"Grouped by {text(name)}")
        blocks += [picture, _own_table(name, matrices), _pairs_table(name, found[name])]
    return Section(
        KEY,
        TITLE,
        " ".join(_sentence(name, matrix) for name, matrix in found.items()),
        "Anchoring in one's own group shows that the encoder separates the groups; whether that is wanted, and whether "
        "it harms anyone, is not a question the latent space answers.",
        tuple(blocks),
        _headline(found),
    )


def _in_group(found: CrossGroup) -> tuple[float, float]:
    """Return the share of all samples whose top landmark is of their group, and what random landmarks give."""
    sizes = found.counts.sum(1)
    return float(np.trace(found.counts) / sizes.sum()), float(found.expected @ sizes / sizes.sum())


def _lean(found: CrossGroup) -> tuple[int, int] | None:
    """Return the two different groups of the largest lift that is surely above one, if there is any."""
    sure = (found.low > found.expected) & ~np.eye(len(found.groups), dtype=bool)
    lift = np.where(sure, np.nan_to_num(found.lift, nan=-np.inf), -np.inf)
    g, h = np.unravel_index(int(lift.argmax()), lift.shape)
    return (int(g), int(h)) if np.isfinite(lift[g, h]) else None


def _sentence(name: str, found: CrossGroup) -> str:
    share, expected = _in_group(found)
    start = (
        f"By {text(name)}, {percent(share)} of the samples are anchored to a landmark of the same {text(name)} "
        f"(random: {percent(expected)})"
    )
    if (pair := _lean(found)) is None:
        return f"{start}; none leans on another more than chance would have it."
    g, h = pair
    return (
        f"{start}; “{text(found.groups[g])}” leans on “{text(found.groups[h])}” {found.lift[g, h]:.1f} times as often "
        f"as chance would have it ({int(found.counts[g, h])} of {int(found.counts[g].sum())})."
    )


def _headline(found: Mapping[str, CrossGroup]) -> Headline:
    """Return who leans on whom in the grouping that the encoder separates best, or else how well it does."""
    name = max(found, key=lambda name: _in_group(found[name])[0] - _in_group(found[name])[1])
    share, expected = _in_group(found[name])
    if (pair := _lean(found[name])) is None:
        return Headline(percent(share), f"anchored in their own {text(name, 18)}; random {percent(expected)}")
    g, h = (text(found[name].groups[i], 12) for i in pair)
    return Headline(f"{g} → {h}", f"one {text(name, 18)} leans on another, ×{found[name].lift[pair]:.1f} of chance")


def _own_table(name: str, found: Mapping[str, CrossGroup]) -> Table:
    """Return the shares of own-group anchoring, one row a group, one column a method."""
    ours = found["influence"]
    totals = [*(_in_group(matrix)[0] for matrix in found.values()), _in_group(ours)[1]]
    rows = [(Cell("all"), cell(int(ours.counts.sum())), *(Cell(percent(share), share) for share in totals))]
    for g, group in enumerate(ours.groups):
        shares = [*(float(matrix.shares[g, g]) for matrix in found.values()), float(ours.expected[g])]
        cells = [NONE if np.isnan(share) else Cell(percent(share), share) for share in shares]
        rows.append((Cell(text(group)), cell(int(ours.counts[g].sum())), *cells))
    caption = f"Samples anchored in their own {text(name)}, by what ranks the landmarks; last: share of the landmarks"
    methods = [METHODS[method] for method in found]
    return Table(caption, heads(text(name), "samples", *methods, "chance"), tuple(rows))


def _pairs_table(name: str, found: CrossGroup) -> Table:
    """Return counts, shares and lifts of all pairs of groups."""
    pairs = tuple(_pair(row) for row in found.to_frame().to_dict("records"))
    columns = heads("group of the sample", "group of its top landmark", "samples", "share", "lift", "note")
    return Table(f"All pairs of {text(name)}, by influence score", columns, pairs, folded=True)


def _pair(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    """Return the cells of one pair of groups."""
    share, lift = float(row["share"]), float(row["lift"])
    ends = f"{percent(share)} [{percent(row['low'])}, {percent(row['high'])}]"
    return (
        *(cell(row[name]) for name in ("group", "landmark_group", "count")),
        NONE if np.isnan(share) else Cell(ends, share),
        NONE if np.isnan(lift) else Cell(f"×{lift:.2f}", lift),
        Cell(row["note"]),
    )
