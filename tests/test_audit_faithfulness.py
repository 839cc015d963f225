"""Surrogate faithfulness: probes, rank correlation and deletion, against pair loops and refitted classifiers."""

import sys

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from sklearn.datasets import load_digits
from torch.testing import assert_close

from krepes.audit import confidence_drop, confidence_drop_of, faithfulness, faithfulness_of, kendall, rankings
from krepes.audit.kendall import tau_over_classes, tau_over_samples
from krepes.audit.rankings import first, held_landmarks, landmark_samples
from krepes.encoders import MLP, FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise
from oracles import audit as oracle

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    X = torch.tensor(data.data[order] / 16, dtype=torch.float32)
    return X, data.target[order]


@pytest.fixture(scope="module")
def model(digits):
    torch.manual_seed(0)
    encoder = MLP(64, out=16, width=32)
    return Krepes(encoder, m=150, h=20, augment=GaussianNoise(0.1), progress=False).fit(digits[0][:800])


def test_tau_over_classes_equals_the_pair_loop_with_ties(generator):
    P, Q = (torch.randint(4, (30, 6), generator=generator).double() for _ in range(2))
    P[0] = 1.0
    found = tau_over_classes(P, Q)
    assert bool(found[0].isnan())
    wanted = torch.tensor([oracle.tau_b(p, q) for p, q in zip(P[1:].numpy(), Q[1:].numpy(), strict=True)])
    assert_close(found[1:], wanted, **TIGHT)


def test_tau_over_classes_does_not_depend_on_pieces(generator):
    P, Q = (torch.rand(30, 5, generator=generator) for _ in range(2))
    whole = tau_over_classes(P, Q)
    assert_close(tau_over_classes(P, Q, memory_budget=8 * 7 * 4 * 8 * 10), whole)  # seven samples of ten pairs


def test_tau_over_samples_is_kendalls_and_its_interval_holds_the_truth(generator):
    """Gaussian pairs of correlation r have tau = 2/π asin(r)."""
    truth, held = 2 / np.pi * np.arcsin(0.7), []
    for _ in range(200):
        a, e = torch.randn(2, 80, generator=generator)
        b = 0.7 * a + (1 - 0.7**2) ** 0.5 * e
        found = tau_over_samples(a, b)
        held.append(float(found.low) <= truth <= float(found.high))
    assert float(found.estimate) == pytest.approx(kendalltau(a.numpy(), b.numpy()).statistic)
    assert 0.90 <= np.mean(held) <= 0.99


def test_mean_concordance_in_pieces_equals_the_loop_over_pairs(generator, monkeypatch):
    monkeypatch.setattr(kendall, "AT_ONCE", 7)
    a, b = torch.randint(9, (2, 40), generator=generator).double()
    s, r = (torch.sign(x[:, None] - x) for x in (a, b))
    wanted = [sum(float(s[i, j] * r[i, j]) for j in range(40)) / 40 for i in range(40)]
    scale = float((s.square().mean() * r.square().mean()).sqrt())
    assert_close(kendall._projection(a, b), torch.tensor(wanted, dtype=torch.float64) / scale, **TIGHT)


def test_constant_probabilities_have_no_tau():
    found = tau_over_samples(torch.ones(5), torch.arange(5.0))
    assert bool(found.estimate.isnan())
    assert (float(found.low), float(found.high)) == (-1.0, 1.0)


def test_an_encoder_is_perfectly_faithful_to_its_mirror_image(generator):
    y = torch.randint(3, (400,), generator=generator)
    E = torch.randn(400, 6, generator=generator).double() + 2 * torch.nn.functional.one_hot(y, 6)
    table = faithfulness_of((E[:200], E[200:]), (-E[:200], -E[200:]), y[:200], y[200:]).set_index("measure")
    assert table.loc["accuracy gap", "estimate"] == 0
    assert table.loc["same decision", "estimate"] == 1
    assert table.loc["tau over classes", "estimate"] > 0.999
    assert bool((table.loc["tau over samples", "estimate"] > 0.999).all())


def test_noise_is_not_faithful(generator):
    y = torch.randint(3, (600,), generator=generator)
    E = torch.randn(600, 6, generator=generator).double() + 3 * torch.nn.functional.one_hot(y, 6)
    noise = torch.randn(600, 6, generator=generator)
    table = faithfulness_of((noise[:300], noise[300:]), (E[:300], E[300:]), y[:300], y[300:]).set_index("measure")
    assert table.loc["accuracy gap", "high"] < -0.3
    assert abs(table.loc["tau over classes", "estimate"]) < 0.15
    assert table.loc["encoder accuracy", "low"] > table.loc["surrogate accuracy", "high"]


def test_faithfulness_of_a_model_names_its_classes(model, digits):
    X, y = digits
    words = np.array([f"digit {label}" for label in y], dtype=object)
    table = faithfulness(model, X[:800], words[:800], X[800:1200], words[800:1200])
    per_class = table[table["measure"] == "tau over samples"]
    assert list(per_class["class"]) == [f"digit {c}" for c in range(10)]
    values = table.set_index("measure")["estimate"]
    assert values["surrogate accuracy"] - values["encoder accuracy"] == pytest.approx(values["accuracy gap"])
    assert values["tau over classes"] > 0.3


def test_deletion_equals_refitting_the_classifier_for_every_sample(generator):
    E_test, E_landmarks = (torch.randn(n, 3, generator=generator).double() for n in (25, 40))
    labels = torch.randint(3, (40,), generator=generator).numpy()
    ranked = {
        "near": first(-torch.cdist(E_test, E_landmarks), 6),
        "random": first(torch.rand(25, 40, generator=generator), 6),
    }
    found = confidence_drop_of(ranked, E_test, E_landmarks, labels, k=7, delete=5).set_index("method")["estimate"]
    for method, top in ranked.items():
        wanted = oracle.confidence_drop(top[:, :5].numpy(), E_test, E_landmarks, labels, 7)
        assert found[method] == pytest.approx(wanted, abs=1e-12)


def test_rankings_hold_every_baseline_and_do_not_depend_on_pieces(model, digits):
    X, _ = digits
    whole = rankings(model, X[800:900], k=10)
    parts = rankings(model, X[800:900], k=10, memory_budget=8 * 8 * 300 * 7)
    assert list(whole) == ["influence", "directional", "latent cosine", "kernel", "random", "input distance"]
    for method, top in whole.items():
        agree = (parts[method] == top).double().mean()
        # float32 kernels: pieces of another length may swap near ties.
        assert float(agree) > 0.99
    encoder = FrozenEncoder(model.kernel)
    E, E_landmarks = encoder.encode(X[800:900]), encoder.encode(landmark_samples(model))
    cosine = torch.nn.functional.cosine_similarity(E[:, None], E_landmarks, dim=2)
    assert_close(whole["latent cosine"], first(cosine, 10))
    distance = torch.cdist(X[800:900].double(), X[model.landmarks_].double())
    assert_close(whole["input distance"], first(-distance, 10))


def test_landmarks_in_a_file_are_ranked_as_those_in_memory(model, digits, monkeypatch):
    X = digits[0][800:860]
    whole = rankings(model, X, k=5, landmarks=held_landmarks(model, model.stream_))
    monkeypatch.setattr(
        sys.modules["krepes.audit.rankings"], "AT_ONCE", 8 * 64 * 13
    )  # thirteen samples and landmarks at a time
    monkeypatch.setattr(model, "memory_budget", 100_000)
    landmarks = held_landmarks(model, model.stream_)
    assert isinstance(landmarks, np.memmap), "150 landmarks of 256 bytes are more than an eighth of the budget"
    found = rankings(model, X, k=5, landmarks=landmarks, memory_budget=2**30)
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[method], whole[method]) for method in found)


def test_deleting_the_top_landmarks_costs_more_confidence_than_random_ones(model, digits):
    X, y = digits
    table = confidence_drop(model, X[800:1200], y[model.landmarks_], k=20).set_index("method")
    assert table.loc["influence", "low"] > table.loc["random", "high"]
    assert bool((table["before"] > 0.3).all())


def test_encode_leaves_the_encoder_as_it_was(digits):
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Dropout(0.5)).train()
    frozen = FrozenEncoder(encoder)
    assert_close(frozen.encode(digits[0][:10], size=3), frozen.encode(digits[0][:10]))
    assert encoder.training
    data = torch.utils.data.TensorDataset(digits[0][:10])
    assert_close(frozen.encode(data), frozen.encode(digits[0][:10]))


def test_refusals(model, digits, tmp_path):
    X, y = digits
    plain = Krepes(RBF(2.0), m=20, h=4, augment=GaussianNoise(0.1), progress=False).fit(X[:100])
    assert "latent cosine" not in rankings(plain, X[:5], k=3)
    with pytest.raises(InvalidInputError, match="no encoder to be faithful to"):
        faithfulness(plain, X[:50], y[:50], X[50:60], y[50:60])
    with pytest.raises(InvalidInputError, match="explains the kernel RBF"):
        confidence_drop(plain, X[:5], y[plain.landmarks_])
    with pytest.raises(InvalidInputError, match="k=21 landmarks were asked of m=20"):
        rankings(plain, X[:5], k=21)
    with pytest.raises(InvalidInputError, match="needs 1 <= k <= m - delete"):
        confidence_drop(model, X[:5], y[model.landmarks_], k=145)
    with pytest.raises(InvalidInputError, match="a single class"):
        faithfulness_of((X[:9], X[:9]), (X[:9], X[:9]), [1] * 9, [1] * 9)
    plain.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    with pytest.raises(InvalidInputError, match="does not hold its training data"):
        rankings(loaded, X[:5], k=3)
    with pytest.raises(InvalidInputError, match="3 landmarks were given for a model of m=20"):
        rankings(loaded, X[:5], k=3, landmarks=X[:3])
    assert_close(
        rankings(loaded, X[:5], k=3, landmarks=X[plain.landmarks_])["influence"],
        rankings(plain, X[:5], k=3)["influence"],
    )
