"""The proxy audit: a planted proxy is found with its carrier, noise is not, and p-values are those of a null."""

import dataclasses

import numpy as np
import pytest
import torch

from krepes import registry
from krepes.audit import cross_group
from krepes.audit.groups import anchoring_test
from krepes.audit.permutation import PermutationTest, agreement_test, carrier_test, holm
from krepes.audit.questions import proxy
from krepes.audit.shuffles import landmark_orders
from krepes.audit.study import Study
from krepes.data.synthetic import applicants
from krepes.encoders import MLP
from krepes.model import Krepes
from krepes.views import GaussianNoise, ViewStream

N, T = 300, 120
PROXY = registry.load(registry.AUDITS["proxy"])


def study(strength, *, hidden=("group",), seed=0):
    people = applicants(N + T, seed=seed, proxy_strength=strength, encode_driver=False)
    torch.manual_seed(0)
    encoder = MLP(people.X.shape[1], width=32, depth=1, out=16).eval()
    stream = ViewStream(people.X[:N], GaussianNoise(people.jitter), seed=0)
    model = Krepes(encoder, m=60, h=8, progress=False).fit(stream)
    train, test = people.frame.iloc[:N], people.frame.iloc[N:]
    groups = {"group": (train["group"].tolist(), test["group"].tolist())}
    return Study(model, people.X[N:], tables=(train, test), groups=groups, hidden=hidden, inputs="table")


def test_a_hidden_group_is_given_away_by_its_district():
    found = PROXY(study(0.9))
    assert found.verdict == "bad" and "group was hidden and is still given away" in found.sentence
    assert "above all through district" in found.sentence
    carriers = found.table[found.table["measure"] == "carrier"].set_index("by")
    assert carriers["estimate"].sub(carriers["null"]).idxmax() == "district" and "group" not in carriers.index
    probe = found.table[(found.table["measure"] == "probe") & (found.table["by"] == "encoder")].iloc[0]
    assert probe["estimate"] > 0.6 and probe["p"] <= 0.01 and probe["null"] < 0.4


def test_without_a_proxy_nothing_is_found_in_most_draws():
    quiet = sum(PROXY(study(0.0, seed=seed)).verdict == "good" for seed in range(5))
    assert quiet >= 3  # three measures at 5 % each: an alarm now and then is what the level means


def test_a_column_that_the_encoder_sees_is_no_proxy_question():
    seen = study(0.9, hidden=())
    assert "a column that the encoder does not see" in PROXY.missing(seen)


def test_holm_equals_the_textbook_and_never_falls_with_p():
    p = torch.tensor([0.001, 0.2, 0.04, 0.01], dtype=torch.float64)
    torch.testing.assert_close(holm(p), torch.tensor([0.004, 0.2, 0.08, 0.03], dtype=torch.float64))
    assert float(holm(torch.full((5,), 0.5)).max()) == 1.0


def test_p_values_of_unrelated_labels_are_uniform():
    generator = torch.Generator().manual_seed(0)
    p = []
    for _ in range(200):
        first, second = (torch.randint(0, 3, (40,), generator=generator) for _ in range(2))
        p.append(float(agreement_test(first, second, draws=99, generator=generator).p))
    assert 0.02 <= np.mean(np.array(p) <= 0.05) <= 0.09 and 0.4 < np.mean(p) < 0.65


def test_a_perfect_agreement_has_the_smallest_p_there_is():
    labels = torch.arange(30) % 3
    found = agreement_test(labels, labels, draws=99, generator=torch.Generator().manual_seed(0))
    assert float(found.observed) == 1.0 and float(found.p) == 0.01 and 0.2 < float(found.null) < 0.5


def test_a_share_that_ties_with_its_null_is_not_below_it():
    found = PermutationTest.of(torch.tensor([0.5]), torch.full((9, 1), 0.5 + 1e-16))
    assert float(found.p) == 1.0


def test_the_carrier_equals_a_regression_over_all_pairs_times_the_gap():
    generator = torch.Generator().manual_seed(0)
    t, m, c = 7, 5, 3
    v = torch.rand(t, m, c, generator=generator, dtype=torch.float64)
    gap = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64)
    own, of_landmark = torch.randint(0, 3, (t,), generator=generator), torch.randint(0, 3, (m,), generator=generator)
    found = carrier_test(v, gap, own, of_landmark, draws=3, generator=generator)
    same = (own[:, None] == of_landmark).double().flatten().numpy()
    for column in range(c):
        slope = np.polyfit(v[..., column].flatten().numpy(), same, 1)[0]
        assert float(found.observed[column]) == pytest.approx(slope * float(gap[column]), rel=1e-9)


def test_anchoring_in_the_own_group_equals_loops_over_orders_of_the_landmarks():
    generator = torch.Generator().manual_seed(3)
    top, of_test = torch.randint(0, 6, (25,), generator=generator), torch.randint(0, 3, (25,), generator=generator)
    of_landmark = torch.tensor([0, 1, 2, 2, 1, 1])
    found = anchoring_test(top, of_landmark, of_test, draws=40, seed=5)
    shares = [
        np.mean([int(of_landmark[order[a]]) == g for a, g in zip(top.tolist(), of_test.tolist(), strict=True)])
        for order in landmark_orders(6, draws=40, seed=5).tolist()
    ]
    assert float(found.observed[0]) == pytest.approx(shares[0]) and float(found.null[0]) == pytest.approx(
        np.mean(shares[1:])
    )
    assert float(found.p[0]) == pytest.approx((1 + sum(s >= shares[0] - 1e-9 for s in shares[1:])) / 41)
    whole = cross_group({"x": top[:, None]}, of_landmark.tolist(), of_test.tolist(), seed=5)["x"]
    assert float(whole.own.observed[0]) == pytest.approx(shares[0])
    assert set(whole.to_frame()["p_own"]) == {float(whole.own.p[0])}


def test_one_landmark_for_everyone_is_no_proof_of_anchoring():
    """60 samples of one group follow one landmark: shuffled samples look sure, shuffled landmarks do not."""
    top, of_test = torch.zeros(100, dtype=torch.int64), torch.tensor([0] * 60 + [1] * 40)
    top[60:] = torch.arange(40) % 9 + 1
    of_landmark = torch.arange(10) % 2
    by_samples = agreement_test(of_test, of_landmark[top], draws=199, generator=torch.Generator().manual_seed(0))
    by_landmarks = anchoring_test(top, of_landmark, of_test, draws=199)
    assert float(by_samples.p) == 0.005 and float(by_landmarks.p) > 0.05


def test_weights_of_attracting_landmarks_give_their_agreement_minus_that_of_all():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 15, generator=generator)
    v = torch.rand(6, 15, 4, generator=generator, dtype=torch.float64)
    W = proxy._weights(scores)
    for t in range(6):
        top = scores[t].argsort(descending=True)[:10]
        w = scores[t, top].clamp_min(0).double()
        wanted = (w[:, None] * v[t, top]).sum(0) / w.sum() - v[t].mean(0)
        torch.testing.assert_close(W[t] @ v[t], wanted)


def test_a_column_that_attracting_landmarks_share_by_chance_carries_nothing(monkeypatch):
    """The p of a carrier is never below that of its gap among shuffled landmarks, which an interval does not see."""
    made = study(0.9)
    wide, table = proxy.ShuffledGaps.test, {}

    def chance(self, variant):
        table["found"] = wide(self, variant)
        return dataclasses.replace(table["found"], p=torch.ones_like(table["found"].p))

    before = PROXY(made).table
    monkeypatch.setattr(proxy.ShuffledGaps, "test", chance)
    after = PROXY(made).table
    carried = [frame[frame["measure"] == "carrier"].set_index("by") for frame in (before, after)]
    assert carried[0].loc["district", "p_corrected"] <= 0.05 and set(carried[1]["p_corrected"]) == {1.0}
    assert (carried[0]["p"].to_numpy() >= table["found"].p.numpy() - 1e-12).all()
