"""Deletion and probes under every reading, against votes counted one by one and scikit-learn's own probabilities."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kendalltau
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.testing import assert_close

from krepes.audit import (
    LinearProbe,
    confidence_drop_of,
    deletion_readings,
    deletion_readings_of,
    faithfulness_of,
    predicted_labels,
)
from krepes.audit.deletions import AMONG, PREDICTED, class_places
from krepes.audit.kendall import tau_flattened
from krepes.audit.probes import halves
from krepes.audit.questions import deletion
from krepes.audit.rankings import first
from krepes.audit.study import Study
from krepes.audit.votes import VOTES
from krepes.encoders import MLP
from krepes.errors import InvalidInputError
from krepes.model import Krepes
from krepes.views import GaussianNoise
from oracles import audit as oracle

DRAWS = 3


@pytest.fixture
def problem(generator):
    """Embeddings of 12 samples and 30 landmarks of three classes, and two rankings of all landmarks."""
    E_test, E_landmarks = (torch.randn(n, 3, generator=generator).double() for n in (12, 30))
    labels = torch.randint(3, (30,), generator=generator)
    E_landmarks[:, 0] += 1.5 * labels
    ranked = {
        "near": first(-torch.cdist(E_test, E_landmarks), 30),
        "odd": first(torch.rand(12, 30, generator=generator), 30),
    }
    return ranked, E_test, E_landmarks, labels


@pytest.mark.parametrize("vote", VOTES)
@pytest.mark.parametrize("among", AMONG)
def test_every_reading_equals_counting_votes_after_each_deletion(problem, vote, among):
    ranked, E_test, E_landmarks, labels = problem
    table = deletion_readings_of(ranked, E_test, E_landmarks, labels, k=7, delete=4, draws=DRAWS, seed=5)
    found = table[(table["vote"] == vote) & (table["among"] == among)].set_index("method")
    draw = torch.Generator().manual_seed(5)
    chances = [torch.rand(12, 30, generator=draw).argsort(1).argsort(1).argsort(1).tolist() for _ in range(DRAWS)]
    plain = (E_test.numpy(), E_landmarks.numpy(), labels.tolist(), 7, 4, vote, among == PREDICTED)
    for method, ranking in ranked.items():
        wanted = oracle.deletion_reading(ranking.tolist(), chances, *plain)
        np.testing.assert_allclose(
            found.loc[method, ["estimate", "random", "matched"]].astype(float), wanted, atol=1e-12
        )
        assert found.loc[method, "times_random"] == pytest.approx(
            wanted[0] / wanted[1] if wanted[1] > 0 else np.nan, nan_ok=True
        )
    assert found.loc["random", "estimate"] == pytest.approx(wanted[1] if among != PREDICTED else wanted[2], abs=1e-12)


def test_the_plain_reading_is_the_deletion_that_there_was_before(problem):
    ranked, *rest = problem
    table = deletion_readings_of(ranked, *rest, k=7, delete=4, draws=1).set_index(["vote", "among", "method"])
    for vote in VOTES:
        before = confidence_drop_of(ranked, *rest, k=7, delete=4, vote=vote).set_index("method")
        for column in ("before", "estimate", "low", "high"):
            found = table.loc[(vote, "any class")].loc[list(ranked), column]
            pd.testing.assert_series_equal(found, before[column])


def test_pieces_of_samples_do_not_change_what_is_not_random(problem, monkeypatch):
    ranked, *rest = problem
    whole = deletion_readings_of(ranked, *rest, k=7, delete=4)
    monkeypatch.setattr("krepes.audit.deletions.PIECE", 5)
    parts = deletion_readings_of(ranked, *rest, k=7, delete=4)
    ours = whole["method"] != "random"
    pd.testing.assert_series_equal(whole["estimate"][ours], parts["estimate"][ours])


def test_a_ranking_too_short_for_the_predicted_class_deletes_fewer(problem):
    ranked, *rest = problem
    table = deletion_readings_of({"odd": ranked["odd"][:, :4]}, *rest, k=7, delete=4).set_index(["among", "method"])
    assert (table.loc[("any class", "odd"), "deleted"] == 4).all()
    assert (table.loc[("predicted class", "odd"), "deleted"] < 4).all()


def study_of(y, test):
    """A study of an untrained encoder with 120 landmarks, whose classes are those of ``y``."""
    torch.manual_seed(0)
    X = torch.randn(len(y) + len(test), 12)
    X[:, 0] += 0.5 * torch.tensor([*y, *test])
    encoder = MLP(12, width=64, depth=1, out=8).eval()
    model = Krepes(encoder, m=120, h=4, augment=GaussianNoise(0.1), progress=False).fit(X[: len(y)])
    return Study(model, X[len(y) :], labels=(y, test), counterfactual=False)


def test_the_audit_deletes_as_many_of_the_predicted_class_as_it_says():
    study = study_of([i % 6 for i in range(240)], [i % 6 for i in range(60)])
    sizes = pd.Series(study.of_landmarks(study.labels[0])).value_counts()
    assert sizes.min() >= 10 and study.rankings["influence"].shape == (60, 50)
    table = deletion.measure(study).table
    assert (table["deleted"] == 10).all() and (table["asked"] == 10).all()
    assert not any("fewer" in view.caption for view in deletion.views(table))
    whole = deletion_readings(study.model, study.X_test, study.of_landmarks(study.labels[0]), k=50, delete=10)
    order = ["vote", "among", "method"]
    pd.testing.assert_frame_equal(
        table.set_index(order)[list(whole.columns[3:])].sort_index(), whole.set_index(order).sort_index()
    )


def test_a_class_of_few_landmarks_is_said_to_lose_fewer():
    study = study_of([0] * 230 + [1] * 10, [0] * 30 + [1] * 30)
    table = deletion.measure(study).table
    table = table.assign(deleted=table["deleted"].where(table["among"] != PREDICTED, 7.25))
    captions = [view.caption for view in deletion.views(table)]
    assert [caption.endswith(" (some classes have fewer than 10: 7.25 on average)") for caption in captions] == [
        False,
        True,
    ] * 2


def test_orders_beyond_the_budget_are_ranked_in_pieces_to_the_same_figures(monkeypatch):
    study = study_of([i % 6 for i in range(240)], [i % 6 for i in range(60)])
    monkeypatch.setattr("krepes.audit.questions.deletion.PIECE", 16)
    monkeypatch.setattr("krepes.audit.deletions.PIECE", 16)
    whole = deletion.measure(study).table
    small = replace(study)
    monkeypatch.setattr("krepes.audit.orders.SHARE", 40 * 5 * 120 * 4 / study.model.memory_budget.bytes)
    parts = list(small.orders.pieces(16))
    assert [(part.start, part.stop) for part, _ in parts] == [(0, 32), (32, 60)]
    pd.testing.assert_frame_equal(deletion.measure(small).table, whole)


def test_places_within_a_class_are_counted_in_order():
    places = torch.tensor([[3, 0, 2, 1]])
    assert class_places(places, torch.tensor([0, 0, 1, 1])).tolist() == [[1, 0, 1, 0]]


def test_nobody_votes_like_that(problem):
    ranked, *rest = problem
    with pytest.raises(InvalidInputError, match="vote='loud' is unknown: choose one of uniform, weighted"):
        confidence_drop_of(ranked, *rest, k=7, delete=4, vote="loud")


@pytest.mark.parametrize("classes", [2, 4])
def test_a_probe_is_scikit_learns_with_its_scaling_folded_in(generator, classes):
    y = torch.randint(classes, (200,), generator=generator)
    E = torch.randn(200, 5, generator=generator).double() * 3 + y[:, None] + 7
    probe = LinearProbe.fit(E[:120], y[:120] * 10)
    wanted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(E[:120].numpy(), y[:120].numpy())
    assert_close(
        probe.probabilities(E[120:]), torch.from_numpy(wanted.predict_proba(E[120:].numpy())), rtol=0, atol=1e-10
    )
    assert_close(probe.decide(E[120:]), 10 * torch.from_numpy(wanted.predict(E[120:].numpy())))
    wide = probe.probabilities(E[120:], torch.tensor([5, *(10 * c for c in range(classes))]).sort().values)
    assert wide.shape[1] == classes + 1 and float(wide[:, 1].sum()) == 0


def test_predicted_labels_are_in_the_words_of_the_labels(generator):
    E = torch.randn(90, 2, generator=generator)
    words = np.where(E[:, 0] > 0, "right", "left")
    found, again = predicted_labels(E[:60], words[:60], E[60:], E[60:])
    assert found == again and np.mean(np.array(found) == words[60:]) > 0.8


def test_halves_share_every_class_and_no_sample():
    codes = torch.tensor([0, 1, 0, 1, 1, 2, 0, 2, 1])
    first_half, second_half = halves(codes)
    assert sorted([*first_half.tolist(), *second_half.tolist()]) == list(range(9))
    assert set(codes[first_half].tolist()) == set(codes[second_half].tolist()) == {0, 1, 2}


def test_flattened_tau_is_scipys_and_its_interval_follows_samples(generator):
    logits = torch.randn(120, 4, generator=generator).double()
    P = torch.softmax(logits, 1)
    Q = torch.softmax(logits + 0.5 * torch.randn(120, 4, generator=generator), 1)
    found = tau_flattened(P, Q)
    assert float(found.estimate) == pytest.approx(kendalltau(P.numpy().ravel(), Q.numpy().ravel()).statistic)
    assert float(found.estimate) == pytest.approx(oracle.tau_b(P.numpy().ravel(), Q.numpy().ravel()))
    spread = np.std([
        float(tau_flattened(P[rows], Q[rows]).estimate)
        for rows in (torch.randint(120, (120,), generator=generator) for _ in range(100))
    ])
    assert float(found.high - found.low) == pytest.approx(2 * 1.96 * spread, rel=0.35)
    assert bool(tau_flattened(torch.ones(5, 2), P[:5, :2]).estimate.isnan())


def test_the_ceiling_is_the_encoder_against_itself_on_other_labels(generator):
    y = torch.randint(3, (400,), generator=generator)
    E = torch.randn(400, 6, generator=generator).double() + 2 * torch.nn.functional.one_hot(y, 6)
    table = faithfulness_of((E[:200], E[200:]), (E[:200], E[200:]), y[:200], y[200:]).set_index("measure")
    one, two = (LinearProbe.fit(E[:200][rows], y[:200][rows]).probabilities(E[200:]) for rows in halves(y[:200]))
    wanted = kendalltau(one.numpy().ravel(), two.numpy().ravel()).statistic
    assert table.loc["tau flattened", "ceiling"] == pytest.approx(wanted)
    assert table.loc["tau flattened", "estimate"] > 0.999 > table.loc["tau flattened", "ceiling"] > 0.5
    per_sample = [oracle.tau_b(a, b) for a, b in zip(one.numpy(), two.numpy(), strict=True)]
    assert table.loc["tau over classes", "ceiling"] == pytest.approx(np.mean(per_sample))
    assert np.isnan(table.loc["accuracy gap", "ceiling"])
    assert np.isnan(table.loc["accuracy gap", "apart"])
    lonely = faithfulness_of((E[:3], E[200:]), (E[:3], E[200:]), [0, 1, 1], y[200:].clamp_max(1))
    assert lonely["ceiling"].isna().all()


def test_what_the_ceiling_bounds_is_of_probes_that_share_no_label(generator):
    """A probe on the surrogate with one half of the labels, one on the encoder with the other; and the reverse."""
    E, Z = (torch.randn(260, d, generator=generator, dtype=torch.float64) for d in (6, 4))
    y = (E[:, 0] + Z[:, 0] + 0.5 * torch.randn(260, generator=generator, dtype=torch.float64) > 0).long()
    table = faithfulness_of((Z[:200], Z[200:]), (E[:200], E[200:]), y[:200], y[200:]).set_index("measure")
    first, second = halves(y[:200])
    P, Q = (
        [LinearProbe.fit(X[:200][part], y[:200][part]).probabilities(X[200:]) for part in (first, second)]
        for X in (Z, E)
    )
    pairs = ((P[0], Q[1]), (P[1], Q[0]))
    wanted = np.mean([kendalltau(a.flatten(), b.flatten()).statistic for a, b in pairs])
    assert table.loc["tau flattened", "apart"] == pytest.approx(wanted, abs=1e-9)
    alike = np.mean([float((a.argmax(1) == b.argmax(1)).double().mean()) for a, b in pairs])
    assert table.loc["same decision", "apart"] == pytest.approx(alike)
