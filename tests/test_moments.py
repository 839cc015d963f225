import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from krepes.engine.moments import MomentSum, moments_of
from krepes.errors import InvalidInputError

# Sums of at most a few hundred products in float64, in another order.
ROUND_OFF = dict(rtol=1e-12, atol=1e-13)


def rows(generator, n=50, p=2, q=6, mean=0.0):
    K = torch.randn(p, n, q, generator=generator, dtype=torch.float64) + mean
    return torch.nn.functional.pad(K, (0, 1), value=1.0)


def test_blocks_are_means_of_outer_products(generator):
    Kbar = rows(generator, p=3)
    moments = moments_of(Kbar, torch.eye(6))
    for u in range(3):
        for v in range(3):
            expected = torch.stack([torch.outer(a, b) for a, b in zip(Kbar[u], Kbar[v], strict=True)]).mean(0)
            assert_close(moments.M[u, v], expected, **ROUND_OFF)
    assert_close(moments.mean, Kbar.mean(1), **ROUND_OFF)


def test_centred_blocks_are_covariances(generator):
    Kbar = rows(generator, mean=3.0)
    moments = moments_of(Kbar, torch.eye(6))
    both = torch.cat([Kbar[0, :, :-1], Kbar[1, :, :-1]], dim=1)
    expected = torch.cov(both.T, correction=0)[:6, 6:]
    assert_close(moments.centred(0, 1)[:-1, :-1], expected, **ROUND_OFF)


def test_inputs_and_trace_are_means_over_samples_and_views(generator):
    Kbar = rows(generator)
    X = torch.randn(2, 50, 4, generator=generator, dtype=torch.float64) + 5
    diagonal = torch.rand(2, 50, generator=generator, dtype=torch.float64)
    moments = moments_of(Kbar, torch.eye(6), diagonal=diagonal, X=X)
    assert_close(moments.KX, torch.einsum("pnk,pnd->kd", Kbar, X) / 100, **ROUND_OFF)
    assert_close(moments.XX, float(X.square().sum(2).mean()), **ROUND_OFF)
    assert_close(moments.trace, float(diagonal.mean()), **ROUND_OFF)


@given(seed=st.integers(0, 2**31), cuts=st.sets(st.integers(1, 49), max_size=6), mean=st.floats(-100, 100))
@settings(max_examples=40, deadline=None)
def test_batches_and_shards_change_round_off_only(seed, cuts, mean):
    """However the samples are cut, into batches of one sum or into merged moments: the same up to mean² ulps."""
    Kbar = rows(torch.Generator().manual_seed(seed), mean=mean)
    X = Kbar[..., :3]
    K = torch.eye(6)
    edges = [0, *sorted(cuts), 50]
    parts = [Kbar[:, low:high] for low, high in zip(edges, edges[1:], strict=False)]
    whole = moments_of(Kbar, K, X=X)
    batched = MomentSum(K)
    for part in parts:
        batched.add(part, X=part[..., :3])
    merged = moments_of(parts[0], K, X=parts[0][..., :3])
    for part in parts[1:]:
        merged = merged + moments_of(part, K, X=part[..., :3])
    close = dict(rtol=1e-12, atol=1e-12 * (1 + mean**2))
    for other in (batched.moments(), merged):
        assert other.n == whole.n
        assert_close(other.M, whole.M, **close)
        assert_close(other.KX, whole.KX, **close)
        assert_close(other.XX, whole.XX, **close)


def test_the_constant_column_survives_merging_exactly(generator):
    """Corner one and equal borders to the bit: what makes an inert shift stay at exactly zero."""
    merged = moments_of(rows(generator, n=3), torch.eye(6))
    for n in (7, 11, 1):
        merged = merged + moments_of(rows(generator, n=n), torch.eye(6))
    assert torch.equal(merged.M[..., -1, -1], torch.ones(2, 2, dtype=torch.float64))
    assert torch.equal(merged.M[0, 1, :, -1], merged.M[0, 0, :, -1])
    assert torch.equal(merged.M[0, 1, -1, :], merged.M[1, 1, :, -1])
    for u in range(2):
        for v in range(2):
            assert torch.equal(merged.centred(u, v)[-1], torch.zeros(7, dtype=torch.float64))


def test_a_large_mean_costs_the_covariance_no_more_than_storing_it(generator):
    """Rows of size 1e6 and spread 1: kept as raw moments the covariance has 1e12 ulps = 2e-4 left, and no worse."""
    Kbar = rows(generator, n=2000, mean=0.0)
    far = Kbar.clone()
    far[..., :-1] += 1e6
    total = MomentSum(torch.eye(6))
    for batch in far.split(100, dim=1):
        total.add(batch)
    expected = moments_of(Kbar, torch.eye(6)).centred(0, 1)
    assert_close(total.moments().centred(0, 1), expected, rtol=0, atol=1e-3)


def test_pooling_two_views_is_twice_the_samples(generator):
    Kbar = rows(generator)
    assert_close(moments_of(Kbar, torch.eye(6)).pooled, moments_of(Kbar.flatten(0, 1)[None], torch.eye(6)).M[0, 0])


def test_moments_over_other_landmarks_are_not_added(generator):
    one = moments_of(rows(generator), torch.eye(6))
    with pytest.raises(InvalidInputError, match="landmark kernels different"):
        one + moments_of(rows(generator), 2 * torch.eye(6))
    with pytest.raises(InvalidInputError, match=r"shapes \(2, 2, 7, 7\) and \(1, 1, 7, 7\)"):
        one + moments_of(rows(generator, p=1), torch.eye(6))


def test_rows_that_do_not_fit_the_landmarks_are_refused(generator):
    with pytest.raises(InvalidInputError, match=r"\(2, 50, 7\) do not fit a landmark kernel \(5, 5\)"):
        moments_of(rows(generator), torch.eye(5))
    total = MomentSum(torch.eye(6))
    total.add(rows(generator))
    with pytest.raises(InvalidInputError, match="earlier batches of 2 views"):
        total.add(rows(generator, p=1))


def test_nothing_has_no_moments():
    with pytest.raises(InvalidInputError, match="no sample was seen"):
        MomentSum(torch.eye(2)).moments()


def test_merging_in_place_gives_the_bits_of_merging(generator):
    rows, K = torch.randn(2, 60, 5, generator=generator, dtype=torch.float64), torch.eye(4)
    rows[..., -1] = 1.0
    X = torch.randn(2, 60, 3, generator=generator)
    parts = [moments_of(rows[:, s], K, diagonal=rows[:, s, 0], X=X[:, s]) for s in (slice(0, 25), slice(25, 60))]
    whole, other = parts[0] + parts[1], parts[1].M.clone()
    memory = parts[0].M.data_ptr()
    parts[0] += parts[1]
    assert parts[0].M.data_ptr() == memory and torch.equal(parts[1].M, other)
    for name in ("n", "trace", "XX"):
        assert getattr(parts[0], name) == getattr(whole, name)
    assert torch.equal(parts[0].M, whole.M) and torch.equal(parts[0].KX, whole.KX)
