"""Row objectives against losses written out sample by sample and curvature as a dense matrix."""

import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.objectives.byol import BYOL
from krepes.objectives.parts import Part, rows_of, sampled_batches
from krepes.objectives.simclr import NTXent, SimCLR
from krepes.objectives.streaming import MemoryRows, batch_generator
from krepes.objectives.triplets import SpectralTriplets
from oracles import rows as oracle

GRADIENT = dict(rtol=1e-10, atol=1e-12)  # float64, sums of a few hundred terms of order one
CURVATURE = dict(rtol=1e-9, atol=1e-11)  # the oracle multiplies two autodiff matrices with some hundred columns
SAMPLES, POINTS, H = 11, 5, 3  # batches of 4: two whole, one short


def toy(generator, views):
    X = torch.randn(POINTS, 4, dtype=torch.float64, generator=generator)
    K = X @ X.T + torch.eye(POINTS, dtype=torch.float64)
    base = torch.randn(1, SAMPLES, POINTS, dtype=torch.float64, generator=generator)
    noise = 0.5 * torch.randn(views, SAMPLES, POINTS, dtype=torch.float64, generator=generator)
    return MemoryRows.from_kernel(base + noise, K)


def simclr_case(rows, theta):
    inner = partial(oracle.simclr_inner, rows.Kbar, size=4, tau=0.5)
    outer = partial(oracle.simclr_outer, n=rows.n, size=4)
    return SimCLR(tau=0.5, batch=4), lambda t: outer(inner(t)), inner, outer


def summed(case):
    """The paper's: every row of a batch adds its cross entropy, every sample its two squared residuals."""

    def make(rows, theta):
        objective, loss, inner, outer = case(rows, theta)
        count = rows.n * (2 if isinstance(objective, SimCLR) else 1)
        return replace(objective, reduction="sum"), lambda t: count * loss(t), inner, lambda u: count * outer(u)

    return make


def byol_case(rows, theta, predictor):
    identity = torch.eye(H, dtype=torch.float64)
    W = oracle.ridge_predictor(rows.Kbar, theta, 0.1) if predictor == "ridge" else identity
    inner = partial(oracle.byol_inner, rows.Kbar, W=W)
    outer = partial(oracle.byol_outer, targets=oracle.direction(rows.Kbar @ theta))
    return BYOL(predictor, ridge=0.1, batch=4), lambda t: outer(inner(t)), inner, outer


def triplet_case(rows, theta):
    loss = partial(oracle.triplet_loss, rows.Kbar, K=rows.K, rho=0.3)
    inner = partial(oracle.triplet_residuals, rows.Kbar, K=rows.K, rho=0.3)
    return SpectralTriplets(rho=0.3, batch=4), loss, inner, lambda u: u @ u


CASES = {
    "simclr": (2, simclr_case),
    "byol identity": (2, partial(byol_case, predictor="identity")),
    "byol ridge": (2, partial(byol_case, predictor="ridge")),
    "simclr sum": (2, summed(simclr_case)),
    "byol sum": (2, summed(partial(byol_case, predictor="identity"))),
    "triplets": (3, triplet_case),
}


@pytest.fixture(params=CASES)
def case(request, generator):
    views, make = CASES[request.param]
    rows = toy(generator, views)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    objective, loss, inner, outer = make(rows, theta)
    return objective, rows, theta, loss, inner, outer


def test_value_equals_the_loss_written_out(case):
    objective, rows, theta, loss, _, _ = case
    assert_close(objective.value(rows, theta), loss(theta), **GRADIENT)
    assert objective.linearise(rows, theta).value == pytest.approx(float(loss(theta)), rel=1e-12)


def test_gradient_equals_autograd_of_the_loss_written_out(case):
    objective, rows, theta, loss, _, _ = case
    expected = oracle.autograd_gradient(loss, theta)
    assert_close(objective.gradient(rows, theta), expected, **GRADIENT)
    assert_close(objective.linearise(rows, theta).gradient, expected, **GRADIENT)
    assert_close(oracle.autograd_gradient(lambda t: objective.value(rows, t), theta), expected, **GRADIENT)


def test_curvature_equals_the_dense_matrix(case):
    objective, rows, theta, _, inner, outer = case
    H_dense = oracle.dense_ggn(inner, outer, theta)
    assert_close(objective.linearise(rows, theta).H.to_dense(), H_dense, **CURVATURE)


def test_a_lost_factor_two_is_caught(case):
    objective, rows, theta, _, inner, outer = case
    doubled = oracle.dense_ggn(inner, lambda u: 2 * outer(u), theta)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(objective.linearise(rows, theta).H.to_dense(), doubled, **CURVATURE)


def test_curvature_is_symmetric_and_positive(case):
    objective, rows, theta, *_ = case
    H_dense = objective.linearise(rows, theta).H.to_dense()
    assert_close(H_dense, H_dense.T, **CURVATURE)
    eigenvalues = torch.linalg.eigvalsh(H_dense)
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1]


def test_diagonal_is_exact_or_an_unbiased_estimate(case):
    objective, rows, theta, *_ = case
    if isinstance(objective, SimCLR):
        objective = replace(objective, probes=4000)
    lin = objective.linearise(rows, theta)
    exact = lin.H.to_dense().diagonal().reshape(lin.H.shape)
    if isinstance(objective, SimCLR):
        # Relative error of one entry over 4000 draws stays near sqrt(2/4000) = 2 %; allow five of those.
        assert_close(lin.H.diagonal, exact, rtol=0.12, atol=1e-3 * float(exact.mean()))
    else:
        assert_close(lin.H.diagonal, exact, **CURVATURE)


def test_recomputed_embeddings_give_the_same_product(case, monkeypatch, generator):
    objective, rows, theta, *_ = case
    v = torch.randn(theta.shape, dtype=torch.float64, generator=generator)
    product, batches_kept = Part.product, []
    monkeypatch.setattr(
        Part, "product", lambda self, *args: batches_kept.append(len(self.kept)) or product(self, *args)
    )
    all_of_it = rows.Kbar.shape[0] * SAMPLES * H * 8 * (2 if objective.name == "byol" else 1)  # its targets too
    found = [
        objective.linearise(replace(rows, budget=Budget(size)), theta).H @ v
        for size in (2 * all_of_it, 2 * all_of_it - 1)
    ]
    assert_close(found[1], found[0], rtol=0, atol=0)
    assert batches_kept == [3, 0]  # half of the budget holds all embeddings, or none is kept


def test_products_share_what_half_of_the_budget_holds(generator, monkeypatch):
    """SimCLR's probabilities are made once, or for each product where only embeddings fit: products are the same."""
    rows, objective = toy(generator, 2), SimCLR(tau=0.5, batch=4)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    directions = torch.randn(3, *theta.shape, dtype=torch.float64, generator=generator)
    logits, counted = NTXent._logits, []
    monkeypatch.setattr(NTXent, "_logits", lambda self, U: counted.append(1) or logits(self, U))
    all_embeddings = 2 * SAMPLES * H * 8
    all_of_it = all_embeddings + SAMPLES / 4 * 8 * 9 * 8  # batches of 8 rows: their pairs, and their lengths
    found, made = [], []
    for budget in (2 * int(all_of_it) + 2, 2 * all_embeddings, 1):
        H_of = objective.linearise(replace(rows, budget=Budget(budget)), theta).H
        counted.clear()
        found.append(torch.stack([H_of @ v for v in directions]))
        made.append(len(counted))
    assert made == [0, 9, 9]  # three batches, three products
    assert_close(found[1], found[0], rtol=0, atol=0)
    assert_close(found[2], found[0], rtol=0, atol=0)


@pytest.mark.parametrize(("views", "objective"), [(2, BYOL("ridge")), (3, SpectralTriplets(rho=0.1))])
def test_a_mean_over_samples_does_not_depend_on_the_partition(views, objective, generator):
    rows = toy(generator, views)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    whole, split = (replace(objective, batch=b).linearise(rows, theta) for b in (SAMPLES, 2))
    assert split.value == pytest.approx(whole.value, rel=1e-12)
    assert_close(split.gradient, whole.gradient, **GRADIENT)
    assert_close(split.H.to_dense(), whole.H.to_dense(), **CURVATURE)


def test_simclr_is_the_mean_of_its_batches_by_size(generator):
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    alone = [float(SimCLR(batch=4).value(replace(rows, Kbar=K), theta)) for K in rows.batches(4)]
    assert float(SimCLR(batch=4).value(rows, theta)) == pytest.approx((4 * alone[0] + 4 * alone[1] + 3 * alone[2]) / 11)
    assert float(SimCLR(batch=11).value(rows, theta)) > max(alone)  # more negatives, harder task


@pytest.mark.parametrize("objective", [SimCLR(batch=4), BYOL(), BYOL("ridge")])
def test_swapping_the_views_changes_nothing(objective, generator):
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    swapped = replace(rows, Kbar=rows.Kbar.flip(0))
    assert_close(objective.gradient(swapped, theta), objective.gradient(rows, theta), **GRADIENT)


@pytest.mark.parametrize("objective", [SimCLR(batch=4), BYOL()])
def test_a_loss_of_directions_is_blind_to_scale(objective, generator):
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    assert_close(objective.value(rows, 7 * theta), objective.value(rows, theta), **GRADIENT)
    # Euler: the derivative along theta itself is zero.
    assert abs(float((objective.gradient(rows, theta) * theta).sum())) < 1e-12


def test_byol_majoriser_bounds_the_curvature(generator):
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    bound = BYOL("ridge").at(rows, theta)
    summary = bound.batch_loss(0, rows.Kbar).summary(rows.Kbar, rows.Kbar @ theta)
    gap = torch.kron(summary["M"], summary["S"]) - bound.linearise(rows, theta).H.to_dense()
    eigenvalues = torch.linalg.eigvalsh(gap)
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1]


def test_bound_byol_keeps_its_targets_after_a_step(generator):
    rows = toy(generator, 2)
    theta0, theta = torch.randn(2, POINTS + 1, H, dtype=torch.float64, generator=generator)
    targets = oracle.direction(rows.Kbar @ theta0)
    expected = oracle.byol_outer(oracle.direction(rows.Kbar @ theta), targets)
    assert_close(BYOL().at(rows, theta0).value(rows, theta), expected, **GRADIENT)
    assert BYOL().at(rows, theta0).describe() == BYOL().describe()


def test_drawn_negatives_are_a_cycle_through_the_batch_and_equal_explicit_ones(generator):
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    objective = SpectralTriplets(batch=4, seed=3)
    order = [objective.batch_loss(i, K).order for i, K in enumerate(rows.batches(4))]
    assert all((o != torch.arange(len(o))).all() and len(o.unique()) == len(o) for o in order)
    negatives = torch.cat([K[1][o] for K, o in zip(rows.batches(4), order, strict=True)])
    explicit = replace(rows, Kbar=torch.cat([rows.Kbar, negatives[None]]))
    drawn, given = objective.linearise(rows, theta), objective.linearise(explicit, theta)
    assert drawn.value == pytest.approx(given.value, rel=1e-12)
    assert_close(drawn.gradient, given.gradient, **GRADIENT)
    assert_close(drawn.H.to_dense(), given.H.to_dense(), **CURVATURE)
    assert_close(drawn.H.diagonal, given.H.diagonal, **CURVATURE)


def test_draws_depend_on_seed_and_batch_only():
    first, again = (torch.rand(3, generator=batch_generator(1, 2, torch.device("cpu"))) for _ in range(2))
    assert_close(first, again, rtol=0, atol=0)
    for seed, index in [(2, 1), (1, 3)]:
        assert not torch.equal(first, torch.rand(3, generator=batch_generator(seed, index, torch.device("cpu"))))


@pytest.mark.parametrize(
    ("objective", "views", "message"),
    [
        (SimCLR(), 3, "SimCLR compares 2 views of a sample, got 3"),
        (BYOL(), 1, "BYOL compares 2 views of a sample, got 1"),
        (SpectralTriplets(), 4, "need 3 views .* got 4"),
    ],
)
def test_the_wrong_number_of_views_is_refused(objective, views, message, generator):
    rows = toy(generator, views)
    with pytest.raises(InvalidInputError, match=message):
        objective.value(rows, torch.ones(POINTS + 1, H, dtype=torch.float64))


def test_a_zero_embedding_is_refused(generator):
    rows = toy(generator, 2)
    with pytest.raises(InvalidInputError, match="22 of 22 embeddings .* exactly zero"):
        SimCLR().value(rows, torch.zeros(POINTS + 1, H, dtype=torch.float64))


def test_coefficients_that_do_not_fit_the_rows_are_refused(generator):
    with pytest.raises(InvalidInputError, match="needs 6 rows"):
        BYOL().value(toy(generator, 2), torch.ones(POINTS, H, dtype=torch.float64))


def test_rows_with_nan_are_refused():
    with pytest.raises(InvalidInputError, match="kernel rows holds 1 NaN"):
        MemoryRows.from_kernel(torch.tensor([[[1.0, float("nan")]]]), torch.eye(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SimCLR(tau=0.0), "tau=0 is out of range"),
        (lambda: BYOL("mlp"), "predictor must be 'identity' or 'ridge', got 'mlp'"),
        (lambda: SpectralTriplets(rho=-1.0), "rho=-1 is out of range"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize("make", [SimCLR, BYOL])
def test_another_reduction_is_refused(make):
    with pytest.raises(InvalidInputError, match="reduction must be 'mean' or 'sum', got 'all'"):
        make(reduction="all")


def test_sums_are_those_of_the_paper_written_out(generator):
    """-Σ over 2n rows of log p, and |r|² of both directions, without any mean; one batch holds everything."""
    rows = toy(generator, 2)
    theta = torch.randn(POINTS + 1, H, dtype=torch.float64, generator=generator)
    U = [oracle.direction(K @ theta) for K in rows.Kbar]
    logits = torch.cat(U) @ torch.cat(U).T / 0.5
    p = logits.masked_fill(torch.eye(2 * SAMPLES, dtype=torch.bool), -torch.inf).softmax(1)
    paired = torch.cat([p.diagonal(SAMPLES), p.diagonal(-SAMPLES)])
    assert_close(SimCLR(tau=0.5, batch=SAMPLES, reduction="sum").value(rows, theta), -paired.log().sum(), **GRADIENT)
    other = theta + 0.1
    V = [oracle.direction(K @ other) for K in rows.Kbar]
    wanted = (V[0] - U[1]).square().sum() + (V[1] - U[0]).square().sum()
    assert_close(BYOL(batch=4, reduction="sum").at(rows, theta).value(rows, other), wanted, **GRADIENT)


@pytest.mark.parametrize("rows_wanted", [11, 12, 10**9])
def test_a_sample_of_all_rows_is_the_curvature_of_all(case, rows_wanted, generator):
    objective, rows, theta, *_ = case
    whole, sample = (replace(objective, curvature_rows=wanted) for wanted in (10**6, rows_wanted))
    v = torch.randn(theta.shape, dtype=torch.float64, generator=generator)
    first, second = whole.linearise(rows, theta), sample.linearise(rows, theta)
    assert torch.equal(first.H @ v, second.H @ v) and torch.equal(first.gradient, second.gradient)
    assert first.H.diagonal is None or torch.equal(first.H.diagonal, second.H.diagonal)
    assert second.rows == SAMPLES and second.whole is None


def test_a_sample_has_the_curvature_of_its_batches_and_the_gradient_of_all(case, generator):
    objective, rows, theta, *_ = case
    sampled = replace(objective, curvature_rows=5)  # two of three batches
    numbers = sampled_batches(SAMPLES, 4, 5, seed=getattr(objective, "seed", 0))
    assert len(numbers) == 2
    found, whole = sampled.linearise(rows, theta), objective.linearise(rows, theta)
    assert torch.equal(found.gradient, whole.gradient) and found.value == whole.value
    assert found.rows == rows_of(numbers, SAMPLES, 4) < SAMPLES
    v = torch.randn(theta.shape, dtype=torch.float64, generator=generator)
    assert_close(found.whole @ v, whole.H @ v, **CURVATURE)
    if isinstance(objective, (SpectralTriplets,)) or getattr(objective, "reduction", "mean") == "sum":
        return  # its ridge, or its scale, is not a mean over batches
    bound = objective.at(rows, theta)  # BYOL's targets and predictor are those of all rows
    parts = []
    for number in numbers:
        Kbar = rows.Kbar[:, 4 * number : 4 * number + 4]
        loss = bound.batch_loss(number, Kbar)
        Hv = Kbar.flatten(0, 1).T @ loss.product(Kbar @ theta, Kbar @ v).flatten(0, 1)
        parts.append(Kbar.shape[1] * Hv)
    assert_close(found.H @ v, sum(parts) / found.rows, **CURVATURE)


def test_every_batch_is_as_likely_in_the_sample():
    seen = torch.zeros(20)
    for seed in range(2000):
        numbers = sampled_batches(77, 4, 20, seed)
        assert numbers == sorted(set(numbers)) and len(numbers) == 5
        seen[numbers] += 1
    assert float((seen / 2000 - 0.25).abs().max()) < 0.05  # five standard deviations


def test_one_batch_of_rows_is_held_at_a_time(case):
    objective, rows, theta, *_ = case
    held, most = [], []

    class Counted:
        n, K, budget = rows.n, rows.K, Budget(1)  # room for no embedding

        def batches(self, size, chosen=None):
            for Kbar in rows.batches(size, chosen):
                Kbar = Kbar.clone()
                held[:] = [ref for ref in held if ref() is not None] + [weakref.ref(Kbar)]
                most.append(len(held))
                yield Kbar

    lin = objective.linearise(Counted(), theta)
    _ = lin.H @ theta, objective.value(Counted(), theta), objective.gradient(Counted(), theta)
    assert max(most) <= 2, "the one in use, and the one that takes its place"
