"""Landmark selectors: the law of their picks, their scores, their refusals, their memory."""

import tempfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from krepes.budget import Budget
from krepes.errors import InvalidInputError, RankDeficientKernelError
from krepes.kernels.base import Kernel
from krepes.kernels.classic import RBF, Linear
from krepes.kernels.transforms import default_transform
from krepes.landmarks import (
    SELECTORS,
    KMeansPlusPlus,
    LeverageHutchinson,
    LeverageNystrom,
    RPCholesky,
    Uniform,
    select,
)
from krepes.landmarks.base import draw_distinct
from krepes.landmarks.leverage import gram_product
from oracles.landmarks import (
    kmeans_weights,
    leverage_scores,
    nystrom_leverage,
    nystrom_trace_error,
    plain_rpcholesky,
    rpcholesky_weights,
    subset_probabilities,
)
from peak import peak_rise

ALL = [*(make() for make in SELECTORS.values()), KMeansPlusPlus(space="kernel")]
selectors = pytest.mark.parametrize("selector", ALL, ids=lambda s: f"{s.name}-{getattr(s, 'space', '')}".rstrip("-"))


def clustered(n, d, generator, *, clusters=40, dtype=torch.float64):
    """Points of clusters with Zipf sizes: uniform choice misses the small ones."""
    sizes = 1 / torch.arange(1, clusters + 1, dtype=torch.float64)
    label = torch.multinomial(sizes, n, replacement=True, generator=generator)
    centres = torch.randn(clusters, d, generator=generator, dtype=dtype)
    return centres[label] + 0.2 * torch.randn(n, d, generator=generator, dtype=dtype)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@selectors
def test_indices_are_distinct_sorted_and_repeat_with_the_seed(selector, generator):
    X = clustered(120, 6, generator, dtype=torch.float32)
    first, again = (selector(X, 30, kernel=RBF(2.0), generator=seeded(3)) for _ in range(2))
    assert_close(first, again)
    assert first.dtype == torch.int64
    assert len(first) == 30
    assert bool((first.diff() > 0).all())
    assert int(first[0]) >= 0
    assert int(first[-1]) < 120


@selectors
def test_every_sample_is_chosen_when_all_are_asked_for(selector, generator):
    X = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    if not isinstance(selector, LeverageHutchinson):
        chosen = selector(X, 20, kernel=RBF(0.5), generator=generator)
        assert_close(chosen, torch.arange(20))


@selectors
@pytest.mark.parametrize("m", [0, -3, 11])
def test_a_number_of_landmarks_that_cannot_be_is_refused(selector, m, generator):
    with pytest.raises(InvalidInputError, match=rf"m={m} landmarks cannot be chosen from n=10"):
        selector(torch.randn(10, 2), m, kernel=Linear(), generator=generator)


@selectors
def test_empty_and_nan_samples_are_refused(selector, generator):
    X = torch.randn(10, 2, generator=generator)
    with pytest.raises(InvalidInputError, match="no sample"):
        selector(X[:0], 1, kernel=Linear(), generator=generator)
    X[7, 1] = float("nan")
    with pytest.raises(InvalidInputError, match="NaN"):
        selector(X, 2, kernel=Linear(), generator=generator)


# The law of the picks.


@pytest.mark.parametrize("block", [2, 16])
def test_blocks_pick_subsets_as_plain_rpcholesky_does(block, seed, generator):
    """Frequencies of all 35 subsets against their exact probabilities, by a chi-squared test."""
    X = torch.randn(7, 2, generator=generator, dtype=torch.float64) * torch.linspace(0.2, 2, 7).double()[:, None]
    kernel = RBF(1.0)
    expected = subset_probabilities(lambda c: rpcholesky_weights(kernel(X, X), c), 7, 3)
    _compare_frequencies(RPCholesky(block=block), X, kernel, expected, seed)


@pytest.mark.parametrize("block", [2, 16])
@pytest.mark.parametrize("space", ["input", "kernel"])
def test_blocks_pick_subsets_as_plain_kmeans_does(block, space, seed, generator):
    X = torch.randn(7, 2, generator=generator, dtype=torch.float64) * torch.linspace(0.2, 2, 7).double()[:, None]
    expected = subset_probabilities(lambda c: kmeans_weights(X, c), 7, 3)
    _compare_frequencies(KMeansPlusPlus(space=space, block=block), X, Linear(), expected, seed)


def _compare_frequencies(selector, X, kernel, expected, seed, draws=1000):
    counts = dict.fromkeys(expected, 0)
    generator = seeded(seed)
    for _ in range(draws):
        counts[tuple(selector(X, 3, kernel=kernel, generator=generator).tolist())] += 1
    chi2 = sum((counts[key] - draws * p) ** 2 / (draws * p) for key, p in expected.items() if p > 1e-12)
    freedom = len(expected) - 1
    # Mean and deviation of chi-squared; five deviations, so that one run in a million fails by chance.
    assert chi2 < freedom + 5 * (2 * freedom) ** 0.5


def test_draws_without_replacement_follow_the_weights_in_turn(seed):
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    expected = subset_probabilities(lambda chosen: weights, 4, 2)
    generator, draws = seeded(seed), 4000
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[tuple(draw_distinct(weights, 2, generator).tolist())] += 1
    for key, p in expected.items():
        assert counts[key] / draws == pytest.approx(p, abs=5 * (p * (1 - p) / draws) ** 0.5)


# How good the landmarks are.


def test_rpcholesky_trace_error_is_within_ten_percent_of_the_plain_algorithm(seed, generator):
    X = clustered(1000, 20, generator, dtype=torch.float32)
    kernel = RBF(3.0)
    K = kernel(X.double(), X.double())
    seeds = range(seed, seed + 12)
    ours = [nystrom_trace_error(K, RPCholesky()(X, 60, kernel=kernel, generator=seeded(s))) for s in seeds]
    plain = [nystrom_trace_error(K, plain_rpcholesky(K, 60, seeded(s))) for s in seeds]
    uniform = [nystrom_trace_error(K, Uniform()(X, 60, generator=seeded(s))) for s in seeds]
    assert sum(ours) == pytest.approx(sum(plain), rel=0.1)
    assert sum(ours) < 0.8 * sum(uniform)


@pytest.mark.parametrize("budget", [2**30, 40_000], ids=["memory", "file"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_rpcholesky_residual_is_the_nystrom_residual_of_its_pivots(budget, dtype, tolerance, generator):
    """Through many blocks; values are at most 1, and a residual adds the rounding of a few dozen squares."""
    X = clustered(300, 6, generator, dtype=dtype)
    kernel = RBF(3.0)
    pivots = RPCholesky(block=4, memory_budget=budget).pivots(X, 40, kernel=kernel, generator=generator)
    expected = rpcholesky_weights(kernel(X.double(), X.double()), pivots.index.tolist())
    assert_close(pivots.residual, expected, rtol=0, atol=tolerance)


def test_rpcholesky_ends_where_a_smooth_kernel_is_exhausted_in_float32(generator):
    """Float32 sees some two dozen directions of this kernel; asked for 200, the search must end and say so."""
    X = torch.randn(400, 2, generator=generator)
    with pytest.raises(RankDeficientKernelError, match=r"only \d+ of m=200 .* float64"):
        RPCholesky(block=16)(X, 200, kernel=RBF(6.0), generator=generator)


def test_rpcholesky_finds_the_rank_of_the_kernel_and_then_explains_everything(generator):
    X = torch.randn(300, 5, generator=generator, dtype=torch.float64)
    chosen = RPCholesky(block=3)(X, 5, kernel=Linear(), generator=generator)
    assert nystrom_trace_error(X @ X.T, chosen) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rpcholesky_says_how_many_landmarks_a_kernel_of_low_rank_has(dtype, generator):
    X = torch.randn(300, 5, generator=generator, dtype=dtype)
    with pytest.raises(RankDeficientKernelError, match="only 5 of m=6"):
        RPCholesky()(X, 6, kernel=Linear(), generator=generator)


def test_equal_rows_are_refused_and_duplicates_never_chosen_together(generator):
    same = torch.ones(50, 3)
    with pytest.raises(RankDeficientKernelError, match="only 1 of m=2"):
        RPCholesky()(same, 2, kernel=RBF(1.0), generator=generator)
    with pytest.raises(InvalidInputError, match="only 1 of m=2"):
        KMeansPlusPlus()(same, 2, generator=generator)
    zeros = torch.zeros(50, 3)
    with pytest.raises(RankDeficientKernelError, match="only 0 of m=2"):
        RPCholesky()(zeros, 2, kernel=Linear(), generator=generator)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 1e2]))
@pytest.mark.parametrize("selector", [RPCholesky(), KMeansPlusPlus(), KMeansPlusPlus(space="kernel")])
def test_one_of_each_group_of_duplicates_is_chosen(selector, seed, offset):
    """Ten distinct points, copied many times, far from the origin in float32 too: each is found exactly once."""
    generator = seeded(seed)
    centres = 3 * torch.randn(10, 4, generator=generator)
    label = torch.cat([torch.arange(10), torch.randint(10, (200,), generator=generator)])
    kernel = RBF(1.0)
    chosen = selector(centres[label] + offset, 10, kernel=kernel, generator=generator)
    assert_close(label[chosen].sort().values, torch.arange(10))
    with pytest.raises((InvalidInputError, RankDeficientKernelError), match="only 10 of m=11"):
        selector(centres[label] + offset, 11, kernel=kernel, generator=generator)


# Leverage scores.


def test_nystrom_leverage_with_all_columns_is_exact(generator):
    X = clustered(80, 5, generator)
    kernel = RBF(2.0)
    estimator = LeverageNystrom(columns=80, ridge=1e-3)
    exact = leverage_scores(kernel(X, X), 1e-3 * 80)
    # Directions cut at 32 eps of the largest eigenvalue move a score by that over the ridge.
    assert_close(estimator.scores(X, 10, kernel=kernel, generator=generator), exact, rtol=1e-8, atol=1e-9)


def test_nystrom_leverage_with_few_columns_adds_the_share_of_the_residual(generator):
    X = clustered(80, 5, generator)
    kernel = RBF(2.0)
    scores = LeverageNystrom(columns=12, ridge=1e-3).scores(X, 10, kernel=kernel, generator=seeded(4))
    columns = torch.randperm(80, generator=seeded(4))[:12].sort().values
    assert_close(scores, nystrom_leverage(kernel(X, X), columns, 1e-3 * 80), rtol=1e-8, atol=1e-9)


def test_nystrom_leverage_follows_the_exact_scores_with_few_columns(generator):
    X = clustered(600, 5, generator, dtype=torch.float32)
    kernel = RBF(2.0)
    exact = leverage_scores(kernel(X.double(), X.double()), 1e-2 * 600)
    scores = LeverageNystrom(columns=100, ridge=1e-2).scores(X, 100, kernel=kernel, generator=generator)
    assert float(torch.corrcoef(torch.stack([scores, exact]))[0, 1]) > 0.9
    assert bool(((scores >= 0) & (scores < 2)).all())


@pytest.mark.parametrize("kernel", [Linear(), RBF(2.0)], ids=["linear", "rbf"])
def test_hutchinson_leverage_is_unbiased_with_the_predicted_variance(kernel, generator):
    X = clustered(60, 5, generator)
    estimator = LeverageHutchinson(probes=3000, ridge=1e-2, tolerance=1e-8, iterations=200)
    K = kernel(X, X)
    damping = 1e-2 * float(K.trace())
    exact = leverage_scores(K, damping)
    M = torch.linalg.solve(K + damping * torch.eye(60, dtype=K.dtype), K)
    deviation = ((M @ M).diagonal() - exact.square()).div(3000).sqrt()
    scores = estimator.scores(X, 10, kernel=kernel, generator=generator)
    assert float(((scores - exact) / deviation).abs().max()) < 5


@pytest.mark.parametrize("kernel", [Linear(), RBF(2.0)], ids=["linear", "rbf"])
def test_streamed_gram_product_equals_the_matrix_product(kernel, generator):
    X = clustered(50, 5, generator)
    V = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    assert_close(gram_product(kernel, X, V, Budget(2000)), kernel(X, X) @ V, rtol=1e-12, atol=1e-12)


def test_leverage_refuses_when_too_few_scores_are_positive(generator):
    X = torch.randn(40, 2, generator=generator)
    with pytest.raises(InvalidInputError, match=r"of 40 leverage scores are positive, and m=40 .* 'probes'"):
        LeverageHutchinson(probes=1)(X, 40, kernel=Linear(), generator=generator)


# Memory, kernels, the door.


class Spy(Kernel):
    """A kernel that counts the samples pushed through it, as a network would pay for them."""

    def __init__(self, kernel):
        self.kernel, self.samples, self.widest = kernel, 0, 0

    def prepare(self, Y):
        return self.kernel.prepare(Y)

    def rows(self, X, prepared, *, diagonal=False, mean=None):
        self.samples += len(X)
        self.widest = max(self.widest, len(X))
        return self.kernel.rows(X, prepared, diagonal=diagonal, mean=mean)

    def describe(self):
        return self.kernel.describe()


def test_large_blocks_cost_few_passes(generator):
    X = clustered(2000, 5, generator, clusters=200, dtype=torch.float32)
    spy = Spy(RBF(1.0))
    select(X, 64, kernel=spy, generator=seeded(0), method=RPCholesky(block=256))
    assert spy.samples < 4.5 * 2000  # one pass for the diagonal, two or three for the pivots


@pytest.mark.parametrize("selector", [RPCholesky, LeverageNystrom, KMeansPlusPlus])
def test_a_small_budget_streams_and_chooses_the_same(selector, generator, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X = clustered(400, 5, generator)
    whole = selector()(X, 25, kernel=RBF(2.0), generator=seeded(1))
    spy = Spy(RBF(2.0))
    streamed = selector(memory_budget=60_000)(X, 25, kernel=spy, generator=seeded(1))
    assert_close(streamed, whole)
    assert spy.widest < 400
    assert not list(tmp_path.iterdir())


def test_the_temporary_factor_is_removed_after_a_failure(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = []

    class Failing(Spy):
        def rows(self, X, prepared, *, diagonal=False, mean=None):
            seen.extend(tmp_path.rglob("factor"))
            if seen and self.samples > 500:
                raise RuntimeError("the network broke")
            return super().rows(X, prepared, diagonal=diagonal, mean=mean)

    with pytest.raises(RuntimeError, match="the network broke"):
        RPCholesky(memory_budget=10_000)(
            torch.randn(400, 5, generator=generator), 25, kernel=Failing(RBF(2.0)), generator=generator
        )
    assert seen
    assert not list(tmp_path.iterdir())


def test_dicts_memory_maps_and_transformed_kernels_are_accepted(generator, tmp_path):
    array = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(200, 4))
    array[:] = clustered(200, 4, generator).numpy()
    kernel = default_transform(RBF(2.0), array[:50])
    for name in SELECTORS:
        mapped = select(array, 20, kernel=kernel, generator=seeded(2), method=name)
        nested = select({"a": torch.from_numpy(array)}, 20, kernel=kernel, generator=seeded(2), method=name)
        assert_close(mapped, nested)


def test_the_door_refuses_an_unknown_method_and_a_missing_kernel(generator):
    X = torch.randn(10, 2, generator=generator)
    with pytest.raises(InvalidInputError, match="'magic' is unknown: it must be one of .*rpcholesky"):
        select(X, 2, generator=generator, method="magic")
    with pytest.raises(InvalidInputError, match="'rpcholesky' measures samples with a kernel, and none was given"):
        select(X, 2, generator=generator)
    with pytest.raises(InvalidInputError, match="must be 'input' or 'kernel'"):
        KMeansPlusPlus(space="latent")
    with pytest.raises(InvalidInputError, match="block=0"):
        RPCholesky(block=0)(X, 2, kernel=Linear(), generator=generator)


@pytest.mark.slow
def test_a_million_mapped_rows_stay_within_the_budget(tmp_path, seed):
    """The factor alone, 1M x 100 float32, is 381 MiB; the process may gain the budget of 128 MiB and no more."""
    n, d, budget, step = 1_000_000, 8, 2**27, 20_000
    X = np.memmap(tmp_path / "x", mode="w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, step):
        X[start : start + step] = clustered(step, d, seeded(seed + start), dtype=torch.float32).numpy()
    X.flush()
    code = """
        import sys
        import numpy as np, torch
        from krepes.kernels.classic import RBF
        from krepes.landmarks import RPCholesky

        torch.set_num_threads(1)
        path, budget, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        X = np.memmap(path, mode="r", dtype=np.float32, shape=(1_000_000, 8))
        selector, generator = RPCholesky(memory_budget=budget), torch.Generator().manual_seed(seed)
        with measured():
            chosen = selector(X, 100, kernel=RBF(2.0, memory_budget=2**24), generator=generator)
        assert len(chosen.unique()) == 100
    """
    gained = peak_rise(code, tmp_path / "x", budget, seed) - n * d * 4  # the mapped file itself counts as resident
    print(f"peak gained {gained / 2**20:.0f} MiB of a budget of {budget / 2**20:.0f} MiB")
    assert 2**24 < gained < budget  # at least the vectors over n, or the measurement is broken
