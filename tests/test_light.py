"""The light follows its stated rules, findings are compared as they stand, and short sentences say what tables say."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from krepes import registry
from krepes.audit.base import Estimate, Finding, run_audits
from krepes.audit.light import ALIKE, ORDER, SAMPLES, SPAN, STABLE, light_of, rules
from krepes.audit.standing import Comparison, Standing, compare
from krepes.audit.study import Study
from krepes.audit.wording import percent, points
from krepes.encoders import MLP
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.report import render, report_of
from krepes.report.glossary import GLOSSARY, anchor, glossed
from krepes.views import GaussianNoise

AUDITS = registry.loaded(registry.AUDITS)


@pytest.fixture(scope="module")
def study():
    torch.manual_seed(0)
    X = torch.randn(260, 4)
    X[:, 0] += 3 * (X[:, 1] > 0)
    labels = (X[:, 1] > 0).int().tolist()
    model = Krepes(MLP(4, width=16, depth=1, out=8).eval(), m=24, h=4, augment=GaussianNoise(0.1), progress=False)
    model.fit(X[:140])
    given_ = {"labels": (labels[:140], labels[140:]), "counterfactual": False, "shown": 2, "k": 2, "listed": 5}
    return Study(model, X[140:], **given_)


@pytest.fixture(scope="module")
def results(study):
    return run_audits(study, AUDITS)[0]


def changed(results, name, **values):
    """Return the results with some measures of one audit's table set."""
    column = "value" if name == "trust" else "estimate"
    table = results[name].table.copy()
    for measure, value in values.items():
        table.loc[table["measure"] == measure.replace("_", " "), column] = value
    return {**results, name: replace(results[name], table=table)}


def light(study, results, asks):
    return next(rule for rule in rules(study, results) if asks in rule.asks)


CASES = [
    ("landmarks stand", "trust", "spanned", SPAN),
    ("held-out", "trust", "test_samples", SAMPLES),
    ("decides like", "faithfulness", "same_decision", ALIKE),
]


@pytest.mark.parametrize(("asks", "audit", "measure", "bars"), CASES)
def test_a_number_is_green_amber_or_red_by_its_stated_bars(study, results, asks, audit, measure, bars):
    below = np.nextafter(bars[0], 0), np.nextafter(bars[1], 0)
    for value, wanted in ((bars[0], "green"), (below[0], "amber"), (bars[1], "amber"), (below[1], "red")):
        rule = light(study, changed(results, audit, **{measure: value}), asks)
        assert rule.light == wanted and bool(rule.remedy) == (wanted != "green")
        assert "green from" in rule.bars and "amber from" in rule.bars


@pytest.mark.parametrize(("gain", "wanted"), [(0.25, "green"), (0.2, "amber"), (-0.1, "red")])
def test_a_step_that_fell_short_turns_the_light(study, results, gain, wanted):
    assert light(study, changed(results, "trust", gain=gain), "objective fell").light == wanted
    assert light(study, changed(results, "trust", accepted=0), "objective fell").light == "red"


@pytest.mark.parametrize(("residual", "wanted"), [(1e-9, "green"), (5e-8, "amber"), (1e-6, "red")])
def test_an_unsolved_step_turns_the_light(study, results, residual, wanted):
    assert light(study, changed(results, "trust", residual=residual, tolerance=1e-8), "solved").light == wanted


def test_the_light_is_the_worst_of_what_was_measured(study, results):
    found = rules(study, results)
    assert light_of(found) == max((rule.light for rule in found), key=ORDER.index)
    assert [rule.asks for rule in found if rule.light == "grey"] == ["Findings stand in other runs"]
    without = {name: result for name, result in results.items() if name != "faithfulness"}
    assert light_of(rules(study, without)) == "amber" and light_of(()) == "grey"
    assert "labels=" in light(study, without, "decides like").remedy
    assert "--label" in light(replace(study, by_flags=True), without, "decides like").remedy
    assert light_of(rules(replace(study, notes=("the data were changed",)), results)) == "amber"


def standing(*stands, ends=((0.1, 0.3), (0.2, 0.4))):
    estimates = tuple(Estimate(0.2, low, high) for low, high in ends)[: len(stands)]
    return Standing("features", "the encoder keeps age", estimates, stands)


def test_findings_that_are_lost_in_other_runs_turn_the_light(study, results):
    kept, lost = standing(True, True), standing(True, False)
    for n, wanted in ((0, "green"), (1, "green"), (2, "amber"), (6, "red")):
        found = Comparison(("a", "b"), (*[kept] * 4, *[lost] * n))
        assert light(replace(study, standing=found), results, "other runs").light == wanted, (n, STABLE)


def test_a_finding_is_stable_if_every_run_says_the_same():
    assert standing(True, True).word == "stands in both runs" and standing(False, False).word == "stands in neither run"
    assert standing(True, False).word == "stands in 1 of 2 runs" and not standing(True, False).stable
    assert standing(True, None).word == "not looked for in every run"
    assert not standing(True, True).apart and standing(True, True, ends=((0.1, 0.2), (0.3, 0.4))).apart


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_the_comparison_counts_what_the_runs_say(answers):
    class Result:
        def __init__(self, run):
            self.findings = tuple(Finding(f"f{i}", Estimate(0.5), one[run]) for i, one in enumerate(answers))

    found = compare({f"run {run}": {"features": Result(run)} for run in range(3)})
    some, every = sum(map(any, answers)), sum(map(all, answers))
    assert (len(found.found), found.stable) == (some, every)
    sentence = found.sentence()
    assert sentence.startswith(f"{every} of {some} finding" if some else "Nothing was found") and sentence.endswith(".")
    assert ("Not stable" in sentence) == (every < some)
    assert (found.mark("features") == "") == (some == 0) and len(found.to_frame()) == 3 * len(answers)


def test_the_same_run_twice_is_stable_throughout(results):
    found = compare({"a": results, "b": results})
    assert found.found and found.stable == len(found.found) and not any(one.apart for one in found.standings)


def test_what_one_run_did_not_look_for_is_neither_stable_nor_lost(results):
    found = compare({"a": results, "b": {**results, "deletion": replace(results["deletion"], findings=())}})
    assert found.stable == len(found.found) and [one.audit for one in found.elsewhere] == ["deletion"]
    assert found.sentence().endswith("1 other could not be looked for in every run.") and found.mark("deletion") == ""


def test_short_sentences_say_what_their_tables_say(results):
    same = results["faithfulness"].table.set_index("measure").loc["same decision", "estimate"]
    assert percent(same) in results["faithfulness"].plain
    deleted = results["deletion"].table
    ours = deleted[(deleted["vote"] == "uniform") & (deleted["among"] == "any class")].set_index("method")["estimate"]
    assert all(points(max(ours[name], 0.0)) in results["deletion"].plain for name in ("influence", "random"))
    for result in results.values():
        assert result.plain.endswith(".") and "p =" not in result.plain and len(result.plain) < 260
        assert {"good": 0, "neutral": 1, "bad": 2}[result.verdict] - 1 < result.news < 3


def test_the_report_marks_what_stands_and_gives_itself_as_json(study, results):
    lost = tuple(replace(one, stands=False) for one in results["consistency"].findings)
    other = {**results, "consistency": replace(results["consistency"], findings=lost)}
    marked = replace(study, standing=compare({"this run": results, "other": other}))
    report = report_of(marked, results=(results, {}))
    assert report.section("faithfulness").mark == "stable: 1 of 1 finding in both runs"
    assert report.section("consistency").mark.startswith("not stable")
    assert "stable: 1 of 1 finding" in render(report)
    found = json.loads(json.dumps(report.to_dict()))["parts"][0]
    assert found["light"] in ORDER and len(found["findings"]) == 3 and found["next"]
    told = next(one for one in found["sections"] if one["key"] == "faithfulness")
    assert len(told["data"]) == len(results["faithfulness"].table) and told["said"]


def test_words_are_explained_once_and_escaped():
    seen = set()
    html = str(glossed("<b>landmarks</b> and a landmark of the latent space", seen))
    assert html.count('class="term"') == 2 and "<b>" not in html and seen == {"landmark", "latent space"}
    assert len({anchor(term) for term in GLOSSARY}) == len(GLOSSARY)
    assert "landmark-like" == str(glossed("landmark-like", set()))


def test_a_kernel_has_no_encoder_to_be_faithful_to():
    X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    model = Krepes(RBF(2.0), m=10, h=3, augment=GaussianNoise(0.1), progress=False).fit(X[:50])
    bare = Study(model, X[50:], counterfactual=False)
    found = run_audits(bare, {"trust": AUDITS["trust"]})[0]
    rule = light(bare, found, "decides like")
    assert rule.light == "grey" and re.search("no encoder", rule.measured)
    assert light(bare, found, "held-out").light == "amber" and isinstance(found["trust"].table, pd.DataFrame)
