"""Feature importance (paper, figure on Adult and Covertype): the Alignment Gap of every column, in every reading.

A reading is how two values agree (equal or not, or by integer codes), whether the weights of a set sum to one, and
whether a category is one column or one of zeros and ones for each of its values. None is shown without its null.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from pandas.api.types import is_numeric_dtype

from krepes.attribution import attribute_stream
from krepes.audit import AlignmentSum, FeatureSpace
from krepes.audit.features import AGREEMENTS, Agreement
from krepes.audit.shuffles import LEVEL, enough_draws
from krepes.figures.style import BLUE, ORANGE, new_figure, spelled, styled
from krepes.reproduce.base import Findings, Target
from krepes.reproduce.claims import Claim, Judge, Reading, p_over_seeds
from krepes.reproduce.trial import READ, Experiment, Trial, side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

K = 5
DATA = ("adult", "covertype")
KEYS = ("data", "setting", "columns", "agreement", "column", "measure")
FOLDED, SINGLE = "as in the table", "one for each category"
GAP, RAW, P, P_RAW, NULL_RAW = "gap", "raw gap", "p of the gap", "p of the raw gap", "shuffled raw gap"
EXCESS = "raw gap above its shuffles"
ORDERS = {RAW: "raw", EXCESS: "raw above its shuffles", GAP: "normalised"}
"""What columns are ordered by, and what a reading calls it."""
MEASURES = {
    "normalised": {"estimate": GAP, "half": "half width of the gap", "p_corrected": P},
    "raw": {"estimate": RAW, "null": NULL_RAW, "p_corrected": P_RAW},
}
SHUFFLES = 4
"""Times as many shuffles as one p that survives correction needs: a mean over seeds lies above the smallest."""
DRAWN = {("ours", "indicator"): BLUE, ("paper", "codes"): ORANGE}
FIRST, AMONG, RARE = 2, 5, 0.01
"""Columns that lead, and that are among the first; and the share of rows below which a category is rare."""
WILDERNESS, SOIL, ELEVATION = "wilderness_area", "soil_type", "elevation"
SHARE = "share of rows"


def run(trial: Trial) -> Findings:
    """Return the gaps of both settings in every reading, with their nulls."""
    rows = [side_by_side(partial(_gaps, trial, trial.experiment(name), name)) for name in trial.only or DATA]
    return Findings(pd.concat(rows, ignore_index=True)[[*KEYS, "value"]])


def _gaps(trial: Trial, made: Experiment, name: str, preset: str | None) -> pd.DataFrame:
    """Return the gaps of one model: all readings of it come from one pass over the test samples."""
    model = trial.fit(made, preset=preset)
    assert made.source.table is not None
    totals, shares = {}, []
    for columns, table in tables_of(made.source.table).items():
        train, test = (table.iloc[rows.numpy()].reset_index(drop=True) for rows in made.rows)
        landmarks = train.iloc[model.landmarks_.numpy()]
        if columns == SINGLE:
            values = train[[column for column in table if column not in made.source.table]].mean()
            shares.append(pd.DataFrame({"column": values.index, "value": values.to_numpy(), "measure": SHARE}))
        for agreement in AGREEMENTS if columns == FOLDED else AGREEMENTS[:1]:
            space = FeatureSpace.of(train, agreement=_checked(agreement))
            draws, x, z = SHUFFLES * enough_draws(len(space.defined)), space.encode(test), space.encode(landmarks)
            total = AlignmentSum(x, z, space.defined, k=K, draws=draws, seed=trial.seed)
            totals[columns, agreement] = (space, total)
    attribute_stream(model, made.test, k=K, visitors=[total for _, total in totals.values()])
    parts = [_rows(total.frame(space), *reading) for reading, (space, total) in totals.items()]
    parts += [part.assign(columns=SINGLE, agreement=AGREEMENTS[0]) for part in shares]
    return pd.concat(parts, ignore_index=True).assign(data=name)


def _checked(agreement: str) -> Agreement:
    return "codes" if agreement == "codes" else "indicator"


def tables_of(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the table as it is, and with one column of zeros and ones for each value of a category."""
    words = [column for column in table if not is_numeric_dtype(table[column])]
    return {FOLDED: table, SINGLE: pd.get_dummies(table, columns=words, dtype=float)}


def _rows(frame: pd.DataFrame, columns: str, agreement: str) -> pd.DataFrame:
    """Return the measures of one reading, columns without a gap left out."""
    known = frame[frame["estimate"].notna()].assign(half=(frame["high"] - frame["low"]) / 2)
    parts = [
        known[known["variant"] == variant][["column", kept]].set_axis(["column", "value"], axis=1).assign(measure=what)
        for variant, measures in MEASURES.items()
        for kept, what in measures.items()
    ]
    return pd.concat(parts).assign(columns=columns, agreement=agreement)


def order_of(table: pd.DataFrame, data: str, setting: str, columns: str, agreement: str, gap: str) -> pd.DataFrame:
    """Return the columns of a reading, largest gap first: ``gap`` and its corrected ``p``, by column."""
    chosen = table[(table["data"] == data) & (table["setting"] == setting) & (table["columns"] == columns)]
    chosen = chosen[chosen["agreement"] == agreement].pivot(index="column", columns="measure", values="mean")
    chosen[EXCESS] = chosen[RAW] - chosen[NULL_RAW]
    p = P if gap == GAP else P_RAW
    return chosen[[gap, p]].set_axis(["gap", "p"], axis=1).sort_values("gap", ascending=False, kind="stable")


def _ordered(table: pd.DataFrame, data: str, setting: str, columns: str, agreement: str, gap: str) -> pd.DataFrame:
    """Return the columns as `order_of` does, their p as one over all seeds."""
    order = order_of(table, data, setting, columns, agreement, gap)
    return order.assign(p=p_over_seeds(order["p"], table))


def _leads(order: pd.DataFrame, wanted: tuple[str, ...]) -> bool:
    """Return whether the wanted columns are the first ones, each beyond its null."""
    first = order.head(FIRST if len(wanted) > 1 else 1)
    leads = all(any(str(found).startswith(name) for found in first.index) for name in wanted)
    return bool(leads and (first["p"] <= LEVEL).all())


def _dwarfs(order: pd.DataFrame, wanted: tuple[str, ...], below: tuple[str, ...]) -> bool:
    """Return whether every wanted column is beyond its null and has a larger gap than each of those ``below``."""
    ours, theirs = (order[[str(column).startswith(names) for column in order.index]] for names in (wanted, below))
    return bool(ours["gap"].min() > theirs["gap"].max() and (ours["p"] <= LEVEL).all())


def _places(order: pd.DataFrame, name: str) -> str:
    """Return the places of a column, or of the columns of its categories, from 1."""
    found = [str(place) for place, column in enumerate(order.index, 1) if str(column).startswith(name)]
    return ", ".join(found[:4])


def _elevation(*reading: str) -> Judge:
    """Return the judge of a reading: is elevation among the first columns, beyond its null?"""

    def judged(table: pd.DataFrame) -> tuple[bool, str]:
        order = _ordered(table, "covertype", *reading)
        place, row = list(order.index).index(ELEVATION) + 1, order.loc[ELEVATION]
        said = f"{row['gap']:.3g} (p = {row['p']:.2g}), at {place} of {len(order)}"
        return bool(place <= AMONG and row["p"] <= LEVEL), said

    return judged


def _rare_soils(table: pd.DataFrame, *, setting: str, gap: str) -> tuple[bool, str]:
    """Return whether soils that few rows have are all below the median column."""
    order = _ordered(table, "covertype", setting, SINGLE, AGREEMENTS[0], gap)
    shares = table[(table["setting"] == setting) & (table["measure"] == SHARE)].set_index("column")["mean"]
    rare = [name for name in order.index if str(name).startswith(SOIL) and shares[name] < RARE]
    largest, middle = float(order["gap"][rare].max()) if rare else float("nan"), float(order["gap"].median())
    said = f"the largest of {len(rare)} below {100 * RARE:g} % of rows {largest:.3g}, the median of all {middle:.3g}"
    return largest < middle, said


def _readings(data: str, wanted: tuple[str, ...], below: tuple[str, ...] = ()) -> tuple[Reading, ...]:
    """Return all readings of who leads, or who is above others; the paper's own comes first."""

    def judge(*reading: str) -> Judge:
        def judged(table: pd.DataFrame) -> tuple[bool, str]:
            order = _ordered(table, data, *reading)
            said = ", ".join(f"{name} {row['gap']:.3g} (p = {row['p']:.2g})" for name, row in order.head(3).iterrows())
            places = ", ".join(f"{name} at {_places(order, name) or 'no place'}" for name in (*wanted, *below))
            holds = _dwarfs(order, wanted, below) if below else _leads(order, wanted)
            return holds, f"{said}; {places} of {len(order)}"

        return judged

    return tuple(Reading(_words(*reading), judge(*reading)) for reading in _ways())


def _ways() -> list[tuple[str, str, str, str]]:
    """Return setting, columns, agreement and gap of every reading, the paper's own first."""
    ways = ((SINGLE, "indicator"), (FOLDED, "codes"), (FOLDED, "indicator"))
    return [(setting, *way, gap) for setting in READ for way in ways for gap in ORDERS]


def _words(setting: str, columns: str, agreement: str, gap: str) -> str:
    """Return what the page calls a reading."""
    words = [setting, "categories by codes" if agreement == "codes" else "categories equal or not"]
    return ", ".join([*words, *(["single columns"] if columns == SINGLE else []), ORDERS[gap]])


def judge(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return which column is first in our own reading, and how many pass their null."""
    verdicts = []
    for name in table["data"].unique():
        order = _ordered(table, name, "ours", FOLDED, "indicator", GAP)
        passing = int((order["p"] <= LEVEL).sum())
        said = f"{name}: the first column of our reading, {order.index[0]}, passes its null"
        verdicts.append((f"{said} ({passing} of {len(order)} do)", bool(order["p"].iloc[0] <= LEVEL)))
    return verdicts


@styled
def draw(table: pd.DataFrame) -> Figure:
    """Draw the normalised gaps of our reading and of the paper's, a row of panels a data set, with 95 % intervals."""
    keys, folded = list(KEYS[:-1]), table[table["columns"] == FOLDED]
    half = folded[folded["measure"] == MEASURES["normalised"]["half"]][[*keys, "mean"]]
    plain = folded[folded["measure"] == GAP].merge(half.rename(columns={"mean": "half"}), on=keys)
    sizes = plain.groupby("data", sort=False)["column"].nunique()
    figure = new_figure(1.2 + 0.2 * sum(sizes))
    axes = figure.subplots(len(sizes), len(DRAWN), height_ratios=sizes.tolist(), squeeze=False)
    for line, name in zip(axes, sizes.index, strict=True):
        for ax, ((setting, agreement), colour) in zip(line, DRAWN.items(), strict=True):
            of = plain[(plain["data"] == name) & (plain["setting"] == setting) & (plain["agreement"] == agreement)]
            rows = of.sort_values("mean")
            ax.barh(rows["column"], rows["mean"], xerr=rows["half"], color=colour, ecolor="black", capsize=2)
            ax.tick_params(axis="y", labelsize=7)
            ax.axvline(0, color="black", linewidth=0.6)
            ax.set_title(f"{spelled(name)}, {setting}, {agreement}", loc="left", fontsize=9)
    figure.supxlabel("normalised Alignment Gap, 95 % interval over test samples", fontsize=9)
    return figure


ALIGNMENT = Target(
    name="alignment",
    what="Feature Alignment Gap on Adult and Covertype (figure on feature importance)",
    data=DATA,
    keys=KEYS,
    across="measure",
    run=run,
    note="K = 5 as in the paper, which shows bars without figures. `setting` is ours or the paper's preset; "
    "`agreement` says when two categories agree: if equal (indicator), or the nearer their integer codes, as in the "
    "paper's formula. The raw gap is the paper's and positive almost by construction, for the top landmarks also have "
    "the larger weights: it stands beside its mean over shuffles of the column among the landmarks. Every p is "
    "against these shuffles, corrected for the number of columns of its reading; a column of two values has room for a "
    "larger gap than one of many. Categories are columns of the table, and one by one, as the paper's inputs are; "
    "`share of rows` is how many training rows have a category.",
    draw=draw,
    judge=judge,
    studies=True,
    claims=(
        Claim(
            "Adult: sex and relationship lead",
            _readings("adult", ("sex", "relationship")),
            "An order of gaps compares columns of different room: two values can agree by chance in half of the cases, "
            "and codes make distant categories of a long column agree in part.",
            data="adult",
        ),
        Claim(
            "Adult: sex and relationship are above education and occupation",
            _readings("adult", ("sex", "relationship"), below=("education", "occupation")),
            "The text says that they dwarf both. A gap depends on the number of values of a column, which differs "
            "most between these: two for sex, six for relationship, fourteen or more for the others.",
            data="adult",
        ),
        Claim(
            "Covertype: a wilderness area leads",
            _readings("covertype", (WILDERNESS,)),
            "Four areas one by one can each lead, and rare soils are near zero because almost all rows agree on not "
            "having them; folded, the forty soils together are one column.",
            data="covertype",
        ),
        Claim(
            f"Covertype: elevation is among the first {AMONG} columns",
            tuple(Reading(_words(*way), _elevation(*way), needs=("column", ELEVATION)) for way in _ways()),
            "The text names it beside the wilderness areas; as a number it agrees in part with every landmark, which "
            "leaves less room for a gap than a category has.",
            data="covertype",
        ),
        Claim(
            "Covertype: rare soils are suppressed",
            tuple(
                Reading(
                    f"{setting}, {ORDERS[gap]}",
                    partial(_rare_soils, setting=setting, gap=gap),
                    needs=("measure", SHARE),
                )
                for setting in READ
                for gap in ORDERS
            ),
            "Almost all rows agree on not having a rare soil, whatever the model: its gap is small by construction.",
            data="covertype",
        ),
    ),
)
