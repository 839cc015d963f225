"""What if rows had not been there: the downdate against a pass without them, and against random sets."""

import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from krepes.engine.rows import collect_moments
from krepes.engine.solvers import solve
from krepes.errors import InvalidInputError
from krepes.influence.linearised import coefficients
from krepes.influence.whatif import LazyReplay
from krepes.kernels.classic import RBF
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.views import GaussianNoise, ViewStream

GONE = [2, 7, 11]


@pytest.fixture
def X(generator):
    return torch.randn(40, 5, generator=generator, dtype=torch.float64)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4)).double()


def refitted(model, places, objective):
    """The moments of a pass over the rest alone, with the same kernel and landmarks, and the steps from the start."""
    stay = torch.tensor([i for i in range(model.stream_.n) if i not in places])
    rest = [(stay, model.stream_.views_of(stay))]
    needs = dict(inputs=model.objective_.needs_inputs, trace=model.objective_.needs_trace, progress=False)
    moments = collect_moments(rest, model.kernel_, model.prepared_, model.K_mm_, **needs)
    assert moments.n == len(stay)
    return moments, solve(objective, moments, model.solution_.theta0, damping=model.solution_.damping, tol=1e-12)


@pytest.mark.parametrize("objective", ["barlow_twins", "vicreg", "spectral", "simple", "kpca", "kae"])
def test_model_without_rows_is_the_fit_of_a_pass_without_them(objective, X, encoder):
    model = Krepes(encoder, objective=objective, m=10, h=3, damping=0.1, tol=1e-12, progress=False)
    model.fit(ViewStream(X, GaussianNoise(0.2), batch_size=10))
    found = model.without(GONE)
    moments, expected = refitted(model, GONE, model.objective_)
    torch.testing.assert_close(found.moments_.M, moments.M, rtol=1e-12, atol=1e-13)
    for name in ("trace", "XX", "KX"):
        torch.testing.assert_close(getattr(found.moments_, name), getattr(moments, name), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.solution_.theta, expected.theta, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.embed(X[:4]), model.kernel_rows(X[:4]) @ expected.theta[:-1] + expected.theta[-1])
    assert found.n_samples_ == 37 and model.n_samples_ == model.moments_.n == 40
    assert not torch.allclose(found.A_, model.A_, rtol=1e-4)


def test_sets_that_share_rows_are_each_as_if_alone(X, encoder):
    model = Krepes(encoder, m=10, h=3, progress=False, memory_budget="8M")
    model.fit(ViewStream(X, GaussianNoise(0.2), batch_size=7))
    sets = [GONE, [2, 3], np.isin(np.arange(40), [7, 39])]
    for rows, found in zip(sets, model.without_each(sets), strict=True):
        alone = model.without(rows)
        torch.testing.assert_close(found.solution_.theta, alone.solution_.theta, rtol=1e-7, atol=1e-9)
        places = np.flatnonzero(rows) if np.asarray(rows).dtype == bool else rows
        torch.testing.assert_close(
            found.moments_.M, refitted(model, places, model.objective_)[0].M, rtol=1e-12, atol=1e-13
        )


def test_a_step_that_was_not_taken_is_not_forced_on_the_model_without_rows(X, encoder):
    model = Krepes(encoder, objective="kpca", m=10, h=3, landmarks="all", progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(ViewStream(X, GaussianNoise(0.2), p=1, batch_size=40))
        found = model.without(GONE)
    assert found.solution_.loss_after <= found.solution_.loss_before


def test_a_model_that_starts_at_the_encoder_loses_rows_too(X, encoder):
    model = Krepes(encoder, m=10, init="encoder", tol=1e-12, progress=False)
    model.fit(ViewStream(X, GaussianNoise(0.2), batch_size=10))
    found, stay = model.without(GONE), torch.tensor([i for i in range(40) if i not in GONE])
    rest = [(stay, model.stream_.views_of(stay))]
    moments = collect_moments(rest, model.pass_kernel_, model.prepared_, model.pass_gram_, progress=False)
    expected = model.solved(moments, damping=model.solution_.damping)
    torch.testing.assert_close(found.solution_.theta, expected.theta, rtol=1e-8, atol=1e-9)
    assert not torch.allclose(found.A_, model.A_, rtol=1e-4)


@pytest.mark.slow
def test_taking_rows_out_is_far_cheaper_than_a_refit(generator):
    """Ratio of two times taken side by side: 500 landmark points, 64 dimensions, 4,000 rows of which 20 go."""
    X = torch.randn(4000, 20, generator=generator)
    model = Krepes(RBF(4.0), m=250, h=64, augment=GaussianNoise(0.1), progress=False, damping=0.1)
    began = time.perf_counter()
    model.fit(X)
    fitted = time.perf_counter()
    model.without(range(20))
    assert time.perf_counter() - fitted < 0.5 * (fitted - began)


@pytest.fixture
def replay(X, encoder):
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=10)
    return LazyReplay.of(encoder, EmpiricalNTK(encoder), X[:8], stream, "barlow_twins", draws=2, progress=False)


def test_lazy_replay_without_rows_is_a_replay_of_the_moments_without_them(replay, X, encoder):
    stay = [i for i in range(40) if i not in GONE]
    rows = [
        torch.cat([rows for _, rows in replay.linearised.views(replay.stream.with_seed(s), 1, False)], 1)
        for s in (0, 1)
    ]
    kept = torch.cat([part[:, stay] for part in rows], dim=1)
    M = torch.einsum("ubi,vbj->uvij", kept, kept) / kept.shape[1]
    B = torch.zeros_like(replay.state()["B"])
    for _ in range(20):
        theta = coefficients(B).requires_grad_()
        Z = kept @ theta
        centred = Z - Z.mean(1, keepdim=True)
        U = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
        C = U[0].T @ U[1] / kept.shape[1]
        off = C.square().sum() - C.diagonal().square().sum()
        value = (1 - C.diagonal()).square().sum() + 0.0051 * off
        (g,) = torch.autograd.grad(value, theta)
        B = B - replay.steps.eta * g[: len(B)]
    torch.testing.assert_close(replay.state(GONE)["B"], B, rtol=1e-6, atol=1e-9)
    assert M.shape == replay.steps.moments.M.shape
    torch.testing.assert_close(
        replay.embed(X[:3], GONE), replay.linearised.rows(X[:3]) @ coefficients(B), rtol=1e-6, atol=1e-9
    )


def test_planted_outliers_stand_out_from_random_sets(encoder, X):
    X = X.clone()
    X[:4] = 6 * torch.ones(5)
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=10)
    replay = LazyReplay.of(encoder, EmpiricalNTK(encoder), X[:12], stream, "barlow_twins", draws=2, progress=False)
    table = replay.what_if(range(4), lambda embed: embed(X[20:21]).norm()[None], ["norm"], sets=20)
    assert table.columns.tolist() == [
        "outcome", "before", "after", "change", "random mean", "random deviation", "random below",
    ]  # fmt: skip
    assert abs(table["change"][0]) > 3 * table["random deviation"][0] and table["random below"][0] >= 0.95
    np.testing.assert_allclose(table["after"] - table["before"], table["change"])


def test_impossible_removals_are_refused(replay, X, encoder):
    for rows, message in (
        ([], "at least one"),
        ([40], "between 0 and 39"),
        (np.ones(3, bool), "one entry for each"),
        (range(40), "must stay"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            replay.state(rows)
    with pytest.raises(InvalidInputError, match="no function of second moments"):
        LazyReplay.of(encoder, EmpiricalNTK(encoder), X[:8], replay.stream, "simclr", progress=False)
    model = Krepes(encoder, objective="byol", m=8, h=3, progress=False).fit(replay.stream)
    with pytest.raises(InvalidInputError, match="out of moments only"):
        model.without([1])
    model = Krepes(encoder, m=8, h=3, progress=False).fit(replay.stream)
    for rows, message in (([], "at least one"), ([0.5], "places between"), (range(39), "two must stay")):
        with pytest.raises(InvalidInputError, match=message):
            model.without(rows)
    with pytest.raises(InvalidInputError, match="stream has 8 rows, the model was fitted on 40"):
        model.without([1], stream=ViewStream(X[:8], GaussianNoise(0.2)))
