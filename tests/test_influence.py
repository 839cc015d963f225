"""Counterfactual influence against re-solved problems, the paper's formula, and what must hold of any influence."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from krepes import influence as inf
from krepes.errors import ConvergenceWarning, InvalidInputError, NotFittedError
from krepes.influence.adjoint import solve_adjoints
from krepes.influence.row import weighted_value
from krepes.kernels.classic import RBF
from krepes.linalg import LinearOperator
from krepes.model import Krepes
from krepes.objectives import (
    BYOL,
    BarlowTwins,
    KernelAutoencoder,
    KernelPCA,
    LeastSquares,
    SimCLR,
    SimpleContrastive,
    SpectralContrastive,
    SpectralTriplets,
    VICReg,
)
from krepes.objectives.base import Linearisation, MomentObjective
from krepes.objectives.custom import Composition, InnerOuter
from krepes.views import GaussianNoise, Identity, ViewStream
from oracles import influence as oracle

N, M, H = 23, 4, 3
DIFFERENCE = dict(rtol=1e-4, atol=1e-7)  # a middle difference of step 1e-5 of a smooth function, float64
EXACT = dict(rtol=1e-9, atol=1e-11)  # the same sums in another order; adjoint solves stop at 1e-12


class OwnBatch(Composition):
    """A batch of a loss of one's own that says how weights enter it."""


@weighted_value.register
def _(loss: OwnBatch, Z, w):
    return (w * ((Z[0] * Z[1]).sum(1) - 1).square()).sum()


@dataclass(frozen=True)
class Own(InnerOuter):
    """The mean over samples of (f(x_a) . f(x_b) - 1)²."""

    inner: object = lambda Z: (Z[0] * Z[1]).sum(1) - 1
    outer: object = lambda u: u.square().mean()
    batch: int = 8

    def batch_loss(self, index, Kbar):
        return OwnBatch(self.inner, self.outer)


def own(problem, theta, w):
    Z_a, Z_b = problem.Kbar @ theta
    return (w * ((Z_a * Z_b).sum(1) - 1).square()).sum()


def times(loss, count):
    """Return the loss as a sum in place of a mean."""
    return lambda problem, theta, w: count(problem) * loss(problem, theta, w)


# objective, its loss with weights, views
CASES = {
    "own": (Own(), own, 2),
    "barlow twins": (BarlowTwins(), oracle.barlow, 2),
    "barlow twins uncentred": (BarlowTwins(centre=False, lam=0.1), partial(oracle.barlow, centre=False, lam=0.1), 2),
    "vicreg": (VICReg(), oracle.vicreg, 2),
    "spectral": (SpectralContrastive(rho=0.1), partial(oracle.spectral, rho=0.1), 2),
    "simple": (SimpleContrastive(rho=0.2), partial(oracle.simple, rho=0.2), 2),
    "kpca": (KernelPCA(), oracle.kpca, 2),
    "kae": (KernelAutoencoder(), oracle.kae, 2),
    "byol": (BYOL(batch=8), oracle.byol, 2),
    "simclr": (SimCLR(tau=0.5, batch=8), partial(oracle.simclr, size=8, tau=0.5), 2),
    "byol sum": (BYOL(batch=8, reduction="sum"), times(oracle.byol, lambda p: p.Kbar.shape[1]), 2),
    "simclr sum": (
        SimCLR(tau=0.5, batch=8, reduction="sum"),
        times(partial(oracle.simclr, size=8, tau=0.5), lambda p: 2 * p.Kbar.shape[1]),
        2,
    ),
    "triplets": (SpectralTriplets(batch=8), oracle.triplets, 3),
}


@dataclass(frozen=True)
class Problem:
    """The rows the model was fitted on, held in memory for the oracle."""

    Kbar: torch.Tensor
    X: torch.Tensor
    K: torch.Tensor
    theta0: torch.Tensor


def samples(n=N, seed=0):
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def fit(objective, views=2, augment=None, **options):
    stream = ViewStream(samples(), augment or GaussianNoise(0.3), seed=5, batch_size=7, p=views)
    options = {"m": M, "h": H, "damping": 3.0, "tol": 1e-12, "progress": False} | options
    return Krepes(RBF(2.0), objective=objective, **options).fit(stream)


def problem_of(model):
    X = model.stream_.views_of(torch.arange(N))
    K = torch.stack([model.kernel_rows(x) for x in X])
    if model.moments_ is None:
        K = next(model.data_.batches(N))[..., :-1]  # stored in single precision: the loss sees these
    Kbar = torch.nn.functional.pad(K, (0, 1), value=1.0)
    return Problem(Kbar, X, model.K_mm_, model.solution_.theta0)


def damped_curvature(model):
    objective = model.objective_.at(model.data_, model.solution_.theta0)
    H = objective.linearise(model.data_, model.solution_.theta).H.to_dense(dtype=torch.float64)
    return H + model.solution_.damping_absolute * torch.eye(len(H), dtype=torch.float64)


def outcomes_of(model):
    T = samples(6, seed=1)
    v = torch.tensor([1.0, -2.0, 0.5])
    return [
        inf.similarity(model, T[:1], T[1:2]),
        inf.similarity(model, T[:1], T[1:2], reference=T, name="centred"),
        inf.pull(model, T[:1], T[1:3], T[3:], reference=T),
        inf.toward(model, T[:1], v),
        inf.group_distance(model, T[:3], T[3:]),
        inf.custom(model, T, lambda Z: Z.square().sum().log(), name="size"),
        inf.loss(model),
    ]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    objective, loss, views = CASES[request.param]
    model = fit(objective, views)
    outcomes = outcomes_of(model)
    return model, loss, outcomes, inf.influence_of(model, outcomes, progress=False)


def test_influence_equals_the_finite_difference_of_a_resolved_update(case):
    model, loss, outcomes, found = case
    problem, H = problem_of(model), damped_curvature(model)
    resolve = partial(oracle.one_update, partial(loss, problem), model.solution_.theta, H=H)
    for i in (0, 9, N - 1):  # one of each batch
        expected = oracle.finite_differences(outcomes, resolve, N, i)
        assert_close(torch.tensor(found.values[i]), expected, **DIFFERENCE)


def test_influences_sum_to_zero(case):
    _, _, _, found = case
    scale = np.abs(found.values).max(0)
    assert (np.abs(found.values.sum(0)) <= 1e-12 * N * scale).all()


def test_many_outcomes_equal_one_at_a_time(case):
    model, _, outcomes, found = case
    alone = [inf.influence_of(model, outcome, progress=False).values[:, 0] for outcome in outcomes]
    assert_close(found.values, np.stack(alone, axis=1), **EXACT)


def test_batches_of_the_stream_do_not_show(case):
    model, _, outcomes, found = case
    other = inf.influence_of(model, outcomes, stream=model.stream_.with_batch_size(4), progress=False)
    # Stored rows of a row objective are single precision, redrawn ones double.
    tolerance = EXACT if model.moments_ is not None else dict(rtol=1e-4, atol=1e-5)
    assert_close(other.values, found.values, **tolerance)
    small = inf.influence_of(model, outcomes, stream=model.stream_, memory_budget=20_000, progress=False)
    assert_close(small.values, found.values, **tolerance)


def test_influence_at_an_interpolating_optimum_is_that_of_the_minimum_itself():
    """With equal views the cross-correlation becomes the identity: no residual, so Gauss-Newton is Newton's matrix."""
    model = fit(BarlowTwins(lam=0.5), augment=Identity(), views=2, damping="auto", steps=60)
    assert model.solution_.loss_after < 1e-16
    outcomes, damping = outcomes_of(model)[:5], 1e-3
    found = inf.influence_of(model, outcomes, damping=damping, progress=False)
    loss = partial(oracle.barlow, problem_of(model), lam=0.5)
    resolve = partial(oracle.proximal_minimum, loss, model.solution_.theta, damping=damping, iterations=6)
    for i in (2, 17):
        expected = oracle.finite_differences(outcomes, resolve, N, i)
        # The residual of the fit, 1e-8 at most, over the damping is what Gauss-Newton leaves out.
        assert_close(torch.tensor(found.values[i]), expected, rtol=1e-4, atol=1e-5)


class PaperBarlowTwins(MomentObjective):
    """Phi(C) with C = E[u vᵀ], neither centred nor normalised, as the paper's appendix differentiates it."""

    name, lam = "paper_barlow_twins", 0.1

    def value(self, data, theta):
        return oracle.barlow_penalty(theta.T @ data.M[0, 1] @ theta, self.lam)

    def gradient(self, data, theta):
        C = theta.T @ data.M[0, 1] @ theta
        E = 2 * torch.where(torch.eye(len(C), dtype=torch.bool), C - 1, self.lam * C)
        return data.M[0, 1] @ theta @ E.T + data.M[0, 1].T @ theta @ E

    def linearise(self, data, theta):
        def residual(t):
            C = t.T @ data.M[0, 1] @ t
            eye = torch.eye(len(C), dtype=C.dtype)
            return (eye + (1 - eye) * self.lam**0.5) * (C - eye)

        J = torch.func.jacrev(residual)(theta).reshape(-1, theta.numel())
        H = 2 * J.T @ J
        product = LinearOperator(lambda v: (H @ v.reshape(-1)).reshape(v.shape), tuple(theta.shape), None)
        return Linearisation(float(self.value(data, theta)), self.gradient(data, theta), product)


def test_the_papers_barlow_twins_formula_is_the_special_case():
    model = fit(PaperBarlowTwins())
    problem, H, theta = problem_of(model), damped_curvature(model), model.solution_.theta
    outcomes = outcomes_of(model)
    found = inf.influence_of(model, outcomes, progress=False)
    for i in range(0, N, 5):
        d_theta = oracle.paper_barlow_influence(problem, theta, i, H, PaperBarlowTwins.lam)
        expected = torch.stack([(outcome.gradient(theta) * d_theta).sum() for outcome in outcomes])
        assert_close(torch.tensor(found.values[i]), expected, **EXACT)


def test_a_planted_fault_in_the_curvature_is_caught():
    model = fit(BarlowTwins())
    outcomes = outcomes_of(model)[:2]
    found = inf.influence_of(model, outcomes, damping=2 * model.solution_.damping_absolute, progress=False)
    resolve = partial(
        oracle.one_update, partial(oracle.barlow, problem_of(model)), model.solution_.theta, H=damped_curvature(model)
    )
    expected = oracle.finite_differences(outcomes, resolve, N, 0)
    with pytest.raises(AssertionError):
        assert_close(torch.tensor(found.values[0]), expected, **DIFFERENCE)


@pytest.mark.parametrize("name", ["barlow twins", "kae", "byol", "simclr"])
def test_averaged_form_is_the_mean_over_redrawn_views(name):
    objective, _, views = CASES[name]
    model = fit(objective, views)
    outcomes = outcomes_of(model)[:2]
    found = inf.influence_of(model, outcomes, draws=3, progress=False)
    seed = model.stream_.seed
    each = [
        inf.influence_of(model, outcomes, stream=model.stream_.with_seed(seed + k), progress=False).values
        for k in (1, 2, 3)
    ]
    assert_close(found.values, np.mean(each, axis=0), **EXACT)


def test_views_without_noise_average_to_the_realised_form():
    model = fit(BarlowTwins(), augment=Identity(), views=2)
    outcomes = outcomes_of(model)
    realised, averaged = (inf.influence_of(model, outcomes, draws=k, progress=False) for k in (0, 2))
    assert_close(realised.values, averaged.values, **EXACT)


def test_removals_add_up_and_groups_cover_everything():
    model = fit(BarlowTwins())
    found = inf.influence_of(model, outcomes_of(model), progress=False)
    first, second = np.arange(5), np.arange(5, 12)
    both = np.array(found.removal(np.concatenate([first, second])))
    assert_close(np.array(found.removal(first) + found.removal(second)), both, **EXACT)
    assert_close(both, -found.values[:12].sum(0) / N, **EXACT)
    assert_close(np.array(found.removal(np.arange(N) < 12)), both, **EXACT)
    totals = found.group_totals(np.where(np.arange(N) < 12, "young", "old"))
    assert totals.rows.to_dict() == {"old": N - 12, "young": 12}
    effects = totals[list(found.names)]
    assert_close(np.array(effects.loc["young"]), both, **EXACT)
    assert_close(np.array(effects.sum()), np.zeros(len(found.names)), **EXACT)


def test_top_rows_come_by_id_in_the_order_asked_for():
    model = fit(BarlowTwins())
    ids = [f"row-{i}" for i in range(N)]
    found = inf.influence_of(model, outcomes_of(model)[:2], ids=ids, progress=False)
    order = np.argsort(found.values[:, 1])
    lowest, highest = found.top(4, by="lowers"), found.top(4)
    assert list(lowest[lowest.outcome == "centred"].id) == [ids[i] for i in order[:4]]
    assert list(highest[highest.outcome == "centred"].row) == list(order[::-1][:4])
    strongest = found.top(N, by="magnitude").query("outcome == 'centred'")
    assert (strongest.influence.abs().diff().dropna() <= 0).all() and set(strongest.row) == set(range(N))
    frame = found.to_frame()
    assert len(frame) == 2 * N
    picked = frame.query("id == 'row-3' and outcome == 'centred'").influence.item()
    assert picked == found.values[3, 1]


def test_values_kept_on_disk_are_the_same(tmp_path):
    model = fit(BarlowTwins())
    outcomes = outcomes_of(model)
    kept = inf.influence_of(model, outcomes, path=tmp_path / "values.npy", progress=False)
    assert_close(np.array(kept.values), inf.influence_of(model, outcomes, progress=False).values, rtol=0, atol=0)
    assert_close(np.load(tmp_path / "values.npy"), np.array(kept.values), rtol=0, atol=0)


def test_a_loaded_model_answers_alike_given_its_stream(tmp_path):
    model = fit(BarlowTwins())
    model.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    expected = inf.influence_of(model, outcomes_of(model), progress=False)
    with pytest.raises(InvalidInputError, match="pass the ViewStream"):
        inf.influence_of(loaded, outcomes_of(loaded), progress=False)
    found = inf.influence_of(loaded, outcomes_of(loaded), stream=model.stream_, progress=False)
    assert_close(found.values, expected.values, **EXACT)


def test_a_loaded_row_objective_asks_for_its_rows(tmp_path):
    model = fit(SimCLR(tau=0.5, batch=8))
    model.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    outcome = outcomes_of(model)[0]
    with pytest.raises(NotFittedError, match="does not hold them"):
        inf.influence_of(loaded, outcome, progress=False)
    loaded.data_ = model.data_
    assert_close(
        inf.influence_of(loaded, outcome, progress=False).values,
        inf.influence_of(model, outcome, progress=False).values,
    )


def test_a_duplicated_row_has_its_twin_s_influence():
    X = samples()
    X[7] = X[3]
    model = Krepes(RBF(2.0), objective="kpca", m=M, h=H, progress=False).fit(X)
    found = inf.influence_of(model, outcomes_of(model), progress=False)
    assert_close(found.values[7], found.values[3], **EXACT)


def test_outcomes_are_what_their_names_say():
    model, T, v = fit(SpectralContrastive()), samples(6, seed=1), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    Z = model.transform(T)
    C = Z - Z.mean(0)

    def cosine(Z, i, others):
        return torch.stack([Z[i] @ Z[j] / (Z[i].norm() * Z[j].norm()) for j in others]).mean()

    expected = [
        cosine(Z, 0, [1]),
        cosine(C, 0, [1]),
        cosine(C, 0, [1, 2]) - cosine(C, 0, [3, 4, 5]),
        Z[0] @ v,
        (Z[:3].mean(0) - Z[3:].mean(0)).norm(),
        (Z**2).sum().log(),
        torch.tensor(model.solution_.loss_after, dtype=torch.float64),
    ]
    found = [outcome.value(model.solution_.theta) for outcome in outcomes_of(model)]
    assert_close(torch.stack(found), torch.stack(expected), **EXACT)


def test_the_gradient_of_an_outcome_is_that_of_its_value():
    model = fit(BYOL(batch=8))
    for outcome in outcomes_of(model):
        theta = model.solution_.theta.clone().requires_grad_()
        (expected,) = torch.autograd.grad(outcome.value(theta), theta)
        assert_close(outcome.gradient(theta.detach()), expected, **EXACT)


def test_refusals():
    model = fit(BarlowTwins())
    outcome = outcomes_of(model)[0]
    with pytest.raises(NotFittedError, match="does not hold them"):
        inf.influence_of(Krepes(RBF(2.0)), outcome)
    with pytest.raises(InvalidInputError, match="no outcome"):
        inf.influence_of(model, [])
    with pytest.raises(InvalidInputError, match=r"2 row ids were given for 23"):
        inf.influence_of(model, outcome, ids=[1, 2])
    with pytest.raises(InvalidInputError, match="take 184 bytes, the memory budget is 100"):
        inf.influence_of(model, outcome, memory_budget=100)
    with pytest.raises(InvalidInputError, match="5 samples, the model was fitted on 23"):
        inf.influence_of(model, outcome, stream=ViewStream(samples(5), GaussianNoise(0.3)), progress=False)
    with pytest.raises(InvalidInputError, match=r"'vector' must be a scalar tensor, its function returned \(3,\)"):
        inf.influence_of(model, inf.custom(model, samples(1), lambda Z: Z[0], name="vector"))
    with pytest.raises(InvalidInputError, match="by='best' is unknown"):
        inf.influence_of(model, outcome, progress=False).top(by="best")
    with pytest.raises(InvalidInputError, match=r"groups has shape \(2,\)"):
        inf.influence_of(model, outcome, progress=False).group_totals(["a", "b"])


def test_objectives_that_define_no_weights_are_refused():
    mine = fit(LeastSquares(lambda Z: (Z[0] - Z[1]) / len(Z[0]) ** 0.5))
    with pytest.raises(InvalidInputError, match="nothing says how a sample's weight enters"):
        inf.influence_of(mine, outcomes_of(mine)[0])
    drawn = fit(SpectralTriplets(batch=8), views=2)
    with pytest.raises(InvalidInputError, match="part of two triplets"):
        inf.influence_of(drawn, outcomes_of(drawn)[0])


def test_an_adjoint_solve_that_stalls_warns():
    model = fit(VICReg())
    with pytest.warns(ConvergenceWarning, match="adjoint solves of 1 of 1 outcomes stopped"):
        solve_adjoints(
            model.objective_,
            model.data_,
            model.solution_.theta,
            outcomes_of(model)[:1],
            damping=1e-9,
            tol=1e-12,
            max_iterations=2,
        )
