"""Every moment objective against its loss on embeddings: a new one enters `CASES` and inherits the suite."""

import json
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from scipy.linalg import eigh
from torch.testing import assert_close

from krepes.engine.init import principal_component_init
from krepes.engine.moments import moments_of
from krepes.errors import InvalidInputError
from krepes.objectives import _dual
from krepes.objectives.barlow_twins import BarlowTwins
from krepes.objectives.kae import KernelAutoencoder
from krepes.objectives.kpca import KernelPCA
from krepes.objectives.simple import SimpleContrastive
from krepes.objectives.spectral import SpectralContrastive
from krepes.objectives.vicreg import VICReg
from oracles import moments as oracle

# float64 and 45 unknowns: only the round-off of sums in another order may differ.
TIGHT = dict(rtol=1e-10, atol=1e-11)
CURVATURE = dict(rtol=1e-9, atol=1e-10)
# Solves lose what the condition number takes: at the dampings below it stays under 1e6.
SOLVE = dict(rtol=1e-8, atol=1e-9)

CASES = {
    "barlow_twins": (BarlowTwins(), "barlow", dict(lam=0.0051, centre=True)),
    "barlow_twins-uncentred": (BarlowTwins(lam=0.2, centre=False), "barlow", dict(lam=0.2, centre=False)),
    "barlow_twins-eps": (BarlowTwins(eps=0.1), "barlow", dict(lam=0.0051, centre=True, eps=0.1)),
    "vicreg": (VICReg(std_target=0.6), "vicreg", dict(irls=True, target=0.6)),
    "vicreg-paper": (VICReg(hinge_curvature="none"), "vicreg", dict(irls=False)),
    "vicreg-authors": (
        VICReg(inv_reduction="nh", var_halved=True, cov_weight=3.0),
        "vicreg",
        dict(irls=True, nh=True, halved=True, cov=3.0),
    ),
    "spectral": (SpectralContrastive(), "spectral", dict(rho=0.0, pooled=False)),
    "spectral-rkhs": (SpectralContrastive(rho=0.3), "spectral", dict(rho=0.3, pooled=False)),
    "spectral-pooled": (SpectralContrastive(rho=0.3, pooled=True), "spectral", dict(rho=0.3, pooled=True)),
    "simple": (SimpleContrastive(), "simple", dict(rho=1e-2, pen=0.0)),
    "simple-penalised": (SimpleContrastive(rho=0.1, pen=0.7), "simple", dict(rho=0.1, pen=0.7)),
    "simple-triplets": (SimpleContrastive(rho=0.1), "triplets", dict(rho=0.1), 3),
    "kpca": (KernelPCA(), "kpca", dict(rho=0.0)),
    "kpca-rkhs": (KernelPCA(rho=0.2), "kpca", dict(rho=0.2)),
    "kae": (KernelAutoencoder(), "kae", dict(l2=1e-3, rho=0.0)),
    "kae-rkhs": (KernelAutoencoder(l2=0.1, rho=0.2), "kae", dict(l2=0.1, rho=0.2)),
}


@dataclass(frozen=True)
class Problem:
    """Noisy pairs under a linear kernel, whose features are explicit: n=40, q=8, h=5 and a generic theta."""

    X: torch.Tensor
    landmarks: torch.Tensor
    Kbar: torch.Tensor
    K: torch.Tensor
    theta: torch.Tensor
    moments: object


def problem(generator, n=40, q=8, h=5, d=11, p=2):
    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    clean = randn(n, d)
    X = torch.stack([clean + 0.3 * randn(n, d) + 0.2 * u for u in range(p)]) / d**0.5
    landmarks = X[:2, : q // 2].flatten(0, 1)
    rows = X @ landmarks.T
    Kbar = torch.cat([rows, torch.ones(p, n, 1, dtype=torch.float64)], dim=2)
    K = landmarks @ landmarks.T
    moments = moments_of(Kbar, K, diagonal=X.square().sum(2), X=X)
    return Problem(X, landmarks, Kbar, K, randn(q + 1, h), moments)


@pytest.fixture
def toy(generator):
    return problem(generator)


def loss_of(kind, options):
    options = {key: value for key, value in options.items() if key != "irls"}
    return partial(getattr(oracle, f"{kind}_loss"), **options)


def residual_of(kind, options):
    return partial(getattr(oracle, f"{kind}_residual"), **options)


@pytest.fixture(params=CASES)
def case(request, generator):
    """The objective, its oracle loss and residual, and a problem with the views it needs."""
    objective, kind, options, *p = CASES[request.param]
    return objective, loss_of(kind, options), residual_of(kind, options), problem(generator, p=p[0] if p else 2)


def test_value_equals_the_loss_on_embeddings(case):
    objective, loss, _, toy = case
    assert_close(objective.value(toy.moments, toy.theta), loss(toy, toy.theta), **TIGHT)
    assert objective.linearise(toy.moments, toy.theta).value == pytest.approx(float(loss(toy, toy.theta)), rel=1e-10)


def test_gradient_equals_autodiff_of_the_loss_on_embeddings(case):
    objective, loss, _, toy = case
    expected = oracle.gradient(loss, toy, toy.theta)
    assert_close(objective.gradient(toy.moments, toy.theta), expected, **TIGHT)
    assert_close(objective.linearise(toy.moments, toy.theta).gradient, expected, **TIGHT)


def test_curvature_equals_the_dense_gauss_newton_matrix(case):
    objective, _, residual, toy = case
    H = objective.linearise(toy.moments, toy.theta).H.to_dense()
    assert_close(H, oracle.gauss_newton(residual, toy, toy.theta), **CURVATURE)


def test_the_oracle_comparison_can_fail(toy):
    """A curvature that forgets the 2 of the squared norm, or a gradient half as long, must be caught."""
    objective, kind, options = CASES["barlow_twins"]
    lin = objective.linearise(toy.moments, toy.theta)
    with pytest.raises(AssertionError):
        dense = oracle.gauss_newton(residual_of(kind, options), toy, toy.theta)
        assert_close(lin.H.to_dense() / 2, dense, **CURVATURE)
    with pytest.raises(AssertionError):
        assert_close(lin.gradient / 2, oracle.gradient(loss_of(kind, options), toy, toy.theta), **TIGHT)


def test_curvature_is_symmetric_positive_with_its_exact_diagonal(case):
    objective, _, _, toy = case
    operator = objective.linearise(toy.moments, toy.theta).H
    H = operator.to_dense()
    assert_close(H, H.T, **CURVATURE)
    assert torch.linalg.eigvalsh((H + H.T) / 2)[0] > -1e-10 * H.diagonal().max()
    assert_close(operator.diagonal.reshape(-1), H.diagonal(), **CURVATURE)


@pytest.mark.parametrize("relative", [1e-4, 1e-1, 1e2])
@pytest.mark.parametrize("name", ["barlow_twins", "barlow_twins-uncentred", "barlow_twins-eps", "simple"])
def test_solve_equals_the_dense_inverse(name, toy, relative, generator):
    lin = CASES[name][0].linearise(toy.moments, toy.theta)
    H = lin.H.to_dense()
    damping = relative * float(lin.H.diagonal.mean())
    for r in (lin.gradient, torch.randn(lin.gradient.shape, generator=generator, dtype=torch.float64)):
        expected = torch.linalg.solve(H + damping * torch.eye(len(H), dtype=H.dtype), r.reshape(-1)).reshape(r.shape)
        assert_close(lin.solve(r, damping, 1e-12), expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()))


def preconditioned(lin, damping):
    """The inverse P⁻¹ of the preconditioner and the system it is for, both dense."""
    inverse = replace(lin.H, matvec=lin.preconditioner(damping)).to_dense()
    return inverse, lin.H.to_dense() + damping * torch.eye(len(inverse), dtype=torch.float64)


def test_preconditioner_is_symmetric_positive_definite(case):
    objective, _, _, toy = case
    lin = objective.linearise(toy.moments, toy.theta)
    inverse, _ = preconditioned(lin, 1e-2 * float(lin.H.diagonal.mean()))
    assert_close(inverse, inverse.T, rtol=1e-8, atol=1e-10 * float(inverse.abs().max()))
    assert torch.linalg.eigvalsh((inverse + inverse.T) / 2)[0] > 0


# By how much the condition number must fall at a small damping; twelve seeds stayed below half of each. Barlow Twins is
# not here: its low-rank form pays off for large q and h only, and its dual solve needs none.
CONDITION = {
    "vicreg": 1e-3,
    "vicreg-paper": 1e-4,
    "vicreg-authors": 1e-3,
    "spectral-rkhs": 0.8,
    "simple-penalised": 1e-3,
    "simple-triplets": 1e-2,
    "kpca-rkhs": 1e-3,
    "kae": 1e-2,
    "kae-rkhs": 1e-2,
}


@pytest.mark.parametrize("name", CONDITION)
def test_preconditioner_lowers_the_condition_number_at_the_start(name, generator):
    objective, _, _, *p = CASES[name]
    toy = problem(generator, n=60, q=16, h=4, d=20, p=p[0] if p else 2)
    start = torch.nn.functional.pad(principal_component_init(toy.K, 4), (0, 0, 0, 1))
    lin = objective.linearise(toy.moments, start)
    inverse, system = preconditioned(lin, 1e-4 * float(lin.H.diagonal.mean()))
    root = torch.linalg.cholesky((inverse + inverse.T) / 2)
    after = torch.linalg.cond(root.T @ system @ root)
    assert after < CONDITION[name] * torch.linalg.cond(system)


def test_gradient_is_differentiable_in_the_moments(case):
    """d/dM <v, g(M)> against finite differences of g along a move of the moments: what influence is built on."""
    objective, _, _, toy = case
    other = moments_of(toy.Kbar[:, :10], toy.K, X=toy.X[:, :10])
    v = torch.ones_like(toy.theta)

    def score(M, KX):
        return (v * objective.gradient(replace(toy.moments, M=M, KX=KX), toy.theta)).sum()

    G, G_KX = torch.func.grad(score, argnums=(0, 1))(toy.moments.M, toy.moments.KX)
    dM, dKX = other.M - toy.moments.M, other.KX - toy.moments.KX
    step = 1e-5
    ahead = score(toy.moments.M + step * dM, toy.moments.KX + step * dKX)
    behind = score(toy.moments.M - step * dM, toy.moments.KX - step * dKX)
    # Central differences: error of order step² beside round-off of order 1e-16/step, relative to the score's own scale.
    expected = (ahead - behind) / (2 * step)
    assert_close(
        (G * dM).sum() + (G_KX * dKX).sum(),
        expected,
        rtol=1e-6,
        atol=1e-6 * float(score(toy.moments.M, toy.moments.KX).abs()),
    )


INERT_SHIFT = ["barlow_twins", "barlow_twins-eps", "vicreg", "vicreg-paper", "simple", "simple-penalised", "kpca"]


@pytest.mark.parametrize("name", INERT_SHIFT)
def test_shift_is_inert_exactly(name, toy):
    """Where the loss does not see the shift, gradient, curvature and every inverse leave it at exactly zero."""
    objective = CASES[name][0]
    merged = moments_of(toy.Kbar[:, :17], toy.K, diagonal=toy.X[:, :17].square().sum(2), X=toy.X[:, :17])
    merged = merged + moments_of(toy.Kbar[:, 17:], toy.K, diagonal=toy.X[:, 17:].square().sum(2), X=toy.X[:, 17:])
    lin = objective.linearise(merged, toy.theta)
    damping = 1e-3 * float(lin.H.diagonal.mean())
    step = lin.preconditioner(damping)(lin.gradient)
    for result in (
        lin.gradient,
        lin.H @ toy.theta,
        step,
        *([lin.solve(lin.gradient, damping, 1e-12)] if lin.solve else []),
    ):
        assert torch.equal(result[-1], torch.zeros_like(result[-1]))


def test_barlow_twins_is_blind_to_the_scale_of_a_dimension(toy):
    for objective in (BarlowTwins(), BarlowTwins(centre=False)):
        along = (toy.theta * objective.gradient(toy.moments, toy.theta)).sum(0)
        assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-12)


def test_barlow_twins_curvature_has_at_most_one_rank_a_residual(generator):
    toy = problem(generator, q=16, h=3)
    for objective in (BarlowTwins(), BarlowTwins(centre=False)):
        H = objective.linearise(toy.moments, toy.theta).H.to_dense()
        assert torch.linalg.matrix_rank(H, hermitian=True, rtol=1e-10) <= 9 < len(H)


def test_barlow_twins_gradient_is_not_the_mean_of_batch_gradients(toy):
    objective = BarlowTwins()
    parts = [objective.gradient(moments_of(piece, toy.K), toy.theta) for piece in toy.Kbar.split(10, dim=1)]
    whole = objective.gradient(toy.moments, toy.theta)
    assert (torch.stack(parts).mean(0) - whole).norm() > 0.05 * whole.norm()


def test_barlow_twins_dual_by_conjugate_gradients_equals_dual_by_decomposition(toy, monkeypatch):
    lin = BarlowTwins().linearise(toy.moments, toy.theta)
    expected = lin.solve(lin.gradient, 0.1, 1e-12)
    monkeypatch.setattr(_dual, "DENSE", 0)
    assert_close(lin.solve(lin.gradient, 0.1, 1e-12), expected, **SOLVE)


def test_barlow_twins_refuses_a_constant_dimension(toy):
    theta = toy.theta.clone()
    theta[:-1, 2] = 0
    with pytest.raises(InvalidInputError, match=r"1 of 5 embedding dimensions do not vary.*first is 2"):
        BarlowTwins().linearise(toy.moments, theta)


def test_two_view_objectives_refuse_one_view(toy):
    one = moments_of(toy.Kbar[:1], toy.K)
    for objective in (BarlowTwins(), VICReg(), SpectralContrastive(), SimpleContrastive()):
        with pytest.raises(InvalidInputError, match="hold 1 views, this objective compares exactly 2"):
            objective.value(one, toy.theta)


def test_single_view_objectives_pool_the_views(toy):
    """Two views of n samples are worth one view of 2n samples."""
    flat = moments_of(
        toy.Kbar.flatten(0, 1)[None], toy.K, diagonal=toy.X.square().sum(2).reshape(1, -1), X=toy.X.flatten(0, 1)[None]
    )
    for objective in (KernelPCA(), KernelAutoencoder()):
        assert_close(objective.value(flat, toy.theta), objective.value(toy.moments, toy.theta), **TIGHT)
        assert_close(objective.gradient(flat, toy.theta), objective.gradient(toy.moments, toy.theta), **TIGHT)


REFUSED = {
    "lam=-1 is out of range": lambda: BarlowTwins(lam=-1.0),
    "cov_weight=-2 is out of range": lambda: VICReg(cov_weight=-2.0),
    "hinge_curvature='full' must be": lambda: VICReg(hinge_curvature="full"),
    "rho=-1 is out of range": lambda: SpectralContrastive(rho=-1.0),
    "pen=-1 is out of range": lambda: SimpleContrastive(pen=-1.0),
    "rho=-3 is out of range": lambda: KernelPCA(rho=-3.0),
    "l2=0 is out of range": lambda: KernelAutoencoder(l2=0.0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_weights_that_break_the_curvature_are_refused(message):
    with pytest.raises(InvalidInputError, match=message):
        REFUSED[message]()


def test_kernel_autoencoder_refuses_moments_without_inputs(toy):
    with pytest.raises(InvalidInputError, match="inputs=True"):
        KernelAutoencoder().value(moments_of(toy.Kbar, toy.K), toy.theta)


def test_kernel_pca_closed_form_is_stationary_and_optimal(toy, generator):
    objective = KernelPCA()
    best = objective.closed_form(toy.moments, 3)
    assert_close(objective.gradient(toy.moments, best), torch.zeros_like(best), rtol=0, atol=1e-11)
    A = best[:-1]
    assert_close(A.T @ toy.K @ A, torch.eye(3, dtype=A.dtype), rtol=0, atol=1e-12)
    start = torch.nn.functional.pad(principal_component_init(toy.K, 3), (0, 0, 0, 1))
    assert objective.value(toy.moments, best) < objective.value(toy.moments, start)


def test_kernel_pca_value_at_the_closed_form_is_what_the_components_leave(toy):
    """L* = E k(x,x) - Σ μ, with μ the top generalised eigenvalues, found here by scipy."""
    mu = eigh(toy.moments.pooled[:-1, :-1].numpy(), toy.K.numpy(), eigvals_only=True)[-3:].sum()
    objective = KernelPCA()
    value = objective.value(toy.moments, objective.closed_form(toy.moments, 3))
    assert_close(float(value), toy.moments.trace - float(mu), rtol=1e-10, atol=1e-12)


def test_simple_closed_form_is_stationary_on_the_constraint(toy):
    """There g = 2 K A Λ with Λ symmetric, the multiplier of AᵀKA = I: no direction along the constraint is left."""
    objective = SimpleContrastive(rho=0.0)
    theta = objective.closed_form(toy.moments, 3)
    A, g = theta[:-1], objective.gradient(toy.moments, theta)[:-1]
    multiplier = A.T @ g
    assert_close(g, toy.K @ A @ multiplier, rtol=0, atol=1e-12)
    assert_close(multiplier, multiplier.T, rtol=0, atol=1e-12)
    start = torch.nn.functional.pad(principal_component_init(toy.K, 3), (0, 0, 0, 1))
    assert objective.value(toy.moments, theta) < objective.value(toy.moments, start)


@pytest.mark.parametrize("name", [name for name in CASES if name != "simple-triplets"])
def test_swapping_the_views_changes_nothing(name, toy):
    objective = CASES[name][0]
    swapped = moments_of(toy.Kbar.flip(0), toy.K, diagonal=toy.X.flip(0).square().sum(2), X=toy.X.flip(0))
    assert_close(objective.value(swapped, toy.theta), objective.value(toy.moments, toy.theta), **TIGHT)
    assert_close(objective.gradient(swapped, toy.theta), objective.gradient(toy.moments, toy.theta), **TIGHT)


def test_objectives_describe_themselves_in_plain_values(case):
    objective, *_ = case
    described = json.loads(json.dumps(objective.describe()))
    assert described.pop("name") == objective.name
    assert type(objective)(**described) == objective
