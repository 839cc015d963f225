"""A refit must equal a fit of its own: same landmarks, same rows, another objective."""

import pytest
import torch

from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.objectives import BarlowTwins
from krepes.views import GaussianNoise, ViewStream


@pytest.fixture(scope="module")
def stream():
    X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return ViewStream(X, GaussianNoise(0.2), seed=1)


def fitted(stream, **changes):
    return Krepes(RBF(2.0), **{"m": 15, "h": 4, "progress": False, **changes}).fit(stream)


@pytest.mark.parametrize(
    ("first", "changes"),
    [
        ("barlow_twins", {"objective": BarlowTwins(lam=0.1)}),
        ("barlow_twins", {"objective": "vicreg", "h": 3}),
        ("barlow_twins", {"init": "kaiming", "damping": 1.0}),
        ("kae", {"objective": "spectral"}),
        ("simclr", {"objective": "byol"}),
    ],
)
def test_a_refit_is_the_fit_with_the_same_settings(stream, first, changes):
    start = fitted(stream, objective=first)
    before = start.dA_.clone()
    again, afresh = start.refit(**changes), fitted(stream, **{"objective": first, **changes})
    torch.testing.assert_close(again.dA_, afresh.dA_, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(again.transform(torch.ones(2, 4).double()), afresh.transform(torch.ones(2, 4).double()))
    assert torch.equal(start.dA_, before) and start.objective == first


def test_a_refit_refuses_what_needs_another_pass(stream):
    model = fitted(stream)
    with pytest.raises(InvalidInputError, match=r"\['m'\] act before the pass: fit again"):
        model.refit(m=20)
    with pytest.raises(InvalidInputError, match="'simclr' needs rows"):
        model.refit(objective="simclr")
    with pytest.raises(InvalidInputError, match="'kae' needs inputs"):
        model.refit(objective="kae")
    with pytest.raises(InvalidInputError, match="'kpca' needs traces"):
        model.refit(objective="kpca")
    with pytest.raises(InvalidInputError, match="'vicreg' needs moments"):
        fitted(stream, objective="simclr").refit(objective="vicreg")
