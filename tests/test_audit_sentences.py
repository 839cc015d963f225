"""Every sentence is true of the table it stands over: random tables, and an oracle that reads the sentence back."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from krepes import registry
from krepes.audit import alignment, label_consistency
from krepes.audit.base import View
from krepes.audit.consistency import READINGS, consistency_readings
from krepes.audit.faithfulness import COLUMNS
from krepes.audit.questions import (
    concepts,
    consistency,
    coverage,
    deletion,
    faithfulness,
    features,
    groups,
    proxy,
    spectrum,
    trust,
)
from krepes.audit.wording import METHODS, number, percent, points, signed
from krepes.report.sections.audits import table as rendered

AUDITS = registry.loaded(registry.AUDITS)
SHARES = st.floats(0, 1)
WIDTHS = st.floats(0.001, 0.4)
FEATURE_COLUMNS = ["method", *alignment.COLUMNS]
fast = settings(max_examples=150, deadline=None)


def values(n, low=-1.0, high=1.0):
    return st.lists(st.floats(low, high), min_size=n, max_size=n)


def consistent(audit, table):
    """Check what holds for any audit: words end, verdicts are known, views are as wide as their heads and render."""
    sentence = audit.sentence(table)
    assert sentence.endswith(".") and "nan" not in sentence.lower()
    assert audit.verdict(table) in {"good", "bad", "neutral"}
    for view in audit.views(table):
        assert isinstance(view, View) and all(len(row) == len(view.columns) for row in view.rows)
        rendered(view)
    return sentence


@st.composite
def feature_tables(draw):
    n = draw(st.integers(1, 12))
    gaps, widths = draw(values(n)), draw(st.lists(WIDTHS, min_size=n, max_size=n))
    ps = draw(st.lists(st.sampled_from([0.001, 0.05, 0.0501, 0.3, 1.0]), min_size=n, max_size=n))
    rows = []
    for i, (gap, width, p) in enumerate(zip(gaps, widths, ps, strict=True)):
        undefined = i > 0 and draw(st.integers(0, 9)) == 0
        for method in ("influence", "kernel", "random"):
            for variant in ("normalised", "raw"):
                ours = (method, variant) == ("influence", "normalised")
                value = np.nan if undefined else gap if ours else -gap
                ends = (value - width, value + width)
                # What the sentence must not read stands in the other rows: all of them pass.
                null = [np.nan] * 5 if undefined else [0.0, -0.1, 0.1, *[p if ours else 0.001] * 2]
                rows.append((
                    method,
                    variant,
                    f"col{i}",
                    value,
                    *ends,
                    value - 2 * width,
                    value + 2 * width,
                    *null,
                    50,
                    "constant" if undefined else "",
                ))
    return pd.DataFrame(rows, columns=FEATURE_COLUMNS).assign(agreement="indicator")


@fast
@given(feature_tables())
def test_features_name_the_largest_gaps_beyond_their_null_and_the_one_that_follows(table):
    sentence = consistent(AUDITS["features"], table)
    ours = table[(table["method"] == "influence") & (table["variant"] == "normalised")].dropna(subset="estimate")
    gap = ours.set_index("column")["estimate"]
    passed = ours[(ours["p_corrected"] <= 0.05) & (ours["estimate"] > 0)]
    if sentence.startswith("On none"):
        assert passed.empty and f"On none of {len(gap)} column" in sentence
        assert features.headline(table) is None
        return
    head, _, tail = sentence.partition(";")
    named = re.findall(r"(col\d+) \(([+−][^)]*)\)", head)
    assert named and all(signed(gap[name]) == shown for name, shown in named)
    names = [name for name, _ in named]
    assert set(names) <= set(passed["column"]) and features.headline(table)[0] == names[0]
    others = gap.drop(names)
    assert gap[names].is_monotonic_decreasing
    if "of the other" in tail:
        told, following, shown = re.search(r"other (\d+) columns? .*?(col\d+).* with (\S+)\. ", tail).groups()
        assert int(told) == len(others) and signed(others[following]) == shown
        assert others[following] == others.max()
        # Above all: a column with a larger gap is named, or said to be within its null.
        assert ("as large" in tail) == (others.max() > min(gap[names]))
        assert ("within what shuffles" in tail) == (following not in set(passed["column"]))
    else:
        assert others.empty
    best = passed["estimate"].max()
    for name in names:
        assert gap[name] >= features.LEADING * best


@settings(max_examples=20, deadline=None)
@given(feature_tables())
def test_the_table_of_features_shows_every_gap_beside_its_null(table):
    ours, raw = features.views(table)
    for view, variant in ((ours, "normalised"), (raw, "raw")):
        rows = table[(table["method"] == "influence") & (table["variant"] == variant)].set_index("column")
        for name, gap, null, p, *_ in view.rows:
            wanted = rows.loc[name]
            np.testing.assert_equal(
                [gap.value, null.value, null.low, null.high],
                wanted[["estimate", "null", "null_low", "null_high"]].tolist(),
            )
            if variant == "normalised":
                np.testing.assert_equal([gap.low, gap.high], wanted[["low_corrected", "high_corrected"]].tolist())
            assert p == ("–" if np.isnan(wanted["p_corrected"]) else number(wanted["p_corrected"], 2))


def test_the_interval_of_a_gap_is_that_of_all_columns_together_and_the_view_says_so_and_how_categories_agree():
    gap = [0.2, 0.15, 0.25, 0.1, 0.3, 0.0, -0.01, 0.01, 0.001, 0.007, 50, ""]
    rows = [(method, variant, "age", *gap) for method in ("influence", "random") for variant in ("normalised", "raw")]
    table = pd.DataFrame(rows, columns=FEATURE_COLUMNS)
    (finding,) = features.findings(table)
    assert (finding.estimate.low, finding.estimate.high) == (0.1, 0.3)
    for agreement, words in (("indicator", "agree if they are equal"), ("codes", "the nearer their integer codes")):
        view = features.views(table.assign(agreement=agreement))[0]
        assert view.columns[1] == "influence (ours) [95 %, corrected]"
        assert "interval corrected for the number of columns" in view.caption
        assert words in view.caption and f"agreement {agreement}" in view.caption


def test_the_next_column_is_not_one_that_the_bars_show_above_it():
    """Six columns lead and four are named: the fifth is the next, not the first of those that do not lead."""
    gaps = {"age": 0.2, "sex": 0.19, "job": 0.18, "zip": 0.17, "pay": 0.162, "car": 0.16, "diabetic": 0.01}
    rows = [
        (method, variant, name, gap, *(gap - 0.005, gap + 0.005) * 2, 0.0, -0.01, 0.01, 0.001, 0.007, 50, "")
        for name, gap in gaps.items()
        for method in ("influence", "random")
        for variant in ("normalised", "raw")
    ]
    sentence = features.sentence(pd.DataFrame(rows, columns=FEATURE_COLUMNS))
    assert "the next is pay with +0.162" in sentence and "diabetic" not in sentence


@st.composite
def group_tables(draw):
    size = draw(st.integers(2, 5))
    names = [f"g{i}" for i in range(size)]
    counts = np.array([draw(st.lists(st.integers(0, 30), min_size=size, max_size=size)) for _ in names])
    counts[0, 0] += 1
    expected = np.array(draw(st.lists(st.integers(0, 20), min_size=size, max_size=size)), dtype=float)
    expected[0] += 1
    expected /= expected.sum()
    p_own = draw(st.sampled_from([0.001, 0.2, 1.0]))
    rows = []
    for method in ("influence", "kernel", "random"):
        for g in range(size):
            for h in range(size):
                total = counts[g].sum()
                share = counts[g, h] / total if total else np.nan
                low = max(0.0, share - draw(WIDTHS)) if total else 0.0
                lift = share / expected[h] if expected[h] else np.nan
                note = "" if total and expected[h] else "none"
                p = draw(st.sampled_from([0.001, 0.05, 0.0501, 1.0])) if not note else np.nan
                rows.append((
                    "kind",
                    method,
                    names[g],
                    names[h],
                    counts[g, h],
                    share,
                    low,
                    1.0,
                    expected[h],
                    lift,
                    expected[h] / 2 if total else np.nan,
                    expected[h] * 2 if total else np.nan,
                    p,
                    p,
                    p_own,
                    note,
                ))
    columns = "grouping method group landmark_group count share low high expected lift"
    columns = f"{columns} null_low null_high p p_corrected p_own note".split()
    return pd.DataFrame(rows, columns=columns)


@fast
@given(group_tables())
def test_groups_say_what_their_counts_say(table):
    sentence = consistent(AUDITS["groups"], table)
    ours = table[table["method"] == "influence"]
    total = ours["count"].sum()
    own = ours[ours["group"] == ours["landmark_group"]]
    assert f"By kind, {percent(own['count'].sum() / total)} of the samples" in sentence
    assert f"; shuffled landmarks: p = {number(ours['p_own'].iloc[0], 2)})" in sentence
    beyond = (ours["p_corrected"] <= 0.05) & (ours["share"] > ours["expected"]) & ours["lift"].notna()
    other = ours[(ours["group"] != ours["landmark_group"]) & beyond]
    if "leans on" not in sentence.replace("none leans on another", ""):
        assert other.empty and groups.verdict(table) == "neutral"
        return
    leaning, on, times, hits, of, p = re.search(
        r"“(g\d)” leans on “(g\d)” ([\d.]+) times .* \((\d+) of (\d+); .*p = ([\d.]+), corrected\)", sentence
    ).groups()
    row = other[(other["group"] == leaning) & (other["landmark_group"] == on)].iloc[0]
    assert p == number(row["p_corrected"], 2)
    assert row["lift"] == other["lift"].max() and times == f"{row['lift']:.1f}"
    assert int(hits) == row["count"] and int(of) == ours[ours["group"] == leaning]["count"].sum()
    assert groups.verdict(table) == "bad"


@st.composite
def ranked_tables(draw, columns):
    rows = []
    for method in ("influence", "directional", "latent cosine", "kernel", "random"):
        value, width = draw(SHARES), draw(WIDTHS)
        rows.append((method, value, max(0.0, value - width), min(1.0, value + width)))
    frame = pd.DataFrame(rows, columns=["method", "estimate", "low", "high"])
    return frame.assign(**columns)


@fast
@given(ranked_tables({"metric": "precision", "k": 1, "n": 80, "labels": "true / true"}), st.booleans())
def test_consistency_compares_with_the_best_baseline(table, probed):
    other = table.assign(labels="predicted / predicted", estimate=1 - table["estimate"], low=0.0, high=1.0)
    sentence = consistent(AUDITS["consistency"], pd.concat([table, other]) if probed else table)
    said = f" A probe on the encoder predicts the same class for both in {percent(other['estimate'].iloc[0])}."
    assert sentence.endswith(said) == probed
    sentence = sentence.removesuffix(said)
    of = table.set_index("method")["estimate"]
    rivals = of[["latent cosine", "kernel"]]
    assert f"in {percent(of['influence'])} of 80 samples (at random: {percent(of['random'])})" in sentence
    assert ("no more often than" in sentence) == (of["influence"] <= rivals.max())
    assert f"the first by {METHODS[rivals.idxmax()]} ({percent(rivals.max())})." in sentence
    assert f"the first by {METHODS[rivals.idxmax()]} in {percent(rivals.max())}, a random" in consistency.plain(table)
    good = table.set_index("method")["low"]["influence"] > table.set_index("method")["high"]["random"]
    assert (consistency.verdict(table) == "good") == good


def test_consistency_shows_every_metric_at_every_k_under_every_reading():
    generator = torch.Generator().manual_seed(0)
    draw = lambda size: torch.randint(3, (size,), generator=generator).tolist()  # noqa: E731
    tops = {name: torch.rand(70, 60, generator=generator).argsort(1)[:, :50] for name in ("influence", "random")}
    table = consistency_readings(tops, (draw(60), draw(60)), (draw(70), draw(70)))
    found = consistency.views(table)
    assert [view.folded for view in found] == [False] * 3 + [True] * 6
    parts = [
        part for reading in READINGS for _, part in table[table["labels"] == reading].groupby("metric", sort=False)
    ]
    for view, part in zip(found, parts, strict=True):
        assert view.columns == ("ranked by", *(f"K = {k}" for k in (1, 2, 3, 5, 10, 20, 50)))
        shown = {name: [cell.value for cell in cells] for name, *cells in view.rows}
        assert shown == {METHODS[name]: rows["estimate"].tolist() for name, rows in part.groupby("method")}
        widest = max((part["high"] - part["estimate"]).max(), (part["estimate"] - part["low"]).max())
        assert view.caption.endswith(f"95 % intervals: at most {points(widest)} to either side")
    captions = [view.caption for view in found]
    assert len(set(captions)) == 9 and captions[0].startswith("Precision@K, true classes: ")
    theirs = label_consistency(tops, draw(60), draw(70), predictions=draw(70)).assign(labels="true / true")
    assert len(consistency.views(theirs)) == 4 and "--predictions" in consistency.views(theirs)[2].caption


@fast
@given(ranked_tables({"before": 0.9, "n": 80, "asked": 10, "voters": 50, "vote": "uniform", "among": "any class"}))
def test_deletion_compares_with_the_best_baseline(table):
    table = table.assign(deleted=10.0, matched=0.25, times_random=2.0, times_matched=np.nan)
    others = [table.assign(vote="weighted", estimate=0.5), table.assign(among="predicted class", estimate=0.5)]
    sentence = consistent(AUDITS["deletion"], pd.concat([table, *others]))
    of = table.set_index("method")["estimate"]
    rivals = of[["latent cosine", "kernel"]]
    assert f"loses {percent(of['influence'])} of confidence (random landmarks: {percent(of['random'])}, " in sentence
    assert f"random ones of the same classes: {percent(0.25)})" in sentence
    assert ("no more than without" in sentence) == (of["influence"] <= rivals.max())
    assert f"the first by {METHODS[rivals.idxmax()]} ({percent(rivals.max())})." in sentence
    assert deletion.verdict(table) in {"good", "bad"}


@fast
@given(st.integers(1, 60), st.floats(1, 60), st.lists(st.sampled_from("abc"), max_size=2, unique=True))
def test_coverage_counts_or_names_what_is_absent(kappa, chance, absent):
    ours = np.nan if absent else float(kappa)
    rows = [(coverage.STRONGEST, "", ours, np.nan, np.nan, 0.3)]
    rows += [(coverage.RANDOM, "", chance, chance / 2, chance * 2, np.nan)]
    rows += [(coverage.ABSENT, name, 0.0, np.nan, np.nan, np.nan) for name in absent]
    table = pd.DataFrame(rows, columns=["order", "class", "estimate", "low", "high", "p"]).assign(m=60)
    sentence = consistent(AUDITS["coverage"], table)
    if absent:
        assert all(name in sentence for name in absent) and coverage.verdict(table) == "bad"
        return
    assert f"The {kappa} strongest of 60" in sentence and f"takes {number(chance)}" in sentence
    assert f"{percent(0.3)} of random orders take no more" in sentence
    expected = "bad" if kappa > 2 * chance else "good" if kappa < chance / 2 else "neutral"
    assert coverage.verdict(table) == expected


@pytest.mark.parametrize("met", [10, 7])
@pytest.mark.parametrize(("p", "verdict"), [(0.04, "good"), (0.06, "neutral")])
def test_coverage_is_good_only_if_halves_of_the_landmarks_say_so_too(p, verdict, met):
    rows = [(coverage.STRONGEST, "", 3.0, np.nan, np.nan, 0.001), (coverage.RANDOM, "", 20.0, 9.0, 40.0, np.nan)]
    rows += [(coverage.HALVES, "", 4.5, np.nan, np.nan, p), (coverage.SHUFFLED, "", 19.0, np.nan, np.nan, np.nan)]
    rows += [(coverage.MET, "", float(met), np.nan, np.nan, np.nan)]
    table = pd.DataFrame(rows, columns=["order", "class", "estimate", "low", "high", "p"]).assign(m=60)
    said = consistent(AUDITS["coverage"], table)
    assert f"it takes 4.5 on average, with shuffled classes 19 (p = {p})" in said and "10 random halves" in said
    assert ("7 of them meet every class" in said) == (met == 7)
    assert coverage.verdict(table) == verdict


@fast
@given(SHARES, st.floats(-0.5, 0.5), WIDTHS, SHARES)
def test_faithfulness_says_less_or_more_only_where_it_is_sure(same, gap, width, accuracy):
    rows = [
        ("surrogate accuracy", accuracy, 0, 1),
        ("encoder accuracy", accuracy, 0, 1),
        ("accuracy gap", gap, gap - width, gap + width),
        ("same decision", same, max(0, same - width), min(1, same + width)),
    ]
    table = pd.DataFrame(rows, columns=["measure", "estimate", "low", "high"]).assign(n=80, note="")
    table = table.assign(apart=np.nan, ceiling=np.nan)
    sentence = consistent(AUDITS["faithfulness"], table)
    assert f"alike for {percent(same)} of" in sentence
    assert ("not surely" in sentence) == (gap - width <= 0 <= gap + width)
    if "not surely" not in sentence:
        assert f"{percent(abs(gap))} {'more' if gap > 0 else 'less'} accurate" in sentence
    assert (faithfulness.verdict(table) == "bad") == (gap + width < 0)


@fast
@given(st.lists(st.tuples(SHARES, SHARES, st.floats(1e-6, 1)), min_size=1, max_size=5))
def test_concepts_are_real_only_beyond_chance_and_corrected(found):
    rows = [
        (f"c{i}", accuracy, random, p, p, 0.5, 40, 0.1, 0.2, 0.3, "p1") for i, (accuracy, random, p) in enumerate(found)
    ]
    columns = "concept accuracy random p_value p_rank stability samples pull random_pull pull_p pulled_most".split()
    table = pd.DataFrame(rows, columns=columns)
    sentence = consistent(AUDITS["concepts"], table)
    told = re.findall(r"“(c\d)”", sentence.partition(";")[0])
    assert told == [f"c{i}" for i, (a, r, p) in enumerate(found) if a > r and p <= 0.05 / len(found)]
    best = int(np.argmax([accuracy for accuracy, _, _ in found]))
    assert f"the clearest is “c{best}”, told apart in {percent(found[best][0])}" in sentence
    assert concepts.headline(table)[0] == f"{len(told)} of {len(found)}"


@fast
@given(st.floats(1, 32), st.floats(1, 32))
def test_spectrum_says_more_or_fewer_as_the_numbers_do(before, after):
    rows = [(spectrum.STARTS["pca"], 0.5, 0.5, before, 32), (spectrum.END, 0.5, 0.5, after, 32)]
    table = pd.DataFrame(rows, columns=["model", "entropy", "entropy_kernel", "rankme", "possible"])
    sentence = consistent(AUDITS["spectrum"], table)
    word = "more than" if after > before else "fewer than" if after < before else "as many as"
    assert f"use {number(after)} of 32" in sentence and f"{word} the {number(before)} of" in sentence


@fast
@given(st.booleans(), st.floats(-1, 2), st.floats(1e-12, 1), SHARES, st.integers(1, 100), st.booleans())
def test_trust_warns_of_exactly_what_is_wrong(accepted, gain, residual, span, t, centred):
    of = {name: 1.0 for name in trust.MEANING} | {
        "loss before": 2.0,
        "accepted": float(accepted),
        "gain": gain,
        "residual": residual,
        "tolerance": 1e-8,
        "spanned": span,
        "centred": float(centred),
        "test samples": float(t),
    }
    table = pd.DataFrame([(k, v, trust.MEANING[k]) for k, v in of.items()], columns=trust.HEADS)
    sentence = consistent(AUDITS["trust"], table)
    assert percent(span) in sentence
    warned = " ".join(trust.warnings(table))
    assert ("rejected" in warned) == (not accepted)
    assert ("stopped at a residual" in warned) == (accepted and residual > 1e-8)
    assert ("gain ratio" in warned) == (accepted and gain < 0.25)
    assert ("landmarks span" in warned) == (span < 0.5)
    assert ("not centred" in warned) == (not centred)
    assert ("Only" in warned) == (t < 30)
    assert (trust.verdict(table) == "bad") == bool(warned)


@pytest.mark.parametrize("classes", [3, 10, 11])
def test_faithfulness_shows_tau_of_each_class_or_its_range_over_many(classes):
    measures = [("same decision", None, 0.9, 0.8, 0.95, np.nan, np.nan, 80, "")]
    taus = [("tau over samples", f"c{i}", i / 100, -1.0, 1.0, i / 60, i / 50, 80, "") for i in range(classes - 1)]
    taus.append(("tau over samples", "rare", *[np.nan] * 5, 80, "the same probability"))
    (view,) = faithfulness.views(pd.DataFrame([*measures, *taus], columns=COLUMNS))
    shown = view.rows[1:]
    if classes <= 10:
        assert [row[0] for row in shown] == [f"Kendall's τ over samples, class {row[1]}" for row in taus]
        seen = [tuple(cell.value for cell in row[1:4]) for row in shown]
        np.testing.assert_equal(seen, [(row[2], row[5], row[6]) for row in taus])
        return
    ends = "+0.000 (c0) to +0.090 (c9)", "+0.000 (c0) to +0.150 (c9)", "+0.000 (c0) to +0.180 (c9)"
    assert shown == (("Kendall's τ over samples, range over 10 of 11 classes", *ends, 80),)
    assert [cell.text for cell in rendered(view).rows[1]][:3] == list(shown[0][:3])  # nothing is cut


@st.composite
def proxy_tables(draw):
    def row(kind, by):
        p = draw(st.floats(0.001, 1))
        return ("sex", kind, by, draw(SHARES), draw(SHARES), draw(SHARES), p, p, 80)

    rows = [row(proxy.PROBE, by) for by in (proxy.ENCODER, proxy.SURROGATE, proxy.INPUT)]
    rows += [row(proxy.ANCHORED, by) for by in ("influence", "kernel", "random")]
    rows.append(("sex", proxy.MAJORITY, "", draw(SHARES), *[np.nan] * 4, 80))
    rows += [row(proxy.CARRIER, f"col{i}") for i in range(draw(st.integers(0, 6)))]
    return pd.DataFrame(rows, columns=proxy.COLUMNS)


@fast
@given(proxy_tables())
def test_a_hidden_column_is_given_away_only_by_what_is_beyond_its_null(table):
    sentence = consistent(AUDITS["proxy"], table)
    above = table[(table["p_corrected"] <= proxy.LEVEL) & (table["estimate"] > table["null"])]
    probe = above[(above["measure"] == proxy.PROBE) & (above["by"] == proxy.ENCODER)]
    anchored = above[(above["measure"] == proxy.ANCHORED) & (above["by"] == "influence")]
    carriers = above[above["measure"] == proxy.CARRIER]
    assert ("a probe on the encoder" in sentence) == (len(probe) == 1)
    assert ("are anchored to" in sentence) == (len(anchored) == 1)
    named = re.findall(r"(col\d) \(([+−][^)]*)\)", sentence)
    excess = (carriers["estimate"] - carriers["null"]).set_axis(carriers["by"])
    assert len(named) == min(3, len(carriers)) and all(signed(excess[name]) == shown for name, shown in named)
    if named:
        rest = excess.drop([name for name, _ in named])
        assert rest.empty or min(excess[name] for name, _ in named) >= rest.max()
    away = bool(len(probe) or len(anchored) or len(carriers))
    assert (proxy.verdict(table) == "bad") == away == ("still given away" in sentence)


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_is_listed_under_its_own_name_and_says_what_it_is(name):
    audit = AUDITS[name]
    assert audit.name == name and ":" in audit.title and audit.caveat.endswith(".") and audit.asks
