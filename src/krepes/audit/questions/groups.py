"""Groups: is a sample anchored to landmarks of its own group, and which groups does the encoder conflate?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.grouping import groupings
from krepes.audit.groups import CrossGroup, cross_group
from krepes.audit.labels import shared_codes
from krepes.audit.shuffles import LEVEL
from krepes.audit.study import Study
from krepes.audit.wording import METHODS, number, percent, quoted, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 50
"""Groups of a column that are crossed with one another: p of a matrix of 390 by 390 would take gigabytes."""
LEFT_OUT = "left out"


def measure(study: Study) -> Exhibit:
    """Return the attribution between groups, for every way of grouping and every ranking."""
    frames, figures = [], {}
    for name, (train, test) in groupings(study).items():
        of_landmarks = study.of_landmarks(train)
        size = len(shared_codes(landmarks=of_landmarks, test=test)[0])
        if size > MOST:
            frames.append(_left_out(name, size, study.by_flags))
            continue
        matrices = cross_group(study.rankings, of_landmarks, test, seed=study.seed)
        frames += [matrix.to_frame().assign(grouping=name, method=method) for method, matrix in matrices.items()]
        figures[f"Grouped by {text(name)}"] = partial(_draw, matrices["influence"])
    table = pd.concat(frames, ignore_index=True)
    first = ["grouping", "method", "group", "landmark_group"]
    return Exhibit(table[[*first, *(column for column in table if column not in first)]], figures)


def _left_out(name: str, size: int, by_flags: bool) -> pd.DataFrame:
    """Return the row of a way of grouping that has too many groups to cross them."""
    told = "name it by --group" if by_flags else "pass it in groups="
    note = f"{size:,} groups, of which at most {MOST} are crossed: make a column of fewer values and {told}"
    return pd.DataFrame({"grouping": [name], "method": LEFT_OUT, "group": "", "landmark_group": "", "note": note})


def in_group(matrix: pd.DataFrame) -> tuple[float, float, int]:
    """Return the share of samples anchored in their own group, what random landmarks give, and the samples."""
    own = matrix[matrix["group"] == matrix["landmark_group"]]
    sizes = matrix.groupby("group", sort=False)["count"].sum()
    total = int(sizes.sum())
    expected = float((own["expected"].to_numpy() * sizes.loc[own["group"]].to_numpy()).sum()) / total
    return float(own["count"].sum()) / total, expected, total


def _p_own(matrix: pd.DataFrame) -> float:
    """Return the p of the share anchored in the own group."""
    return float(matrix["p_own"].iloc[0])


def strongest_lean(matrix: pd.DataFrame) -> pd.Series | None:
    """Return the pair of different groups of the largest lift that is beyond its null, if there is any."""
    beyond = (matrix["p_corrected"] <= LEVEL) & (matrix["share"] > matrix["expected"])
    other = matrix[(matrix["group"] != matrix["landmark_group"]) & beyond]
    other = other[np.isfinite(other["lift"].astype(float))]
    return None if other.empty else other.iloc[int(other["lift"].argmax())]


def ours(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of influence for each way of grouping."""
    kept = table[table["method"] == "influence"]
    return {str(name): part.reset_index(drop=True) for name, part in kept.groupby("grouping", sort=False)}


def sentence(table: pd.DataFrame) -> str:
    """Return, for every way of grouping, the share anchored in the own group and who leans on whom; else why not."""
    return " ".join([*(_sentence(name, matrix) for name, matrix in ours(table).items()), *_reasons(table)])


def _reasons(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each way of grouping that was left out."""
    left = table[table["method"] == LEFT_OUT]
    return [f"{text(row['grouping'])} is left out: it has {row['note']}." for _, row in left.iterrows()]


def _sentence(name: str, matrix: pd.DataFrame) -> str:
    share, expected, _ = in_group(matrix)
    start = (
        f"By {text(name)}, {percent(share)} of the samples are anchored to a landmark of the same {text(name)} "
        f"(random: {percent(expected)}; shuffled landmarks: p = {number(_p_own(matrix), 2)})"
    )
    pair = strongest_lean(matrix)
    if pair is None:
        return f"{start}; none leans on another more than shuffled landmarks would have it."
    samples = int(matrix[matrix["group"] == pair["group"]]["count"].sum())
    return (
        f"{start}; {quoted(pair['group'])} leans on {quoted(pair['landmark_group'])} {pair['lift']:.1f} times as often "
        f"as chance would have it ({int(pair['count'])} of {samples}; shuffled landmarks: p = "
        f"{number(pair['p_corrected'], 2)}, corrected)."
    )


def numbers(table: pd.DataFrame) -> dict[str, float]:
    """Return, for every way of grouping, the share of samples anchored in their own group."""
    return {f"anchored in the own {name}": in_group(matrix)[0] for name, matrix in ours(table).items()}


def headline(table: pd.DataFrame) -> tuple[str, str] | None:
    """Return who leans on whom in the grouping that the encoder separates best, or else how well it does."""
    found = ours(table)
    if not found:
        return None
    name = max(found, key=lambda name: in_group(found[name])[0] - in_group(found[name])[1])
    share, expected, _ = in_group(found[name])
    pair = strongest_lean(found[name])
    if pair is None:
        return percent(share), f"anchored in their own {text(name, 18)}; random {percent(expected)}"
    leans = f"{text(pair['group'], 12)} → {text(pair['landmark_group'], 12)}"
    return leans, f"one {text(name, 18)} leans on another, ×{pair['lift']:.1f} of chance"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if some group leans on another beyond the null."""
    return "bad" if any(strongest_lean(matrix) is not None for matrix in ours(table).values()) else "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return own-group anchoring beside the baselines, then all pairs of groups, for every way of grouping."""
    found: list[View] = []
    for name, part in table[table["method"] != LEFT_OUT].groupby("grouping", sort=False):
        found += [_own(str(name), part), _pairs(str(name), part[part["method"] == "influence"])]
    left = table[table["method"] == LEFT_OUT]
    if len(left):
        rows = tuple((text(row["grouping"]), row["note"]) for _, row in left.iterrows())
        found.append(View("Columns that were left out", ("column", "why"), rows))
    return tuple(found)


def _own(name: str, part: pd.DataFrame) -> View:
    matrices = {str(method): matrix for method, matrix in part.groupby("method", sort=False)}
    base = matrices["influence"]
    shares = {method: in_group(matrix) for method, matrix in matrices.items()}
    totals = [Estimate(share, unit="share") for share, _, _ in shares.values()]
    chance = Estimate(shares["influence"][1], unit="share")
    rows: list[tuple[object, ...]] = [("all", shares["influence"][2], *totals, chance, number(_p_own(base), 2))]
    for group in dict.fromkeys(base["group"]):
        cells = [m[(m["group"] == group) & (m["landmark_group"] == group)].iloc[0] for m in matrices.values()]
        size = int(base[base["group"] == group]["count"].sum())
        own = [Estimate(float(cell["share"]), unit="share") for cell in cells]
        p = float(cells[0]["p_corrected"])
        said = "–" if np.isnan(p) else number(p, 2)
        rows.append((text(group), size, *own, Estimate(float(cells[0]["expected"]), unit="share"), said))
    caption = f"Samples anchored in their own {text(name)}, by what ranks the landmarks; chance: share of the landmarks"
    heads = (text(name), "samples", *(METHODS[method] for method in matrices), "chance", "p of influence")
    return View(caption, heads, tuple(rows))


def _pairs(name: str, matrix: pd.DataFrame) -> View:
    rows = tuple(
        (
            text(row["group"]),
            text(row["landmark_group"]),
            int(row["count"]),
            Estimate(float(row["share"]), float(row["low"]), float(row["high"]), "share"),
            _null(row),
            "–" if pd.isna(row["p_corrected"]) else number(float(row["p_corrected"]), 2),
            "–" if pd.isna(row["lift"]) else f"×{row['lift']:.2f}",
            row["note"],
        )
        for _, row in matrix.iterrows()
    )
    null = ("shuffled [5 %, 95 %]", "p (Holm)")
    heads = ("group of the sample", "group of its top landmark", "samples", "share", *null, "lift", "note")
    return View(f"All pairs of {text(name)}, by influence score", heads, rows, folded=True)


def _null(row: pd.Series) -> Estimate:
    """Return the share that shuffles give, with their band unless the group has no sample."""
    low, high = (None if pd.isna(row[key]) else float(row[key]) for key in ("null_low", "null_high"))
    return Estimate(float(row["expected"]), low, high, "share")


def _draw(found: CrossGroup) -> Figure:
    from krepes.figures import cross_group_heatmap

    return cross_group_heatmap(found)


def plain(table: pd.DataFrame) -> str:
    """Return who leans on whom in the grouping that is separated best, or how far it is separated."""
    found = ours(table)
    if not found:
        return sentence(table)
    name = max(found, key=lambda name: (strongest_lean(found[name]) is not None, _excess(found[name])))
    share, expected, _ = in_group(found[name])
    pair = strongest_lean(found[name])
    if pair is not None:
        return (
            f"Samples of {quoted(pair['group'])} are tied first to {quoted(pair['landmark_group'])} "
            f"{pair['lift']:.1f} times as often as chance would have it."
        )
    beyond = "" if _is_apart(found[name]) else ", which chance explains"
    return (
        f"{percent(share)} of the samples are tied first to a landmark of their own {text(name)}; chance gives "
        f"{percent(expected)}{beyond}."
    )


def strength(table: pd.DataFrame) -> float:
    """Return how far above chance samples are anchored in their own group."""
    return max((_excess(matrix) for matrix in ours(table).values()), default=-0.9)


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return for every way of grouping whether groups are kept apart, and for every pair whether one leans."""
    found = []
    for name, matrix in ours(table).items():
        share = in_group(matrix)[0]
        found.append(
            Finding(f"samples keep to their own {text(name)}", Estimate(share, unit="share"), _is_apart(matrix))
        )
        for _, row in matrix[matrix["group"] != matrix["landmark_group"]].iterrows():
            leans = bool(row["p_corrected"] <= LEVEL and row["share"] > row["expected"])
            estimate = Estimate(float(row["share"]), float(row["low"]), float(row["high"]), "share")
            pair = f"{quoted(row['group'])} leans on {quoted(row['landmark_group'])} ({text(name)})"
            found.append(Finding(pair, estimate, leans))
    return tuple(found)


def _excess(matrix: pd.DataFrame) -> float:
    share, expected, _ = in_group(matrix)
    return share - expected


def _is_apart(matrix: pd.DataFrame) -> bool:
    """Return whether samples are anchored in their own group beyond what shuffled landmarks give."""
    return _p_own(matrix) <= LEVEL and _excess(matrix) > 0


GROUPS = Audit(
    name="groups",
    title="Groups: who anchors whom",
    asks="which groups anchor one another",
    needs=("groups", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    strength=strength,
    findings=findings,
    headline=headline,
    numbers=numbers,
    caveat="Anchoring in one's own group shows that the encoder separates the groups; whether that is wanted, and "
    "whether it harms anyone, is not a question the latent space answers. Among more than 22 groups no single pair can "
    "be told from chance.",
)
