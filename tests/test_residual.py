"""The surrogate that starts at the encoder: its pass, its restricted curvature and its step, against autograd."""

import pytest
import torch
from torch import nn
from torch.func import grad

from krepes.encoders.frozen import FrozenEncoder
from krepes.engine.residual import Residual, WithEmbedding, residual_gram, solve_from_encoder
from krepes.engine.rows import collect_moments
from krepes.errors import InvalidInputError
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.transforms import Cosine
from krepes.objectives import BarlowTwins, KernelPCA, SpectralContrastive, VICReg
from krepes.views import GaussianNoise, ViewStream

LOSSES = {
    "barlow_twins": BarlowTwins(eps=1e-5),
    "vicreg": VICReg(inv_reduction="nh", var_halved=True),
    "spectral": SpectralContrastive(),
}


@pytest.fixture
def problem(generator):
    X = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    kernel = WithEmbedding(Cosine(EmpiricalNTK(encoder)), FrozenEncoder(encoder))
    prepared = kernel.prepare(X[:6])
    K = residual_gram(kernel.kernel.rows(X[:6], prepared).K, 3)
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=8)
    return X, encoder, kernel, prepared, collect_moments(stream, kernel, prepared, K, progress=False)


def test_rows_are_the_kernel_with_the_embedding_beside_it(problem):
    X, encoder, kernel, prepared, moments = problem
    rows = kernel.rows(X, prepared).K
    torch.testing.assert_close(rows[:, :6], kernel.kernel.rows(X, prepared).K)
    torch.testing.assert_close(rows[:, 6:], encoder(X).detach())
    assert moments.q == 9 and kernel.describe()["embedding"]


@pytest.mark.parametrize("name", LOSSES)
def test_start_is_the_loss_of_the_encoder_and_the_step_lowers_it(name, problem):
    X, encoder, kernel, prepared, moments = problem
    residual, start = Residual(LOSSES[name], 3), torch.zeros(6, 3).double()
    views = ViewStream(X, GaussianNoise(0.2), batch_size=8).views_of(torch.arange(30))
    Z = torch.stack([encoder(view).detach() for view in views])
    Zbar = torch.nn.functional.pad(Z, (0, 1), value=1.0)
    M = torch.einsum("ubi,vbj->uvij", Zbar, Zbar) / 30
    plain = type(moments)(30, M, torch.zeros(3, 3).double())
    theta = torch.cat([torch.eye(3), torch.zeros(1, 3)]).double()
    torch.testing.assert_close(residual.value(moments, start), LOSSES[name].value(plain, theta))
    found = solve_from_encoder(LOSSES[name], moments, 6, 3)
    assert found.loss_after < found.loss_before and found.converged
    torch.testing.assert_close(found.theta[6:], theta)
    rows = torch.nn.functional.pad(kernel.rows(X[:4], prepared).K, (0, 1), value=1.0)
    torch.testing.assert_close(rows @ found.theta - encoder(X[:4]).detach(), rows[:, :6] @ found.theta[:6])


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_and_curvature_are_the_free_blocks_of_the_loss(name, problem, generator):
    moments, residual = problem[-1], Residual(LOSSES[name], 3)
    theta = 0.1 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        residual.gradient(moments, theta), grad(lambda x: residual.value(moments, x))(theta), rtol=1e-8, atol=1e-10
    )
    whole = LOSSES[name].linearise(moments, residual.whole(theta)).H.to_dense()
    found = residual.linearise(moments, theta)  # the first 18 of 30 numbers are those of A
    torch.testing.assert_close(found.H.to_dense(), whole[:18, :18])
    torch.testing.assert_close(found.H.diagonal.flatten(), whole.diagonal()[:18])


def test_what_has_no_residual_form_is_refused(problem):
    with pytest.raises(InvalidInputError, match="cannot start at the encoder"):
        Residual(KernelPCA(), 3)
    with pytest.raises(InvalidInputError, match="Set h=3"):
        Residual(BarlowTwins(), 3).value(problem[-1], torch.zeros(6, 4).double())
