"""Halves of a model's landmarks, against models fitted with these landmarks alone; kappa over draws, by counting."""

import numpy as np
import pytest
import torch

from krepes.attribution import attribute
from krepes.audit import class_coverage, coverage_of_draws
from krepes.audit.halves import half_models
from krepes.audit.questions import coverage
from krepes.audit.study import Study
from krepes.kernels import RBF
from krepes.model import Krepes
from krepes.reproduce.draws import of_moments
from krepes.views import GaussianNoise

SETTINGS = {"h": 3, "augment": GaussianNoise(0.1), "centre": False, "cosine": False, "progress": False}


@pytest.mark.parametrize(("objective", "near"), [("barlow_twins", 1e-12), ("simclr", 1e-6)])
def test_a_half_is_the_model_of_its_landmarks(generator, objective, near):
    """Rows of SimCLR are stored in float32 and solved to a tolerance; moments are exact."""
    X = torch.randn(120, 4, generator=generator).double()
    model = Krepes(RBF(2.0), m=16, objective=objective, **SETTINGS).fit(X)
    seen = []
    for kept, omega in half_models(model, 2, seed=1):
        rows = model.landmarks_[kept].tolist()
        damping = model.solution_.damping
        alone = Krepes(RBF(2.0), landmarks=rows, objective=objective, damping=damping, **SETTINGS).fit(X)
        wanted = attribute(alone, X[:1]).omega
        np.testing.assert_allclose(omega, wanted, rtol=0, atol=near * float(wanted.max()))
        seen.append(kept.tolist())
    assert seen[0] != seen[1] and all(len(kept) == 8 for kept in seen)
    assert len(model.landmark_ids_) == 16 and len(model.K_mm_) == 32, "the model itself is left as it was"


def test_p_counts_the_orders_that_need_no_more():
    labels = [0] * 5 + [1] * 5
    found = class_coverage(torch.arange(10.0), labels, orders=400)
    assert found.p == (1 + int((found.orders <= found.kappa).sum())) / 401
    first = class_coverage(torch.tensor([1.0] * 4 + [9.0] + [8.0] + [0.0] * 4), labels, orders=2000)
    assert first.kappa == 2 and first.p == pytest.approx(5 / 9, abs=0.04)  # two draws of different classes
    assert first.orders.float().mean() == pytest.approx(first.random)


def drawn(omega, draws, generator):
    """Random halves of the landmarks, all in the order of one strength."""
    halves = [torch.randperm(len(omega), generator=generator)[: len(omega) // 2] for _ in range(draws)]
    return [(kept, omega[kept]) for kept in halves]


def test_the_mean_over_draws_is_compared_with_shuffles_that_all_draws_share(generator):
    labels = np.array([0, 1, 2, 0] * 5)
    draws = drawn(torch.rand(20, generator=generator), 4, generator)

    def mean_of(labels, unmet=np.nan):
        kappas = []
        for kept, omega in draws:
            seen = labels[kept[omega.argsort(descending=True)].numpy()].tolist()
            kappas.append(next((k for k in range(1, 11) if len(set(seen[:k])) == 3), unmet))
        return np.nanmean(kappas)

    mean, chance, p = coverage_of_draws(draws, labels, orders=50, seed=3)
    assert mean == pytest.approx(mean_of(labels))
    shuffles = torch.rand(50, 20, generator=torch.Generator().manual_seed(3)).argsort(1).numpy()
    means = [mean_of(labels[order]) for order in shuffles]
    assert chance == pytest.approx(np.nanmean(means))
    at_least = [mean_of(labels[order], unmet=11) for order in shuffles]
    assert np.mean(at_least) > np.nanmean(means), "some shuffles leave a class unmet"
    assert p == pytest.approx((1 + sum(value <= mean_of(labels, unmet=11) + 1e-9 for value in at_least)) / 51)
    assert all(np.isnan(value) for value in coverage_of_draws(draws, labels, classes=[0, 1, 2, 3], orders=5))


def test_draws_that_share_landmarks_have_even_p_values_too(generator):
    """Means over halves of one order vary more than those of orders of their own: a null of such flags one in nine."""
    labels = [i % 5 for i in range(60)]
    p = [
        coverage_of_draws(drawn(torch.rand(60, generator=generator), 10, generator), labels, orders=100)[2]
        for _ in range(300)
    ]
    assert 0.45 < np.mean(p) < 0.6 and np.mean(np.array(p) <= 0.05) <= 0.075 and np.mean(np.array(p) >= 0.95) <= 0.075


def test_orders_without_meaning_have_even_p_values(generator):
    """Under the null p is uniform: over 200 random strengths its mean is 0.5 or a little more, for ties count."""
    labels = [i % 4 for i in range(40)]
    p = [class_coverage(torch.rand(40, generator=generator), labels, orders=200).p for _ in range(200)]
    assert 0.47 < np.mean(p) < 0.65 and np.mean(np.array(p) <= 0.05) <= 0.09


def test_moments_of_kept_rows_are_those_of_a_pass(generator):
    """Rows are stored in float32: what an objective of moments makes of them agrees with its own pass to that."""
    X = torch.randn(120, 4, generator=generator).double()
    rows = Krepes(RBF(2.0), m=16, objective="simclr", tol=1e-3, **SETTINGS).fit(X)
    own = Krepes(RBF(2.0), m=16, objective="barlow_twins", **SETTINGS).fit(X)
    summed = of_moments(rows, "barlow_twins")
    torch.testing.assert_close(summed.data_.M, own.data_.M, rtol=0, atol=1e-6)
    assert summed.solution_.tol == own.solution_.tol < rows.solution_.tol, "rows are solved loosely, moments are not"
    assert summed.solution_.loss_after == pytest.approx(own.solution_.loss_after, rel=1e-4)
    assert rows.solution_.theta.shape == summed.solution_.theta.shape and rows.data_ is not summed.data_


def test_the_audit_of_a_model_says_what_halves_of_its_landmarks_need(generator):
    X = torch.randn(140, 4, generator=generator).double()
    labels = np.array(["a", "b", "c", "a"] * 35)
    model = Krepes(RBF(2.0), m=24, **SETTINGS).fit(X[:120])
    study = Study(model, X[120:], labels=(labels[:120], labels[120:]), seed=3)
    table = coverage.measure(study).table.set_index("order")
    halves = list(half_models(model, coverage.DRAWS, seed=3, tol=coverage.LOOSE))
    of_landmarks = labels[model.landmarks_.numpy()]
    mean, chance, p = coverage_of_draws(halves, of_landmarks, classes=labels[:120], seed=3)
    assert (table["estimate"][coverage.HALVES], table["p"][coverage.HALVES]) == (mean, p)
    assert table["estimate"][coverage.SHUFFLED] == chance and coverage.DRAWS >= 10
    met = [set(of_landmarks[kept.numpy()]) == {"a", "b", "c"} for kept, _ in halves]
    assert table["estimate"][coverage.MET] == sum(met)
    rows = Krepes(RBF(2.0), m=24, objective="simclr", **SETTINGS).fit(X[:120])
    without = coverage.measure(Study(rows, X[120:], labels=(labels[:120], labels[120:])))
    assert "the objective compares rows, and each half would take passes over the data" in undrawn(without)  # no halves


def undrawn(exhibit):
    """Return why halves were not drawn, after a check that sentence and view say it."""
    table = exhibit.table
    assert coverage.HALVES not in set(table["order"])
    why = table.set_index("order")["class"][coverage.UNDRAWN]
    assert coverage.sentence(table).endswith(f" was not drawn: {why}.") and coverage.verdict(table)
    (view,) = coverage.views(table)
    assert view.rows[-1][2] == f"not drawn: {why}" and view.columns[-1] == "p"
    return why


def test_halves_that_are_left_out_say_why(generator, monkeypatch):
    X = torch.randn(140, 4, generator=generator).double()
    labels = np.array(["a", "b", "c", "a"] * 35)
    model = Krepes(RBF(2.0), m=24, **SETTINGS).fit(X[:120])
    asked = Study(model, X[120:], labels=(labels[:120], labels[120:]))
    size = model.solution_.theta.numel()
    monkeypatch.setattr(coverage, "LARGEST", size - 1)
    assert (
        undrawn(coverage.measure(asked))
        == f"the step has {size:,} coefficients, and halves are tried up to {size - 1:,}"
    )
    monkeypatch.setattr(coverage, "LARGEST", size)
    view = coverage.views(coverage.measure(asked).table)[0]
    assert [row[3] for row in view.rows][:2] != ["–", "–"] and view.rows[0][3] != "–" and view.rows[1][3] == "–"
    rare = np.array(["rare"] * 120, dtype=object)
    rare[model.landmarks_.numpy()] = [f"class {i}" for i in range(24)]
    rare = np.where(rare == "rare", "class 0", rare)
    alone = Study(model, X[120:], labels=(rare, ["class 0"] * 20))
    assert undrawn(coverage.measure(alone)) == "none of 10 halves of the 24 landmarks meets every class"


@pytest.mark.parametrize("asked", [{"objective": "kae", "h": 3}, {"objective": "kpca", "h": 30, "m": 24}])
def test_halves_that_span_too_little_are_left_out_and_no_objective_ends_the_audit(generator, asked):
    X = torch.randn(140, 4, generator=generator).double()
    labels = np.array(["a", "b", "c", "a"] * 35)
    model = Krepes(RBF(2.0), **{"m": 24, **SETTINGS, **asked}).fit(X[:120])
    found = coverage.measure(Study(model, X[120:], labels=(labels[:120], labels[120:])))
    assert (coverage.HALVES in set(found.table["order"])) == (asked["objective"] == "kae")
    if asked["objective"] != "kae":
        assert undrawn(found).startswith("a half of the landmarks has no step of its own (")


def test_p_is_valid_where_shuffles_leave_classes_unmet():
    """Rare classes that many halves miss: under the null small p-values are as rare as they should be."""
    found, g = [], torch.Generator().manual_seed(0)
    labels = np.array([0] * 30 + [1, 2])
    for trial in range(150):
        draws = drawn(torch.rand(32, generator=g), 3, g)
        found.append(
            coverage_of_draws(draws, labels[torch.randperm(32, generator=g).numpy()], orders=99, seed=trial)[2]
        )
    known = np.array(found)[~np.isnan(found)]
    assert len(known) > 40 and (known <= 0.1).mean() < 0.1 * len(found) / len(known) + 0.03
