"""Audits of labels: coverage, consistency and cross-group attribution, against counting by hand."""

from math import comb

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from krepes.audit import class_coverage, cross_group, label_consistency
from krepes.audit.labels import shared_codes
from krepes.audit.permutation import holm
from krepes.audit.rankings import first
from krepes.audit.shuffles import landmark_orders
from krepes.errors import InvalidInputError
from oracles import audit as oracle

NAMES = np.array(["ant", "bee", "cat", "dog"], dtype=object)


@pytest.fixture
def problem(generator):
    """Scores (t, m) that favour landmarks of the sample's class, and the labels."""
    landmarks = torch.randint(4, (40,), generator=generator)
    truth = torch.randint(4, (300,), generator=generator)
    scores = torch.randn(300, 40, generator=generator) + 1.5 * (truth[:, None] == landmarks)
    return scores, NAMES[landmarks], NAMES[truth]


def test_codes_are_shared_and_1_is_not_the_word_1():
    names, (a, b, c) = shared_codes(a=[2, 1], b=torch.tensor([1]), c=["1"])
    assert names == [1, 2, "1"]
    assert [a.tolist(), b.tolist(), c.tolist()] == [[1, 0], [0], [2]]


def test_missing_labels_are_a_label_and_tables_of_labels_are_refused():
    names, (codes,) = shared_codes(test=["a", None, float("nan"), pd.NA, "a"])
    assert names == ["(missing)", "a"] and codes.tolist() == [1, 0, 0, 0, 1]
    with pytest.raises(InvalidInputError, match=r"shape \(2, 1\)"):
        shared_codes(test=[["a"], ["b"]])


def test_coverage_equals_counting(generator):
    for _ in range(20):
        omega = torch.rand(15, generator=generator)
        labels = torch.randint(4, (15,), generator=generator).tolist()
        found = class_coverage(omega, labels, classes=range(4))
        assert found.kappa == oracle.coverage(omega.tolist(), labels, range(4))
        covered = found.curve["covered"]
        assert covered.iloc[-1] == len(set(labels))
        assert covered.is_monotonic_increasing


def test_coverage_without_a_landmark_of_a_class_says_which():
    found = class_coverage(torch.rand(3), ["a", "b", "a"], classes=["a", "b", "c"])
    assert found.kappa is None
    assert found.missing == ("c",)
    assert found.verdict == "undefined: no landmark shows c."


def test_random_coverage_is_the_expected_wait_for_the_last_class():
    """E[κ] = 1 + Σ_k P(the first k are of one class), here with two classes of five; 20,000 orders leave 0.01."""
    found = class_coverage(torch.arange(10.0), [0] * 5 + [1] * 5, orders=20_000)
    assert found.kappa == 6
    assert found.random == pytest.approx(1 + sum(2 * comb(5, k) / comb(10, k) for k in range(1, 6)), abs=0.05)


@pytest.mark.parametrize("k", [1, 4, 10])
def test_consistency_equals_counting(problem, k):
    scores, landmark_labels, labels = problem
    top = first(scores, 10)
    table = label_consistency({"ours": top}, landmark_labels, labels, depths=[k]).set_index("metric")["estimate"]
    wanted = oracle.consistency(top.tolist(), list(landmark_labels), list(labels), k)
    assert_close(torch.tensor(table.to_numpy()), torch.tensor(wanted).double(), rtol=0, atol=1e-12)


def test_consistency_stands_beside_chance_and_counts_predictions(problem, generator):
    scores, landmark_labels, labels = problem
    top = {"ours": first(scores, 20), "random": first(torch.rand(300, 40, generator=generator), 20)}
    table = label_consistency(top, landmark_labels, labels, predictions=["ant"] * 300)
    assert sorted(table["k"].unique()) == [1, 2, 3, 5, 10, 20]
    values = table.set_index(["method", "metric", "k"])
    assert values.loc[("ours", "precision", 5), "low"] > values.loc[("random", "precision", 5), "high"]
    share_of_ant = (NAMES[0] == landmark_labels[top["ours"][:, 0]]).mean()
    assert values.loc[("ours", "majority_of_prediction", 1), "estimate"] == pytest.approx(share_of_ant)
    assert bool((table["low"] <= table["estimate"]).all() and (table["estimate"] <= table["high"]).all())


def test_shuffled_landmark_labels_give_chance(problem, generator):
    """Chance is the frequency of the sample's class among landmarks; 60 shuffles of 40 labels leave 1 % of noise."""
    scores, landmark_labels, labels = problem
    top = {"ours": first(scores, 10)}
    chance = np.mean([(landmark_labels == label).mean() for label in labels])
    shuffled = [
        label_consistency(top, landmark_labels[torch.randperm(40, generator=generator)], labels, depths=[10])
        for _ in range(60)
    ]
    precision = np.mean([table.set_index("metric").loc["precision", "estimate"] for table in shuffled])
    planted = label_consistency(top, landmark_labels, labels, depths=[10]).set_index("metric").loc["precision"]
    assert precision == pytest.approx(chance, abs=0.03)
    assert planted["low"] > chance + 0.2


def test_landmark_order_does_not_matter(problem, generator):
    scores, landmark_labels, labels = problem
    order = torch.randperm(40, generator=generator)
    one = label_consistency({"ours": first(scores, 10)}, landmark_labels, labels)
    two = label_consistency({"ours": first(scores[:, order], 10)}, landmark_labels[order], labels)
    pd.testing.assert_frame_equal(one, two)


def test_consistency_refuses_what_does_not_fit(problem):
    scores, landmark_labels, labels = problem
    top = {"ours": first(scores, 5)}
    with pytest.raises(InvalidInputError, match="K=6 is out of range: it must be between 1 and 5"):
        label_consistency(top, landmark_labels, labels, depths=[6])
    with pytest.raises(InvalidInputError, match="299 test labels were given for 300"):
        label_consistency(top, landmark_labels, labels[1:])
    with pytest.raises(InvalidInputError, match="name landmark 39, but there are labels of 39"):
        label_consistency(top, landmark_labels[1:], labels)
    with pytest.raises(InvalidInputError, match="one shape"):
        label_consistency({}, landmark_labels, labels)


def test_cross_group_counts_are_a_crosstab(problem):
    scores, landmark_groups, groups = problem
    top = first(scores, 3)
    found = cross_group({"ours": top}, landmark_groups, groups)["ours"]
    wanted = pd.crosstab(groups, landmark_groups[top[:, 0]])
    np.testing.assert_array_equal(found.counts, wanted.to_numpy())
    np.testing.assert_allclose(found.shares.sum(1), 1)
    frame = found.to_frame()
    assert bool((frame["low"] <= frame["share"]).all() and (frame["share"] <= frame["high"]).all())
    assert np.diag(found.lift).min() > 1
    assert np.diag(found.beyond).all() and found.beyond.sum() == 4


def test_null_of_the_matrix_equals_loops_over_orders_of_the_landmarks(problem):
    scores, landmark_groups, groups = problem
    top, groups = first(scores[:20], 1), np.where(groups[:20] == "dog", "eel", groups[:20])  # no sample is a dog
    found = cross_group({"ours": top}, landmark_groups, groups, seed=3)["ours"]
    orders = landmark_orders(40, draws=999, seed=3).tolist()
    names = ["ant", "bee", "cat", "dog", "eel"]
    counts = oracle.shuffled_counts(top[:, 0].tolist(), list(landmark_groups), list(groups), names, orders)
    assert found.groups == names
    np.testing.assert_array_equal(found.counts, counts[0])
    p = (1 + (counts[1:] >= counts[0]).sum(0)) / 1000
    p[:, 4] = p[3] = np.nan  # no landmark is an eel
    np.testing.assert_allclose(found.p, p)
    with np.errstate(invalid="ignore"):
        band = np.quantile(counts[1:], (0.05, 0.95), axis=0) / counts[0].sum(1, keepdims=True)
    np.testing.assert_allclose([found.null_low, found.null_high], band)
    tested = ~np.isnan(p)
    np.testing.assert_allclose(found.p_corrected[tested], holm(torch.tensor(p[tested])))
    assert np.isnan(found.p_corrected[~tested]).all()
    # The mean over shuffles is the expected share: 999 of them come within 0.03 of it.
    np.testing.assert_allclose(
        counts[1:, :3].mean(0) / counts[0, :3].sum(1, keepdims=True), found.expected[None].repeat(3, 0), atol=0.03
    )


def test_a_landmark_that_all_share_fools_the_interval_but_not_the_null():
    """Three landmarks come first for everyone: whatever group they are of, all lean on it. 60 draws of groups."""
    rng, sure, beyond = np.random.default_rng(0), [], []
    top = torch.from_numpy(rng.integers(0, 3, (200, 1)))
    for seed in range(60):
        landmark_groups, groups = rng.choice(list("ab"), 40), rng.choice(list("ab"), 200)
        found = cross_group({"ours": top}, landmark_groups, groups, seed=seed)["ours"]
        sure.append(bool((found.low > found.expected).any()))
        beyond.append(bool(found.beyond.any()))
    assert np.mean(sure) > 0.5
    assert np.mean(beyond) <= 0.05


def test_random_landmarks_have_a_lift_of_one(problem, generator):
    _, landmark_groups, groups = problem
    top = torch.randint(40, (20_000, 1), generator=generator)
    many = np.tile(groups, 67)[:20_000]
    found = cross_group({"random": top}, landmark_groups, many)["random"]
    np.testing.assert_allclose(found.lift, 1, atol=0.1)
    inside = (found.low <= found.expected) & (found.expected <= found.high)
    assert inside.mean() >= 0.8


def test_groups_without_landmarks_or_samples_are_noted():
    frame = cross_group({"ours": torch.tensor([[0], [1]])}, ["a", "b"], ["a", "c"])["ours"].to_frame()
    notes = frame.set_index(["group", "landmark_group"])["note"]
    assert notes["a", "c"] == "no landmark of this group"
    assert notes["b", "a"] == "no test sample of this group"
    assert notes["a", "a"] == ""
