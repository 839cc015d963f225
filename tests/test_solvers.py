"""Conjugate gradients against scipy and dense inverses; the damping search and the steps against brute force."""

import json
import warnings
import weakref
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg as scipy_cg
from torch.testing import assert_close

from krepes.engine.cg import conjugate_gradient
from krepes.engine.damping import GRID, expand, mean_diagonal
from krepes.engine.linear import solve_linear
from krepes.engine.moments import moments_of
from krepes.engine.residual import Residual
from krepes.engine.solvers import solve
from krepes.errors import ConvergenceWarning, InvalidInputError, NonConvexOuterError
from krepes.linalg import LinearOperator
from krepes.objectives.barlow_twins import BarlowTwins
from krepes.objectives.base import Linearisation, RowObjective
from krepes.objectives.byol import BYOL
from krepes.objectives.custom import LeastSquares
from krepes.objectives.parts import Part, sample_of
from krepes.objectives.simclr import SimCLR
from krepes.objectives.streaming import MemoryRows
from krepes.objectives.triplets import SpectralTriplets
from oracles import rows as oracle

SOLVE = dict(rtol=1e-8, atol=1e-10)  # residual 1e-11 of systems with condition numbers up to some hundred


def rbf_rows(generator, views=2, n=60, q=12):
    """RBF rows of clustered points against landmarks: the decaying spectrum that kernels have."""
    centres = 2 * torch.randn(5, 3, dtype=torch.float64, generator=generator)
    X = centres.repeat_interleave(n // 5, 0)
    noise = 0.4 * torch.randn(views, len(X), 3, dtype=torch.float64, generator=generator)
    landmarks = (X + noise[0])[torch.randperm(len(X), generator=generator)[:q]]
    return MemoryRows.from_kernel(
        torch.exp(-(torch.cdist(X + noise, landmarks.expand(views, -1, -1)) ** 2) / 4),
        torch.exp(-(torch.cdist(landmarks, landmarks) ** 2) / 4),
    )


def start(rows, generator, h=3):
    q = rows.K.shape[0]
    return torch.randn(q + 1, h, dtype=torch.float64, generator=generator) / q**0.5


def psd(generator, size, rank):
    B = torch.randn(size, rank, dtype=torch.float64, generator=generator)
    return B @ B.T


OBJECTIVES = {
    "simclr": (2, SimCLR(batch=25)),
    "byol": (2, BYOL()),
    "byol ridge": (2, BYOL("ridge")),
    "triplets": (3, SpectralTriplets(rho=0.01)),
    "own": (2, LeastSquares(lambda Z: torch.tanh(Z[0]) - Z[1].cos())),
}


@pytest.fixture(params=OBJECTIVES)
def problem(request, generator):
    views, objective = OBJECTIVES[request.param]
    rows = rbf_rows(generator, views)
    return objective, rows, start(rows, generator)


def test_solve_equals_the_dense_inverse(problem):
    objective, rows, theta0 = problem
    solution = solve(objective, rows, theta0, damping=0.1, tol=1e-11)
    lin = objective.linearise(rows, theta0)
    assert solution.damping_absolute == pytest.approx(0.1 * mean_diagonal(lin), rel=1e-12)
    H = lin.H.to_dense()
    A = H + solution.damping_absolute * torch.eye(len(H), dtype=H.dtype)
    step = torch.linalg.solve(A, -lin.gradient.flatten()).reshape(theta0.shape)
    assert_close(solution.theta - theta0, step, **SOLVE)
    assert solution.converged and solution.residual <= 1e-11


def test_the_chosen_damping_lowers_the_loss_and_is_the_lowest_of_its_grid(problem):
    objective, rows, theta0 = problem
    solution = solve(objective, rows, theta0)
    step = solution.steps[0]
    assert solution.loss_after < solution.loss_before
    assert step.damping == min(step.grid, key=lambda trial: trial.loss).damping
    bound = objective.at(rows, theta0)
    assert solution.loss_after == pytest.approx(float(bound.value(rows, solution.theta)), rel=1e-12)
    # A cold solve at each of those dampings finds the same losses, up to the tolerance of the solves.
    fixed = [quietly(objective, rows, theta0, damping=trial.damping).loss_after for trial in step.grid]
    assert [trial.loss for trial in step.grid] == pytest.approx(fixed, rel=1e-6)


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(*args, **kwargs)


def test_gain_compares_with_the_quadratic_model(problem):
    objective, rows, theta0 = problem
    solution = solve(objective, rows, theta0, damping=10.0)
    lin = objective.at(rows, theta0).linearise(rows, theta0)
    d = solution.theta - theta0
    predicted = float((lin.gradient * d).sum() + 0.5 * (d * (lin.H @ d)).sum())
    assert solution.gain == pytest.approx((solution.loss_after - solution.loss_before) / predicted, rel=1e-6)


def test_a_tiny_step_has_gain_one(problem):
    """At a huge damping the loss is its own linear model, whatever curvature was left out."""
    objective, rows, theta0 = problem
    assert quietly(objective, rows, theta0, damping=1e5).gain == pytest.approx(1.0, abs=1e-2)


def test_further_steps_lower_the_loss_further(problem):
    objective, rows, theta0 = problem
    one, three = solve(objective, rows, theta0), solve(objective, rows, theta0, steps=3)
    assert three.loss_after < one.loss_after
    losses = [step.loss_before for step in three.accepted] + [three.loss_after]
    assert losses == sorted(losses, reverse=True)
    # One loss for the whole solve: what a step ends with is what the next begins with.
    for before, after in zip(three.accepted, three.accepted[1:], strict=False):
        assert after.loss_before == pytest.approx(before.loss_after, rel=1e-12)


def test_the_same_solve_twice_gives_the_same_bytes(problem):
    objective, rows, theta0 = problem
    first, again = solve(objective, rows, theta0), solve(objective, rows, theta0)
    assert torch.equal(first.theta, again.theta)
    assert first.to_dict() == again.to_dict()


def test_relative_and_absolute_damping_agree(generator):
    rows = rbf_rows(generator)
    theta0 = start(rows, generator)
    relative = solve(BYOL(), rows, theta0, damping=0.5)
    absolute = solve(BYOL(), rows, theta0, damping=relative.damping_absolute, relative=False)
    assert_close(absolute.theta, relative.theta, **SOLVE)
    assert absolute.damping == pytest.approx(0.5)


def test_the_story_survives_json(problem):
    objective, rows, theta0 = problem
    solution = solve(objective, rows, theta0, steps=2)
    details = json.loads(json.dumps(solution.to_dict(), allow_nan=False))
    assert details["loss_after"] == solution.loss_after and len(details["steps"]) == len(solution.steps)
    assert details["iterations"] == solution.iterations > 0
    assert [trial["damping"] for trial in details["steps"][0]["grid"]][:2] == list(GRID[:2])


def test_a_solve_cut_short_warns_and_is_recorded(generator):
    rows = rbf_rows(generator)
    with pytest.warns(ConvergenceWarning, match="relative residual of .* after 2 iterations, above tol=1.0e-08"):
        solution = solve(BYOL(), rows, start(rows, generator), damping=1e-4, max_iterations=2)
    assert not solution.converged and solution.residual > 1e-8
    assert solution.to_dict()["converged"] is False


def test_no_step_is_taken_from_a_minimum(generator):
    rows = rbf_rows(generator)
    own = LeastSquares(lambda Z: Z, name="shrink")
    theta0 = torch.zeros(rows.K.shape[0] + 1, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="no damping of .* lowered the loss 0 .* no step was taken"):
        solution = solve(own, rows, theta0)
    assert torch.equal(solution.theta, theta0) and not solution.converged
    assert solution.loss_after == solution.loss_before == 0.0
    json.dumps(solution.to_dict())


@dataclass(frozen=True)
class Overshooting(RowObjective):
    """A quadratic whose curvature is understated, a hundredfold or more."""

    times: float = 100
    name = "overshooting"

    def value(self, data, theta):
        return self.times / 2 * (theta - 1).square().sum()

    def gradient(self, data, theta):
        return self.times * (theta - 1)

    def linearise(self, data, theta):
        H = LinearOperator(lambda v: v, tuple(theta.shape), torch.ones_like(theta))
        return Linearisation(float(self.value(data, theta)), self.gradient(data, theta), H)


def test_a_given_damping_is_taken_literally_and_warns_if_the_loss_rises(generator):
    rows = rbf_rows(generator)
    theta0 = torch.zeros(3, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="raised the loss from 300 to"):
        solution = solve(Overshooting(), rows, theta0, damping=0.0)
    assert_close(solution.theta, torch.full_like(theta0, 100.0))
    assert solution.loss_after > solution.loss_before and solution.gain < 0


def test_the_search_finds_the_damping_that_makes_up_for_missing_curvature(generator):
    """The exact step needs H + damping = 100, so damping = 99; the grid comes within a quarter or half decade."""
    solution = solve(Overshooting(), rbf_rows(generator), torch.zeros(3, 2, dtype=torch.float64))
    assert 99 / 10**0.5 <= solution.damping <= 99 * 10**0.5
    assert solution.loss_after < 1e-2 * solution.loss_before


def test_the_search_goes_above_its_grid_where_no_damping_of_it_lowers_the_loss(generator):
    """A relative damping of 1e6 makes the step right; at 1e4, the largest of the grid, it is 100 times too long."""
    theta0 = torch.zeros(3, 2, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve(Overshooting(times=1e6), rbf_rows(generator), theta0)
    assert 1e6 / 10**0.5 <= solution.damping <= 1e6 * 10**0.5
    assert solution.loss_after < 1e-2 * solution.loss_before
    tried = [trial.damping for trial in solution.steps[0].grid]
    assert tried[:6] == [1e4, 1e3, 1e2, 1e5, 1e6, 1e7], "up until the loss rises again"


def test_a_second_step_that_raises_the_loss_is_not_taken(generator):
    """From within the overshoot a damping of 10 flips sign and grows ninefold, so step two cannot fall."""
    rows, theta0 = rbf_rows(generator), torch.zeros(3, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="raised the loss"):
        solution = solve(Overshooting(), rows, theta0, damping=10.0, steps=2)
    assert [step.accepted for step in solution.steps] == [True, False]
    assert solution.loss_after == solution.steps[0].loss_after


@given(size=st.integers(2, 12), rank=st.integers(1, 12), seed=st.integers(0, 10**6), damping=st.floats(1e-2, 1e2))
@settings(max_examples=40, deadline=None)
def test_conjugate_gradients_leave_the_residual_they_report(size, rank, seed, damping):
    generator = torch.Generator().manual_seed(seed)
    A = psd(generator, size, rank)
    b = torch.randn(size, dtype=torch.float64, generator=generator)
    result = conjugate_gradient(LinearOperator(lambda v: A @ v, (size,)), b, damping, tol=1e-10)
    left = b - A @ result.x - damping * result.x
    assert result.converged
    assert_close(left, result.remainder, rtol=0, atol=1e-12 * float(b.norm()))
    assert float(left.norm() / b.norm()) <= 1e-10


@pytest.mark.parametrize("jacobi", [False, True])
def test_conjugate_gradients_follow_scipy(jacobi, generator):
    A = psd(generator, 40, 60) * torch.logspace(0, 1, 40, dtype=torch.float64).outer(torch.logspace(0, 1, 40).double())
    b = torch.randn(40, dtype=torch.float64, generator=generator)
    inverse = 1 / (A.diagonal() + 0.1)
    M = torch.diag(inverse).numpy() if jacobi else None
    steps = []
    dense = (A + 0.1 * torch.eye(40, dtype=torch.float64)).numpy()
    expected, _ = scipy_cg(dense, b.numpy(), rtol=1e-10, atol=0, M=M, callback=steps.append)
    P = (lambda r: inverse * r) if jacobi else None
    result = conjugate_gradient(LinearOperator(lambda v: A @ v, (40,)), b, 0.1, preconditioner=P, tol=1e-10)
    # Ill-conditioned on purpose (about 1e4): both end at 1e-10 of b, so the answers agree to 1e-6.
    assert_close(result.x, torch.from_numpy(expected), rtol=1e-6, atol=1e-8)
    assert abs(result.iterations - len(steps)) <= 3


def test_a_good_start_saves_iterations(generator):
    A = psd(generator, 50, 60)
    H, b = LinearOperator(lambda v: A @ v, (50,)), torch.randn(50, dtype=torch.float64, generator=generator)
    cold = conjugate_gradient(H, b, 1.0)
    warm = conjugate_gradient(H, b, 1.0, x0=cold.x + 1e-6)
    assert warm.converged and warm.iterations < cold.iterations
    assert conjugate_gradient(H, b, 1.0, x0=cold.x).iterations == 0


def test_a_drifting_recurrence_is_restarted_from_the_true_residual(generator):
    """A product that errs at first: the recurrence believes it has converged, the true residual says no."""
    A, calls = psd(generator, 8, 12), []

    def matvec(v):
        calls.append(v)
        return A @ v * (1.01 if len(calls) <= 8 else 1.0)

    b = torch.randn(8, dtype=torch.float64, generator=generator)
    result = conjugate_gradient(LinearOperator(matvec, (8,)), b, 1.0, tol=1e-10)
    assert result.converged and min(result.history[:8]) < 1e-9
    assert_close(A @ result.x + result.x, b, rtol=0, atol=1e-9 * float(b.norm()))


def test_a_zero_right_hand_side_has_the_zero_solution():
    result = conjugate_gradient(LinearOperator(lambda v: v, (3,)), torch.zeros(3, dtype=torch.float64), 0.0)
    assert result.converged and result.iterations == 0 and not result.x.any()


def test_negative_curvature_is_found_behind_the_damping():
    """Every search direction has positive curvature here; the space that they span has not."""
    H = LinearOperator(lambda v: torch.tensor([1.0, -0.5], dtype=torch.float64) * v, (2,))
    with pytest.raises(NonConvexOuterError, match="Split the loss elsewhere"):
        conjugate_gradient(H, torch.ones(2, dtype=torch.float64), damping=100.0)


def test_a_direct_solve_is_refined_until_its_residual_is_true(generator):
    A = psd(generator, 6, 8)
    H = LinearOperator(lambda v: A @ v, (6,))
    b = torch.randn(6, dtype=torch.float64, generator=generator)

    def sloppy(r, damping, tol):
        return torch.linalg.solve(A + damping * torch.eye(6, dtype=torch.float64), r) * (1 + 1e-5)

    result = solve_linear(Linearisation(0.0, b, H, solve=sloppy), b, 0.1, tol=1e-9)
    assert result.converged and result.iterations == 2
    assert_close(A @ result.x + 0.1 * result.x, b, rtol=0, atol=1e-9 * float(b.norm()))


def test_mean_diagonal_without_a_diagonal_is_estimated_from_signs(generator):
    A = psd(generator, 400, 500)
    lin = Linearisation(0.0, torch.zeros(400, dtype=torch.float64), LinearOperator(lambda v: A @ v, (400,)))
    # Standard error sqrt(2 |A|_F^2 / 4) / trace, about 5 % here; allow four.
    assert mean_diagonal(lin) == pytest.approx(float(A.diagonal().mean()), rel=0.2)
    known = replace(lin, H=replace(lin.H, diagonal=A.diagonal()))
    assert mean_diagonal(known) == pytest.approx(float(A.diagonal().mean()), rel=1e-12)


def test_majoriser_preconditioner_saves_products(generator):
    rows = rbf_rows(generator, n=200, q=60)
    theta0 = start(rows, generator, h=8)
    lin = BYOL().linearise(rows, theta0)
    damping = 1e-4 * mean_diagonal(lin)
    with_it = solve_linear(lin, -lin.gradient, damping)
    without = solve_linear(replace(lin, preconditioner=None), -lin.gradient, damping)
    assert with_it.converged and with_it.iterations < 0.5 * without.iterations


@pytest.mark.parametrize("curvature_rows", [64, 200])
def test_a_preconditioner_knows_the_scale_of_its_loss(curvature_rows, generator):
    """A sum over samples is n times their mean: the same step at the same relative damping, in as many products."""
    rows = rbf_rows(generator, n=200, q=60)
    theta0 = start(rows, generator, h=8)
    solved = []
    for reduction in ("mean", "sum"):
        lin = BYOL(reduction=reduction, batch=64, curvature_rows=curvature_rows).linearise(rows, theta0)
        solved.append(solve_linear(lin, -lin.gradient, 1e-2 * mean_diagonal(lin)))
    mean, total = solved
    assert mean.converged and total.iterations == mean.iterations
    assert_close(total.x, mean.x, rtol=1e-6, atol=1e-7 * float(mean.x.abs().max()))


def test_a_step_lets_go_of_what_the_last_one_kept(generator, monkeypatch):
    """What products share fills half of the budget: two steps must not hold it at once."""
    rows = rbf_rows(generator)
    parts, beside, expand_part = [], [], Part.expand

    def counted(self, *given):
        beside.append(sum(part() is not None for part in parts))
        parts.append(weakref.ref(self))
        return expand_part(self, *given)

    monkeypatch.setattr(Part, "expand", counted)
    assert len(solve(SimCLR(batch=20), rows, start(rows, generator), steps=3).steps) == 3
    assert beside == [0, 0, 0]


def test_byol_is_solved_against_the_targets_of_the_start(generator):
    rows = rbf_rows(generator)
    theta0 = start(rows, generator)
    solution = solve(BYOL(), rows, theta0, steps=2)
    targets = oracle.direction(rows.Kbar @ theta0)
    expected = float(oracle.byol_outer(oracle.direction(rows.Kbar @ solution.theta), targets))
    assert solution.loss_after == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"damping": -1.0}, "damping=-1 is out of range"),
        ({"damping": "best"}, "damping must be 'auto' or a number, got 'best'"),
        ({"steps": 0}, "steps=0 is out of range"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message, generator):
    rows = rbf_rows(generator)
    with pytest.raises(InvalidInputError, match=message):
        solve(BYOL(), rows, start(rows, generator), **arguments)


def test_a_singular_curvature_without_damping_is_refused(generator):
    rows = rbf_rows(generator)  # Barlow Twins: rank h² = 9 of 39 unknowns
    with pytest.raises(InvalidInputError, match="'barlow_twins' at a relative damping of 0.0e\\+00 is not finite"):
        solve(BarlowTwins(), moments_of(rows.Kbar, rows.K), start(rows, generator), damping=0.0)


def test_coefficients_that_are_not_finite_are_refused(generator):
    rows = rbf_rows(generator)
    theta0 = start(rows, generator)
    theta0[0, 0] = float("nan")
    with pytest.raises(InvalidInputError, match="theta0 holds 1 NaN"):
        solve(BYOL(), rows, theta0)


def test_a_loss_without_curvature_is_refused(generator):
    rows = rbf_rows(generator)
    constant = LeastSquares(lambda Z: 0 * Z, name="constant")
    with pytest.raises(InvalidInputError, match="curvature of 'constant' is zero"):
        solve(constant, rows, start(rows, generator))


def test_a_loss_that_is_not_finite_is_refused(generator):
    rows = rbf_rows(generator)
    broken = LeastSquares(lambda Z: Z / 0, name="broken")
    with pytest.raises(InvalidInputError, match="the loss 'broken' is .* must be finite"):
        solve(broken, rows, start(rows, generator))


@pytest.mark.parametrize("make", [SimCLR, BYOL, lambda **how: LeastSquares(lambda Z: (Z[0] - 2 * Z[1]).tanh(), **how)])
def test_the_error_of_a_sampled_curvature_is_told_as_it_is(make, generator):
    rows = rbf_rows(generator, n=400)
    theta = torch.randn(13, 3, dtype=torch.float64, generator=generator)
    whole = solve(make(batch=20), rows, theta, damping=1.0, tol=1e-10)
    assert whole.curvature_rows == 400 and whole.curvature_error is None
    how = {"damping": whole.damping_absolute, "relative": False, "tol": 1e-10}
    sampled = solve(make(batch=20, curvature_rows=200), rows, theta, **how)
    error = float((sampled.theta - whole.theta).norm() / (whole.theta - theta).norm())
    assert sampled.curvature_rows == 200 and 1e-6 < error < 0.1
    assert sampled.curvature_error == pytest.approx(error, rel=0.5)
    exact = make(batch=20, curvature_rows=400)
    assert torch.equal(solve(exact, rows, theta, **how).theta, solve(make(batch=20), rows, theta, **how).theta)
    stored = type(sampled).from_dict(json.loads(json.dumps(sampled.to_dict())), sampled.theta0, sampled.theta)
    assert stored.curvature_error == sampled.curvature_error


class Counted(MemoryRows):
    """Rows that count the batches that were read."""

    read: ClassVar[int] = 0

    def batches(self, size, chosen=None):
        for part in super().batches(size, chosen):
            Counted.read += 1
            yield part


@pytest.mark.parametrize("make", [SimCLR, lambda **how: SpectralTriplets(rho=0.1, **how)])
def test_a_damping_is_searched_on_the_rows_of_the_curvature(make, generator, monkeypatch):
    """The search reads no other row, and its step is judged by all of them."""
    few = rbf_rows(generator, n=400)
    rows = Counted(few.Kbar, few.K)
    theta = torch.randn(13, 3, dtype=torch.float64, generator=generator)
    objective = make(batch=20, curvature_rows=200)
    expansion = expand(objective, rows, theta, max_iterations=100)
    estimate = expansion.linearisation.estimate
    chosen = sample_of(objective, 400)
    parts = zip(chosen, few.batches(20, chosen), strict=True)
    losses = [float(objective.batch_loss(number, Kbar).value(Kbar @ theta)) for number, Kbar in parts]
    ridge = 0.0 if make is SimCLR else 0.1 * float((theta[:-1] * (few.K @ theta[:-1])).sum())
    assert float(estimate(theta)) == pytest.approx(sum(losses) / len(losses) + ridge, rel=1e-12)
    monkeypatch.setattr(Counted, "read", 0)
    best, tried = expansion.search(tol=1e-6)
    products = sum(trial.iterations + 2 for trial in tried)
    assert Counted.read <= 10 * (products + len(tried) + 1) + 20  # ten batches are the sample's, twenty are all
    assert best.loss == pytest.approx(float(objective.value(few, theta + best.solution.x)), rel=1e-12)
    assert best.loss < expansion.linearisation.value


def test_a_sample_that_misleads_the_search_is_not_believed(generator):
    """Where the step that the sample would take does not lower the loss of all rows, all rows decide."""
    rows = rbf_rows(generator, n=400)
    theta = torch.randn(13, 3, dtype=torch.float64, generator=generator)
    whole = expand(SimCLR(batch=20), rows, theta, max_iterations=100)
    lie = replace(whole.linearisation, estimate=lambda at: -(at - theta).norm())
    believed, honest = replace(whole, linearisation=lie).search(tol=1e-6)[0], whole.search(tol=1e-6)[0]
    assert (
        believed.loss > honest.loss
    )  # the longest step that the grid has: a lower loss than before, and not the lowest
    lie = replace(lie, value=(believed.loss + honest.loss) / 2)
    best = replace(whole, linearisation=lie).search(tol=1e-6)[0]
    assert (best.damping, best.loss) == (honest.damping, honest.loss)


def test_a_model_that_starts_at_the_encoder_is_searched_on_the_same_sample(generator):
    rows, inner = rbf_rows(generator, n=400), SimCLR(batch=20, curvature_rows=200)
    A, moved = torch.randn(2, 9, 3, dtype=torch.float64, generator=generator)
    residual = Residual(inner, d=3)
    found, wanted = residual.linearise(rows, A), inner.linearise(rows, residual.whole(A))
    assert torch.equal(found.estimate(moved), wanted.estimate(residual.whole(moved)))
    assert residual.linearise(MemoryRows(rows.Kbar[:, :200], rows.K), A).estimate is None, "all rows are in the sample"
