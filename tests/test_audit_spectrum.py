"""Label-free selection: entropy and RankMe at their extremes, invariances, from moments or from samples."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import entropy

from krepes.audit import rankme, select_by_spectrum, spectral_entropy
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise, ViewStream


def test_entropy_is_that_of_scipy_over_log_h(generator):
    B = torch.randn(9, 5, generator=generator).double()
    p = np.linalg.eigvalsh((B.T @ B).numpy())
    assert spectral_entropy(B.T @ B) == pytest.approx(entropy(p) / np.log(5), abs=1e-12)


def test_entropy_ignores_scale_and_rotation_and_spans_0_to_1(generator):
    B = torch.randn(9, 5, generator=generator).double()
    Q = torch.linalg.qr(torch.randn(5, 5, generator=generator).double()).Q
    assert spectral_entropy(7 * Q.T @ B.T @ B @ Q) == pytest.approx(spectral_entropy(B.T @ B), abs=1e-10)
    assert spectral_entropy(torch.eye(5)) == pytest.approx(1)
    assert spectral_entropy(torch.diag(torch.tensor([2.0, 0, 0]))) == 0


def test_rankme_counts_directions(generator):
    Z = torch.randn(50, 3, generator=generator) @ torch.randn(3, 10, generator=generator)
    assert rankme(torch.linalg.qr(Z.double()).Q[:, :3]) == pytest.approx(3, abs=1e-4)
    assert 1 < rankme(Z) < 3.01


@pytest.fixture(scope="module")
def models():
    X = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    fitted = {
        width: Krepes(RBF(width), m=40, h=8, augment=GaussianNoise(0.2), progress=False).fit(X)
        for width in (0.5, 2.0, 8.0)
    }
    return X, fitted


def test_winner_is_the_largest_of_its_criterion_and_the_curve_keeps_the_order(models):
    X, fitted = models
    for by in ("entropy", "entropy_kernel", "rankme"):
        found = select_by_spectrum(fitted, X, by=by)
        assert list(found.curve["value"]) == [0.5, 2.0, 8.0]
        assert found.winner == found.winners[by] == found.curve.sort_values(by)["value"].iloc[-1]


def test_rankme_from_moments_is_that_of_all_training_views(models):
    """The moments are those of both views of every sample; the roots of eigenvalues keep eight digits."""
    _, fitted = models
    found = select_by_spectrum(fitted).curve.set_index("value")["rankme"]
    for width, model in fitted.items():
        views = torch.cat([view.flatten(0, 1) for view in _views(model.stream_)])
        assert found[width] == pytest.approx(rankme(model.transform(views)), rel=1e-5)


def _views(stream: ViewStream):
    return [stream.views_of(torch.arange(stream.n))]


def test_refusals(models):
    X, fitted = models
    with pytest.raises(InvalidInputError, match="by='accuracy' must be one of"):
        select_by_spectrum(fitted, X, by="accuracy")
    with pytest.raises(InvalidInputError, match="got h=1"):
        spectral_entropy(torch.eye(1))
    with pytest.raises(InvalidInputError, match="trace of 0"):
        spectral_entropy(torch.zeros(3, 3))
    with pytest.raises(InvalidInputError, match="at least one model, got 0"):
        select_by_spectrum({})
    byol = Krepes(RBF(2.0), objective="byol", m=20, h=4, damping=1.0, augment=GaussianNoise(0.2), progress=False)
    rows = byol.fit(X[:60])
    with pytest.raises(InvalidInputError, match="'byol' keeps no moments"):
        select_by_spectrum({1: rows})
    assert isinstance(select_by_spectrum({1: rows}, X).curve, pd.DataFrame)
