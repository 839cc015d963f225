"""What if rows had not been there: the downdate against a pass without them, and against random sets."""

import numpy as np
import pytest
import torch
from torch import nn

from krepes.errors import InvalidInputError
from krepes.influence.linearised import coefficients
from krepes.influence.whatif import LazyReplay, without
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


class Without(ViewStream):
    """The same views of the rows that stay: a view depends on the number of its sample."""

    def __iter__(self):
        stay = torch.tensor([i for i in range(self.n) if i not in GONE])
        for chosen in stay.split(10):
            yield chosen, self.views_of(chosen)


@pytest.mark.parametrize("objective", ["barlow_twins", "vicreg", "spectral", "kpca", "kae"])
def test_model_without_rows_is_the_fit_of_a_pass_without_them(objective, X, encoder):
    settings = dict(objective=objective, m=10, h=3, landmarks="uniform", damping=0.1, progress=False)
    model = Krepes(encoder, **settings).fit(ViewStream(X, GaussianNoise(0.2), batch_size=10))
    found = without(model, GONE)
    expected = Krepes(encoder, **settings).fit(Without(X, GaussianNoise(0.2), batch_size=10))
    assert torch.equal(expected.landmarks_, model.landmarks_) and found.n_samples_ == 37
    kept = expected.moments_.M  # the fit believes n = 40; the mean over 37 rows is what counts
    torch.testing.assert_close(found.moments_.M, kept, rtol=1e-9, atol=1e-10)
    if objective not in {"vicreg"}:  # its covariance is unbiased by n, which a shortened stream does not say
        torch.testing.assert_close(found.A_, expected.A_, rtol=1e-5, atol=1e-7)
    assert model.moments_.n == 40


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
        "outcome", "before", "after", "change", "random mean", "random deviation", "size",
    ]  # fmt: skip
    assert abs(table["change"][0]) > 3 * table["random deviation"][0] and table["size"][0] >= 0.95
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
        without(model, [1])
