"""Proxies: a sensitive column was hidden from the encoder; what still gives it away?

Three answers, each against a permutation null: a linear probe finds the column in the embeddings; samples are anchored
to landmarks of their own kind; and the columns that the encoder does see carry it. Where landmarks take part, they are
what is shuffled: all samples share them, so what a few have in common by chance shows in every sample.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from krepes.attribution import attributions
from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Unit, Verdict, View
from krepes.audit.features import agreement
from krepes.audit.grouping import groupings
from krepes.audit.groups import anchoring_test
from krepes.audit.labels import shared_codes
from krepes.audit.permutation import PermutationTest, agreement_test, carrier_test, holm
from krepes.audit.probes import LinearProbe
from krepes.audit.rankings import first
from krepes.audit.shuffles import LEVEL, ShuffledGaps, enough_draws
from krepes.audit.study import Pair, Study
from krepes.audit.wording import METHODS, listing, number, percent, quoted, signed, text
from krepes.budget import Budget
from krepes.views.source import RowsOf, all_of, evenly_spaced

DRAWS, K, PROBE_ROWS = 999, 10, 5000
PAIRED = 1000
"""Test samples that are compared with every landmark, column by column."""
PROBE, ANCHORED, CARRIER, MAJORITY = "probe", "anchored", "carrier", "majority"
COLUMNS = ["hidden", "measure", "by", "estimate", "null", "null_high", "p", "p_corrected", "n"]
ENCODER, SURROGATE, INPUT = "encoder", "surrogate", "input"


def measure(study: Study) -> Exhibit:
    """Return every way in which each hidden column shows, with its null."""
    rows = [row for name, pair in groupings(study).items() if name in study.hidden for row in _of(study, name, pair)]
    return Exhibit(pd.DataFrame(rows, columns=COLUMNS))


def _of(study: Study, name: str, pair: Pair) -> list[tuple[object, ...]]:
    names, (train, test) = shared_codes(training=pair[0], test=pair[1])
    generator = torch.Generator().manual_seed(study.seed)
    tests = {(PROBE, by): _probe(X, train, test, study, generator) for by, X in _inputs(study).items()}
    of_landmark = train[study.model.landmarks_]
    for method, top in study.rankings.items():
        tests[ANCHORED, method] = anchoring_test(top[:, 0].cpu(), of_landmark, test, draws=DRAWS, seed=study.seed)
    rows = [_row(name, kind, by, found, found.p, study.t) for (kind, by), found in tests.items()]
    most = float(test.bincount().max()) / study.t
    rows.append((name, MAJORITY, "", most, np.nan, np.nan, np.nan, np.nan, study.t))
    return rows + _carriers(study, name, test, of_landmark, generator)


def _row(
    name: str, kind: str, by: str, found: PermutationTest, corrected: Tensor, n: int, i: int = 0
) -> tuple[object, ...]:
    values = (found.observed, found.null, found.high, found.p, corrected)
    return (name, kind, by, *(float(value[i]) for value in values), n)


def _inputs(study: Study) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what a probe may look at: embeddings of encoder and surrogate, and the input itself as a baseline."""
    if study.data is None:
        return {}
    rows = evenly_spaced(study.n, PROBE_ROWS)
    X, Y = study.train(rows), study.X_test
    found = {SURROGATE: (study.model.transform(X), study.model.transform(Y))}
    if study.encoder is not None:
        found = {ENCODER: (study.encoder.encode(X), study.encoder.encode(Y)), **found}
    one = X.take(torch.arange(1))
    # Of tokens, and of inputs so large that a probe on them is beyond the budget, there is no such baseline.
    size = 3 * 8 * (len(rows) + study.t) * one[0].numel() if isinstance(one, Tensor) else 0
    if isinstance(one, Tensor) and Budget.of(study.model.memory_budget).fits(size):
        inputs = (all_of(X), study.test(torch.arange(study.t)))
        found[INPUT] = (inputs[0].flatten(1).double().cpu(), inputs[1].flatten(1).double().cpu())
    return found


def _probe(
    X: tuple[Tensor, Tensor], train: Tensor, test: Tensor, study: Study, generator: torch.Generator
) -> PermutationTest:
    """Return how often a linear probe finds the hidden column, against shuffled values."""
    y = train[evenly_spaced(study.n, PROBE_ROWS)]
    guess = y[:1].expand(len(test)) if len(y.unique()) < 2 else LinearProbe.fit(X[0], y).decide(X[1])
    return agreement_test(test, guess, draws=DRAWS, generator=generator)


def _carriers(
    study: Study, name: str, test: Tensor, of_landmark: Tensor, generator: torch.Generator
) -> list[tuple[object, ...]]:
    """Return through which visible columns the hidden one shows, corrected for their number.

    A column carries if attracting landmarks share it beyond shuffles of its values among the landmarks, and if agreeing
    on it tells the label beyond shuffles of the labels: its p is the larger of the two.
    """
    if study.tables is None or study.space is None:
        return []
    seen = [i for i, column in enumerate(study.space.defined) if column not in study.hidden]
    if not seen:
        return []
    # Agreements in four versions while they are made, float64.
    each = 4 * 8 * study.m * len(seen)
    most = Budget.of(study.model.memory_budget).rows(each, what="a sample's agreements", share=1 / 4, most=PAIRED)
    rows = evenly_spaced(study.t, most)
    x = study.space.encode(study.tables[1])[:, seen][rows]
    z = study.space.encode(study.tables[0].iloc[study.model.landmarks_.numpy()])[:, seen]
    v = agreement(x[:, None], z[None])  # (t, m, c)
    draws = enough_draws(len(seen))
    gaps = ShuffledGaps(z, draws=draws, seed=study.seed)
    for part, found in attributions(study.model, RowsOf(study.X_test, rows)):
        gaps.add(_weights(found.scores)[:, None], x[part])
    shared = gaps.test(0)
    carried = carrier_test(v, shared.observed, test[rows], of_landmark, draws=draws, generator=generator)
    both = replace(carried, p=torch.maximum(carried.p, shared.p))
    columns = [study.space.defined[i] for i in seen]
    return [_row(name, CARRIER, str(column), both, holm(both.p), len(rows), i) for i, column in enumerate(columns)]


def _weights(scores: Tensor) -> Tensor:
    """Return weights of landmarks by which agreement with those that attract is compared with all, ``(b, m)``."""
    top = first(scores, min(K, scores.shape[1]))
    w = scores.gather(1, top).clamp_min(0).double()
    w = w / w.sum(1, keepdim=True).clamp_min(1e-300)
    return torch.full(scores.shape, -1 / scores.shape[1], dtype=torch.float64).scatter_add(1, top, w)


def given_away(part: pd.DataFrame, kind: str, by: str) -> pd.Series | None:
    """Return the row of a measure if it is surely above its null, else ``None``."""
    found = part[(part["measure"] == kind) & (part["by"] == by)]
    if found.empty or not (found["p_corrected"].iloc[0] <= LEVEL and found["estimate"].iloc[0] > found["null"].iloc[0]):
        return None
    return found.iloc[0]


def carriers(part: pd.DataFrame) -> pd.DataFrame:
    """Return the visible columns through which the hidden one surely shows, largest excess first."""
    found = part[(part["measure"] == CARRIER) & (part["p_corrected"] <= LEVEL) & (part["estimate"] > part["null"])]
    excess = found["estimate"] - found["null"]
    return found.assign(excess=excess).sort_values("excess", ascending=False, kind="stable")


def looked_at(part: pd.DataFrame) -> str:
    """Return whose embeddings the probe of the sentence looks at: the encoder's, or where there is none, ours."""
    return ENCODER if ((part["measure"] == PROBE) & (part["by"] == ENCODER)).any() else SURROGATE


def sentence(table: pd.DataFrame) -> str:
    """Return, for every hidden column, what gives it away, or that nothing does."""
    return " ".join(_sentence(str(name), part) for name, part in table.groupby("hidden", sort=False))


def _sentence(name: str, part: pd.DataFrame) -> str:
    by = looked_at(part)
    probe, anchored = given_away(part, PROBE, by), given_away(part, ANCHORED, "influence")
    through = carriers(part).head(3)
    words = []
    if probe is not None:
        most = part[part["measure"] == MAJORITY]["estimate"].iloc[0]
        words.append(
            f"a probe on the {by} finds it in {percent(probe['estimate'])} of the samples (the largest group: "
            f"{percent(most)}; shuffled: {percent(probe['null'])}, p = {number(probe['p'], 2)})"
        )
    if anchored is not None:
        words.append(
            f"{percent(anchored['estimate'])} are anchored to a landmark of their own kind (shuffled: "
            f"{percent(anchored['null'])}, p = {number(anchored['p'], 2)})"
        )
    if len(through):
        named = [f"{text(row['by'])} ({signed(row['excess'])})" for row in through.to_dict("records")]
        words.append(f"it shows above all through {listing(named)}")
    if not words:
        return f"{text(name)} was hidden, and nothing measured here gives it away beyond chance."
    return f"{text(name)} was hidden and is still given away: {'; '.join(words)}."


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return how many of the hidden columns are given away."""
    parts = [part for _, part in table.groupby("hidden", sort=False)]
    return f"{sum(_is_away(part) for part in parts)} of {len(parts)}", "hidden columns are still given away"


def _is_away(part: pd.DataFrame) -> bool:
    shows = given_away(part, PROBE, looked_at(part)), given_away(part, ANCHORED, "influence")
    return any(row is not None for row in shows) or bool(len(carriers(part)))


def verdict(table: pd.DataFrame) -> Verdict:
    """Return bad if any hidden column is given away."""
    return "bad" if any(_is_away(part) for _, part in table.groupby("hidden", sort=False)) else "good"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return probes and anchoring, then the columns that carry it, for every hidden column."""
    found: list[View] = []
    for name, part in table.groupby("hidden", sort=False):
        most = part[part["measure"] == MAJORITY]["estimate"].iloc[0]
        rows = [_shown(row, _named(row)) for _, row in part[part["measure"].isin([PROBE, ANCHORED])].iterrows()]
        caption = f"How {text(name)} shows; always naming the largest group would be right for {percent(most)}"
        found.append(View(caption, ("measure", "share", "shuffled", "95 % of shuffles below", "p"), tuple(rows)))
        carried = part[part["measure"] == CARRIER]
        carried = carried.loc[(carried["estimate"] - carried["null"]).sort_values(ascending=False, kind="stable").index]
        if len(carried):
            lines = tuple(_shown(row, text(row["by"]), "gap") for _, row in carried.iterrows())
            caption = f"Rise in the share of landmarks of the own {text(name)} that each column accounts for"
            found.append(View(caption, ("column", "rise", "shuffled", "95 % of shuffles below", "p (Holm)"), lines))
    return tuple(found)


def _named(row: pd.Series) -> str:
    by = str(row["by"])
    return f"a probe on the {by} finds it" if row["measure"] == PROBE else f"anchored by {METHODS.get(by, by)}"


def _shown(row: pd.Series, name: str, unit: Unit = "share") -> tuple[object, ...]:
    shares = (Estimate(float(row[key]), unit=unit) for key in ("estimate", "null", "null_high"))
    return (name, *shares, number(float(row["p_corrected"]), 2))


def plain(table: pd.DataFrame) -> str:
    """Return the hidden column that is given away most clearly, or that none is."""
    parts = {str(name): part for name, part in table.groupby("hidden", sort=False)}
    away = [name for name, part in parts.items() if _is_away(part)]
    if not away:
        named = listing([quoted(name) for name in parts])
        return f"Nothing that was measured here gives {named} away, hidden from the encoder."
    name = max(away, key=lambda name: _probe_excess(parts[name]))
    probe, through = given_away(parts[name], PROBE, looked_at(parts[name])), carriers(parts[name]).head(1)
    shows = f", above all through {quoted(through['by'].iloc[0])}" if len(through) else ""
    if probe is None:
        return f"{quoted(name)} was hidden from the encoder, and who lies near whom still shows it{shows}."
    most = parts[name][parts[name]["measure"] == MAJORITY]["estimate"].iloc[0]
    return (
        f"{quoted(name)} was hidden from the encoder, and a simple classifier still reads it from the embeddings of "
        f"{percent(probe['estimate'])} of the samples (naming the largest group: {percent(most)}){shows}."
    )


def strength(table: pd.DataFrame) -> float:
    """Return how far above its null a probe finds a hidden column; given away at all is news already."""
    return 0.5 + max(_probe_excess(part) for _, part in table.groupby("hidden", sort=False)) / 2


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return for every hidden column whether it is given away by a probe, by anchors, and through which columns."""
    found = []
    for name, part in table.groupby("hidden", sort=False):
        by = looked_at(part)
        rows = part[((part["measure"] == PROBE) & (part["by"] == by)) | (part["measure"] == CARRIER)]
        for _, row in rows.iterrows():
            sure = bool(row["p_corrected"] <= LEVEL and row["estimate"] > row["null"])
            through = f"through {text(row['by'])}" if row["measure"] == CARRIER else "to a simple classifier"
            unit: Unit = "gap" if row["measure"] == CARRIER else "share"
            found.append(Finding(f"{text(name)} shows {through}", Estimate(float(row["estimate"]), unit=unit), sure))
    return tuple(found)


def _probe_excess(part: pd.DataFrame) -> float:
    row = given_away(part, PROBE, looked_at(part))
    return 0.0 if row is None else float(row["estimate"] - row["null"])


PROXY = Audit(
    name="proxy",
    title="Proxies: what gives a hidden column away",
    asks="what still gives a hidden column away",
    needs=("hidden groups", "training data"),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    strength=strength,
    findings=findings,
    headline=headline,
    caveat="That a hidden column can be found does not say that a decision uses it; that nothing was found here does "
    "not prove that nothing could.",
)
