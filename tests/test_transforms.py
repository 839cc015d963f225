"""Centred and Cosine against explicit features, alone and nested, in float64."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from krepes.errors import InvalidInputError
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.kernels.classic import RBF, Linear, Polynomial
from krepes.kernels.transforms import Centred, Cosine, default_transform

TIGHT = dict(rtol=1e-10, atol=1e-11)  # float64; centring cancels a digit or two


def linear_features(X):
    return X


def quadratic_features(X):
    """Explicit features of (xᵀz + 1)²: all products of two entries of [x ; 1]."""
    one = torch.cat([X, X.new_ones(len(X), 1)], dim=1)
    return torch.einsum("ni,nj->nij", one, one).reshape(len(X), -1)


CASES = {"linear": (Linear(), linear_features), "quadratic": (Polynomial(2, 1.0, 1.0), quadratic_features)}
STACKS = ["c", "n", "cn", "nc", "cc", "nn", "ncn", "cnc", "ncnc"]


def build(stack, kernel, features, reference):
    """Wrap a kernel by the letters of a stack, inside first: c centres, n normalises; the features alike."""
    for letter in stack:
        if letter == "c":
            kernel = Centred(kernel, reference)
            features = _centred(features, reference)
        else:
            kernel = Cosine(kernel)
            features = _normalised(features)
    return kernel, features


def _centred(features, reference):
    return lambda X: features(X) - features(reference).mean(0)


def _normalised(features):
    return lambda X: features(X) / features(X).norm(dim=1, keepdim=True)


@pytest.fixture
def X(generator):
    return torch.randn(17, 3, generator=generator, dtype=torch.float64) + 0.7


@pytest.fixture
def reference(generator):
    return torch.randn(11, 3, generator=generator, dtype=torch.float64) + 0.5


class Counting(Kernel):
    """A linear kernel that counts the passes asked of it."""

    def __init__(self):
        self.calls = 0

    def prepare(self, Y):
        return Linear().prepare(Y)

    def rows(self, X, prepared, *, diagonal=False, mean=None):
        self.calls += 1
        return Linear().rows(X, prepared, diagonal=diagonal, mean=mean)

    def mean_feature(self, X, weights=None):
        return Linear().mean_feature(X, weights)

    def describe(self):
        return {"name": "counting"}


@pytest.mark.parametrize(("case", "stack"), list(itertools.product(CASES, STACKS)))
def test_rows_diagonal_and_mean_equal_explicit_features(case, stack, X, reference, generator):
    kernel, features = build(stack, *CASES[case], reference)
    w = torch.randn(17, generator=generator, dtype=torch.float64)
    mean = kernel.mean_feature(X, w)
    rows = kernel.rows(X, kernel.prepare(X[:5]), diagonal=True, mean=mean)
    F, total = features(X), w @ features(X)
    assert_close(rows.K, F @ F[:5].T, **TIGHT)
    assert_close(rows.diagonal, F.square().sum(1), **TIGHT)
    assert_close(kernel.diagonal(X), F.square().sum(1), **TIGHT)
    assert_close(rows.mean, F @ total, **TIGHT)
    assert mean.square == pytest.approx(float(total @ total), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("stack", ["c", "n", "cn", "nc", "nn", "ncn"])
def test_one_call_of_rows_makes_one_pass_of_the_wrapped_kernel(stack, X, reference):
    inner = Counting()
    kernel, _ = build(stack, inner, linear_features, reference)
    prepared = kernel.prepare(X[:5])
    inner.calls = 0
    kernel.rows(X, prepared, diagonal=True)
    assert inner.calls == 1


def test_the_reference_is_taken_once_and_later_changes_do_not_reach_it(X, reference):
    kernel = Centred(Linear(), reference)
    before = kernel(X, X)
    reference += 10
    assert_close(kernel(X, X), before, rtol=0, atol=0)


def test_centred_features_of_the_reference_sum_to_zero(reference):
    K = Centred(RBF(1.0), reference)(reference, reference)
    assert_close(K.sum(1), torch.zeros(11, dtype=torch.float64), rtol=0, atol=1e-13)


def test_default_transform_centres_first_then_normalises(X, reference):
    kernel = default_transform(Linear(), reference)
    F = X - reference.mean(0)
    assert_close(kernel(X, X), torch.nn.functional.cosine_similarity(F[:, None], F[None], dim=2), **TIGHT)
    described = kernel.describe()
    assert (described["name"], described["kernel"]["name"]) == ("cosine", "centred")
    assert described["kernel"]["n_reference"] == 11


@settings(max_examples=30, deadline=None)
@given(shift=st.floats(-1e3, 1e3), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 1000))
def test_default_transform_ignores_shift_and_scale_of_the_features(shift, scale, seed):
    X = torch.randn(12, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = scale * X + shift
    expected = default_transform(Linear(), X)(X, X)
    # A shift of 1e3 against a scale of 1e-3 costs twice six digits of sixteen.
    tolerance = 1e-13 * (1 + (shift / scale) ** 2)
    if tolerance < 1e-3:
        assert_close(default_transform(Linear(), moved)(moved, moved), expected, rtol=0, atol=tolerance)


def test_a_zero_feature_is_refused_with_its_row(X):
    X[6] = 0
    kernel = Cosine(Linear())
    with pytest.raises(InvalidInputError, match="1 of 17 samples in X .* first at index 6"):
        kernel(X, X[:3])
    with pytest.raises(InvalidInputError, match="prepared points .* first at index 0"):
        kernel.prepare(X[6:8])
    with pytest.raises(InvalidInputError, match="reference .* first at index 6"):
        kernel.mean_feature(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_equal_to_the_mean_is_zero_after_centring_not_noise(dtype, generator):
    """Rounding leaves a few eps of |x|² there; a cosine of that would be a direction made of noise."""
    X = 1e2 + torch.randn(5, 40, generator=generator, dtype=dtype)
    centred = Centred(Linear(), X[:1])
    assert float(centred.diagonal(X)[0]) == 0.0
    assert bool((centred.diagonal(X)[1:] > 0).all())
    with pytest.raises(InvalidInputError, match="first at index 0"):
        Cosine(centred)(X, X[1:])


def test_a_diagonal_far_below_zero_is_refused(X):
    class Inconsistent(Counting):
        def rows(self, X, prepared, *, diagonal=False, mean=None):
            rows = super().rows(X, prepared, diagonal=diagonal, mean=mean)
            return Rows(K=rows.K, diagonal=None if rows.diagonal is None else rows.diagonal * 0.2, mean=rows.mean)

    with pytest.raises(InvalidInputError, match="its diagonal and its mean feature disagree"):
        Centred(Inconsistent(), X).diagonal(X + 5)


def test_an_empty_reference_is_refused(X):
    with pytest.raises(InvalidInputError, match="reference of Centred holds no sample"):
        Centred(Linear(), X[:0])


def test_the_oracle_sees_a_forgotten_mean(X, reference):
    """Without |φ̄|² the comparison must fail."""
    kernel, features = build("c", *CASES["linear"], reference)
    kernel.mean = MeanFeature(content=kernel.mean.content, square=0.0)
    with pytest.raises(AssertionError):
        assert_close(kernel(X, X), features(X) @ features(X).T, **TIGHT)
