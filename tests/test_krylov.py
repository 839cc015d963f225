"""One Krylov space for all shifts, against dense solves; and how many products a whole search takes."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from krepes.budget import DEFAULT_BUDGET, Budget
from krepes.engine import damping
from krepes.engine.damping import Expansion, expand
from krepes.engine.linear import solve_linear
from krepes.engine.shifts import Shifts
from krepes.engine.solvers import solve
from krepes.errors import NonConvexOuterError
from krepes.linalg import LinearOperator
from krepes.objectives import _dual, krylov
from krepes.objectives.barlow_twins import BarlowTwins
from krepes.objectives.krylov import Krylov
from krepes.objectives.simclr import SimCLR
from krepes.objectives.streaming import MemoryRows


def spread(size, generator):
    """A positive matrix whose eigenvalues fall over six orders of magnitude, and a right-hand side."""
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    A = (Q * torch.logspace(0, -6, size, dtype=torch.float64)) @ Q.T
    return A, torch.randn(5, size // 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shifts", [(10.0, 0.1, 1e-3), (1e-3, 10.0)])
def test_every_shift_is_solved_in_the_space_of_one(shifts, generator):
    A, y = spread(60, generator)
    calls = []

    def product(v):
        calls.append(1)
        return (A @ v.reshape(-1)).reshape(v.shape)

    space = Krylov(product, y)
    for shift in shifts:
        x, reached, _ = space.solve(shift, 1e-9)
        assert reached
        rest = y - product(x) - shift * x
        calls.pop()
        assert float(rest.norm()) <= 1e-8 * float(y.norm())
        expected = torch.linalg.solve(A + shift * torch.eye(60, dtype=torch.float64), y.reshape(-1)).reshape(y.shape)
        assert_close(x, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    alone = Krylov(product, y)
    before = len(calls)
    alone.solve(min(shifts), 1e-9)
    assert before == len(calls) - before  # the smallest shift alone takes as many products as all of them


def test_a_space_without_room_gives_what_it_holds_and_nothing_of_nothing(generator, monkeypatch):
    A, y = spread(60, generator)
    monkeypatch.setattr(krylov, "ROOM", 4 * 60 * 8)
    space = Krylov(lambda v: (A @ v.reshape(-1)).reshape(v.shape), y)
    x, reached, _ = space.solve(0.1, 1e-9)
    assert (
        not reached and len(space.alpha) == 4 and 0 < float((y - (A @ x.reshape(-1)).reshape(y.shape) - 0.1 * x).norm())
    )
    nothing, reached, _ = Krylov(lambda v: v, torch.zeros(2, 3)).solve(1.0, 1e-9)
    assert reached and not nothing.any()


def test_a_search_over_dampings_makes_few_products(toy_moments, monkeypatch):
    """Eleven dampings and more, in fewer products of the dual operator than one space may hold vectors."""
    moments, theta = toy_moments
    monkeypatch.setattr(_dual, "DENSE", 0)
    counted = []
    product = _dual.DualSolve.product
    monkeypatch.setattr(_dual.DualSolve, "product", lambda self, U: counted.append(1) or product(self, U))
    found = solve(BarlowTwins(), moments, theta)
    shared = len(counted)
    counted.clear()
    monkeypatch.setattr(_dual.DualSolve, "_shared", lambda self, r, damping, goal: None)
    alone = solve(BarlowTwins(), moments, theta)
    assert found.converged and len(found.steps[0].grid) >= 5
    assert_close(found.theta, alone.theta, rtol=1e-6, atol=1e-6)
    assert shared <= 0.6 * len(counted), (shared, len(counted))


def test_where_the_dual_solve_gives_up_iterations_on_the_curvature_finish(toy_moments, monkeypatch):
    """A damping so small that a dual solve of few iterations leaves the step as it was: the answer is still exact."""
    moments, theta = toy_moments
    expansion = expand(BarlowTwins(), moments, theta, max_iterations=2000)
    lin, damping = expansion.linearisation, 1e-4 * expansion.unit
    exact = solve_linear(lin, -lin.gradient, damping, tol=1e-10)
    monkeypatch.setattr(_dual, "DENSE", 0)
    monkeypatch.setattr(_dual, "ITERATIONS", 3)
    monkeypatch.setattr(krylov, "ROOM", 3 * theta.shape[1] ** 2 * 8)
    cut = expand(BarlowTwins(), moments, theta, max_iterations=2000).linearisation
    alone = solve_linear(replace(cut, preconditioner=None), -cut.gradient, damping, tol=1e-8)
    assert not alone.converged, "the dual solve alone does not suffice"
    found = solve_linear(cut, -cut.gradient, damping, tol=1e-8)
    assert found.converged and found.residual <= 1e-8
    assert_close(found.x, exact.x, rtol=1e-4, atol=1e-5 * float(exact.x.abs().max()))


@pytest.mark.parametrize(("vectors", "share"), [(8, 1.0), (16, 1.0), (32, 0.6)])
def test_a_search_does_not_finish_a_solve_that_leads_nowhere(vectors, share, toy_moments, monkeypatch):
    """With little room, the same step is found as by finishing the solve of every damping, in fewer products."""
    moments, theta = toy_moments
    monkeypatch.setattr(_dual, "DENSE", 0)
    monkeypatch.setattr(krylov, "ROOM", vectors * theta.shape[1] ** 2 * 8)
    counted = []
    product = _dual.DualSolve.product
    monkeypatch.setattr(_dual.DualSolve, "product", lambda self, U: counted.append(1) or product(self, U))

    def searched():
        counted.clear()
        best, tried = expand(BarlowTwins(), moments, theta, max_iterations=2000).search(tol=1e-8)
        return best, tried, len(counted)

    best, tried, products = searched()
    assert vectors < 32 or not all(trial.converged for trial in tried)
    finish = Expansion.attempt
    monkeypatch.setattr(
        Expansion, "_within", lambda self, tried, damping, tol, near, shared: finish(self, damping, tol=tol, near=near)
    )
    whole, _, all_products = searched()
    assert (
        best.solution.converged and best.damping == whole.damping and best.loss == pytest.approx(whole.loss, rel=1e-12)
    )
    assert_close(best.solution.x, whole.solution.x, rtol=1e-9, atol=1e-9 * float(whole.solution.x.abs().max()))
    assert products <= share * all_products, (products, all_products)


def test_a_search_prefers_steps_that_were_solved(toy_moments, monkeypatch):
    moments, theta = toy_moments
    monkeypatch.setattr(_dual, "DENSE", 0)
    monkeypatch.setattr(_dual, "ITERATIONS", 3)
    monkeypatch.setattr(krylov, "ROOM", 3 * theta.shape[1] ** 2 * 8)
    expansion = expand(BarlowTwins(), moments, theta, max_iterations=2)
    best, tried = expansion.search(tol=1e-8)
    assert [trial.converged for trial in tried].count(False) >= 1, "some dampings are too small for two iterations"
    assert best.damping == min((trial for trial in tried if trial.converged), key=lambda trial: trial.loss).damping


@pytest.mark.parametrize("held", [0, 10 * 60 * 8, 40 * 60 * 8, 70 * 60 * 8, 1 << 30])
def test_vectors_in_files_solve_the_same(held, generator):
    Q = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64)).Q
    A = (Q * torch.logspace(0, -8, 60, dtype=torch.float64)) @ Q.T
    y = torch.randn(60, generator=generator, dtype=torch.float64)
    spaces = [Krylov(lambda v: A @ v, y, *asked) for asked in ((), (held,))]
    for shift in (1.0, 1e-3, 1e-6, 1e-2):
        (whole, reached, _), (spilled, also, _) = (space.solve(shift, 1e-12) for space in spaces)
        assert torch.equal(whole, spilled) and reached == also
    assert len(spaces[0].alpha) > 2 * krylov.GROWTH
    here = [block for block in spaces[1]._kept if isinstance(block, torch.Tensor)]
    assert sum(block.nbytes for block in here) <= max(held, 60 * 8)


def test_a_solve_with_a_small_budget_takes_the_same_step(toy_moments, monkeypatch):
    moments, theta = toy_moments
    monkeypatch.setattr(_dual, "DENSE", 0)
    found = [solve(BarlowTwins(), replace(moments, budget=Budget(size)), theta).theta for size in (1 << 30, 8)]
    assert torch.equal(*found)


def test_a_search_keeps_the_tensors_of_two_steps(toy_moments, monkeypatch):
    moments, theta = toy_moments
    seen, lean = [], damping._lean
    monkeypatch.setattr(damping, "_lean", lambda tried: seen.append(lean(tried)) or seen[-1])
    best, tried = expand(BarlowTwins(), moments, theta, max_iterations=100).search(tol=1e-8)
    assert len(tried) > 5 and max(sum(len(one.solution.x) > 0 for one in each) for each in seen) == 2
    assert best.damping in {trial.damping for trial in tried} and best.solution.x.shape == theta.shape


@pytest.fixture
def toy_moments(generator):
    from krepes.engine.init import principal_component_init
    from krepes.engine.moments import moments_of

    F = torch.randn(30, 24, generator=generator, dtype=torch.float64)
    F = F * torch.arange(1, 31, dtype=torch.float64)[:, None] ** -1.0
    shared, apart = (torch.randn(k, 400, 30, generator=generator, dtype=torch.float64) for k in (1, 2))
    rows = torch.nn.functional.pad((shared + 0.5 * apart) @ F, (0, 1), value=1.0)
    K = F.T @ F + 1e-3 * torch.eye(24, dtype=torch.float64)
    theta = torch.nn.functional.pad(principal_component_init(K, 6), (0, 0, 0, 1))
    return moments_of(rows, K), theta


def simclr_rows(generator, n=40, points=12):
    """Rows of two views whose directions fall over three orders of magnitude, and a start."""
    base = torch.randn(1, n, points, dtype=torch.float64, generator=generator)
    noise = 0.3 * torch.randn(2, n, points, dtype=torch.float64, generator=generator)
    K = torch.eye(points, dtype=torch.float64)
    rows = MemoryRows.from_kernel((base + noise) * torch.logspace(0, -3, points, dtype=torch.float64), K)
    return rows, torch.randn(points + 1, 4, dtype=torch.float64, generator=generator)


def counting(lin):
    """A linearisation that counts its products, and the counter."""
    counted = []
    H = lin.H
    return replace(lin, H=LinearOperator(lambda v: counted.append(1) or H @ v, H.shape, H.diagonal)), counted


def test_a_search_without_a_preconditioner_shares_one_space(generator):
    """Every damping has the step and the loss of a solve of its own, in far fewer products."""
    rows, theta = simclr_rows(generator)
    expansion = expand(SimCLR(batch=20), rows, theta, max_iterations=500)
    lin, counted = counting(expansion.linearisation)
    expansion = replace(expansion, linearisation=lin)
    best, tried = expansion.search(tol=1e-8)
    shared = len(counted)
    counted.clear()
    near = None
    for trial in tried:
        alone = near = expansion.attempt(trial.damping, tol=1e-8, near=near)
        assert trial.converged and trial.loss == pytest.approx(alone.loss, rel=1e-7)
        if trial.damping == best.damping:
            assert_close(best.solution.x, alone.solution.x, rtol=1e-5, atol=1e-6 * float(alone.solution.x.abs().max()))
    assert shared <= 0.6 * len(counted), (shared, len(counted))
    left = -lin.gradient - (lin.H @ best.solution.x + best.damping_absolute * best.solution.x)
    assert float(left.norm()) / float(lin.gradient.norm()) == pytest.approx(best.solution.residual, abs=1e-12)
    assert best.solution.residual <= 1e-8 and best.solution.history[-1] <= 1e-8
    assert shared == sum(trial.iterations for trial in tried) + len(tried)  # what is said, and one to confirm each


def test_conjugate_gradients_finish_what_a_space_without_room_left(generator, monkeypatch):
    rows, theta = simclr_rows(generator)
    expansion = expand(SimCLR(batch=20), rows, theta, max_iterations=500)
    whole, _ = expansion.search(tol=1e-8)
    monkeypatch.setattr(krylov, "ROOM", 4 * theta.numel() * 8)
    cut, tried = expansion.search(tol=1e-8)
    assert cut.damping == whole.damping and cut.solution.converged and any(trial.iterations > 4 for trial in tried)
    assert_close(cut.solution.x, whole.solution.x, rtol=1e-5, atol=1e-6 * float(whole.solution.x.abs().max()))


def test_a_search_in_one_space_keeps_to_its_iterations(generator):
    rows, theta = simclr_rows(generator)
    expansion = expand(SimCLR(batch=20), rows, theta, max_iterations=3)
    best, tried = expansion.search(tol=1e-12)
    assert not all(trial.converged for trial in tried)
    assert max(trial.iterations for trial in tried) <= 3 and sum(trial.iterations for trial in tried) == 3
    assert len(best.solution.history) == 3


def test_a_search_in_one_space_keeps_to_its_memory(generator, monkeypatch):
    """An eighth of the budget holds the vectors; the others lie in files, and the step is the same."""
    rows, theta = simclr_rows(generator)
    seen, spill = [], Krylov._spill
    monkeypatch.setattr(Krylov, "_spill", lambda self: spill(self) or seen.append(self))
    found = []
    for vectors in (1000, 3):
        small = replace(rows, budget=Budget(8 * vectors * theta.numel() * 8))
        found.append(expand(SimCLR(batch=20), small, theta, max_iterations=500).search(tol=1e-8)[0].solution)
    assert_close(found[1].x, found[0].x, rtol=1e-9, atol=1e-10 * float(found[0].x.abs().max()))
    kept = [block for block in seen[-1]._kept if isinstance(block, torch.Tensor)]
    assert len(seen[-1]._kept) > 4 and sum(block.nbytes for block in kept) <= 3 * theta.numel() * 8


def test_what_a_space_left_starts_from_the_nearer_step(generator, monkeypatch):
    """With room for four vectors, the step of a neighbouring damping saves iterations where it is nearer."""
    rows, theta = simclr_rows(generator)
    expansion = expand(SimCLR(batch=20), rows, theta, max_iterations=500)
    monkeypatch.setattr(krylov, "ROOM", 4 * theta.numel() * 8)
    near = expansion.attempt(1e-4, tol=1e-10).solution.x
    solved = []
    for start in (near, None, 100 * near):
        shifts = Shifts(expansion.linearisation, DEFAULT_BUDGET)
        solved.append(shifts.solve(0.9e-4 * expansion.unit, start, tol=1e-10, max_iterations=500))
    assert all(one.converged for one in solved)
    assert solved[0].iterations < solved[1].iterations == solved[2].iterations, "the far one is not taken"


def test_flat_directions_are_no_negative_curvature(generator):
    """Round-off below zero along a gradient that the curvature hardly sees is judged by what it sees beside."""
    Q = torch.linalg.qr(torch.randn(20, 20, dtype=torch.float64, generator=generator)).Q
    rows, theta = simclr_rows(generator)
    lin = expand(SimCLR(batch=20), rows, theta, max_iterations=50).linearisation
    H = LinearOperator(
        lambda v: (Q[:, :10] @ (Q[:, :10].T @ v.reshape(-1)) - 1e-17 * v.reshape(-1)).view_as(v), (20, 1)
    )
    b = (Q[:, 12] + 3e-9 * Q[:, 3])[:, None]
    solution = Shifts(replace(lin, H=H, gradient=-b), DEFAULT_BUDGET).solve(1e4, None, tol=1e-12, max_iterations=50)
    assert solution.converged


@pytest.mark.parametrize("hidden", [False, True])
def test_a_space_refuses_negative_curvature(hidden, generator):
    """On one of its vectors, or in a mixture that no single vector shows."""
    rows, theta = simclr_rows(generator)
    lin = expand(SimCLR(batch=20), rows, theta, max_iterations=50).linearisation
    diagonal = torch.linspace(1, 2, theta.numel(), dtype=torch.float64).view_as(theta)
    diagonal[0, 0] = -0.5 if hidden else -100.0
    b = torch.ones_like(theta)
    shifts = Shifts(replace(lin, H=LinearOperator(lambda v: diagonal * v, theta.shape), gradient=-b), DEFAULT_BUDGET)
    with pytest.raises(NonConvexOuterError, match="negative"):
        shifts.solve(1000.0, None, tol=1e-12, max_iterations=50)
