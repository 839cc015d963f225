"""Classic kernels against one-pair-at-a-time formulas, in float64."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF, Laplacian, Linear, Polynomial
from krepes.kernels.vectors import flatten

TIGHT = dict(rtol=1e-12, atol=1e-12)  # float64, a few dozen terms a sum: only round-off may differ

PAIRWISE = {
    Linear(): lambda x, z: float(x @ z),
    RBF(1.3): lambda x, z: math.exp(-float((x - z) @ (x - z)) / (2 * 1.3**2)),
    Polynomial(3, 0.5, 0.2): lambda x, z: (0.2 * float(x @ z) + 0.5) ** 3,
    Laplacian(2.0): lambda x, z: math.exp(-float((x - z).abs().sum()) / 2.0),
}
kernels = pytest.mark.parametrize("kernel", PAIRWISE, ids=lambda kernel: kernel.describe()["name"])


@pytest.fixture
def X(generator):
    return torch.randn(23, 2, 3, generator=generator, dtype=torch.float64)


@kernels
def test_rows_equal_the_formula_pair_by_pair(kernel, X):
    Y = X[4:11] + 0.1
    expected = [[PAIRWISE[kernel](x.flatten(), y.flatten()) for y in Y] for x in X]
    assert_close(kernel(X, Y), torch.tensor(expected, dtype=torch.float64), **TIGHT)


@kernels
def test_diagonal_is_the_diagonal_of_the_gram_matrix(kernel, X):
    K = kernel(X, X)
    assert_close(kernel.diagonal(X), K.diagonal(), **TIGHT)
    rows = kernel.rows(X, kernel.prepare(X[:2]), diagonal=True)
    assert_close(rows.diagonal, K.diagonal(), **TIGHT)


@kernels
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_feature_equals_the_weighted_gram_matrix(kernel, X, generator, weighted):
    reference = X[:9]
    w = torch.randn(9, generator=generator, dtype=torch.float64) if weighted else X.new_full((9,), 1 / 9)
    mean = kernel.mean_feature(reference, w if weighted else None)
    K = kernel(X, reference)
    assert mean.square == pytest.approx(float(w @ K[:9] @ w), rel=1e-12)
    assert_close(kernel.rows(X, kernel.prepare(X[:1]), mean=mean).mean, K @ w, **TIGHT)
    assert_close(kernel.dot_mean(X, mean), K @ w, **TIGHT)


@kernels
def test_a_tiny_memory_budget_changes_nothing_but_the_chunks(kernel, X):
    parameters = {name: value for name, value in kernel.describe().items() if name != "name"}
    # One row of 12 numbers against 5 points and 40 of the mean takes 2 (12 + 5 + 40) entries of 8 bytes.
    stingy = type(kernel)(**parameters, memory_budget=16 * (X[0].numel() + 5 + len(X)))
    mean = kernel.mean_feature(X)
    whole = kernel.rows(X, kernel.prepare(X[:5]), diagonal=True, mean=mean)
    pieces = stingy.rows(X, stingy.prepare(X[:5]), diagonal=True, mean=mean)
    assert_close(pieces.K, whole.K, **TIGHT)
    assert_close(pieces.diagonal, whole.diagonal, **TIGHT)
    assert_close(pieces.mean, whole.mean, **TIGHT)


@kernels
def test_gram_matrix_is_positive_semi_definite(kernel, X):
    K = kernel(X, X)
    assert_close(K, K.T, **TIGHT)
    assert float(torch.linalg.eigvalsh(K)[0]) > -1e-12 * float(K.trace())


def test_rbf_far_from_the_origin_keeps_its_float32_accuracy(X):
    """Distances do not feel a shift of 1000, but |x|² - 2xᵀz + |z|² taken at the origin would lose all its digits."""
    near = X.float()
    K = RBF(1.0)(near + 1000, near[:5] + 1000)
    shifted = (near + 1000).double()  # rounding of the shifted data itself is not the kernel's fault
    assert_close(K.double(), RBF(1.0)(shifted, shifted[:5]), rtol=1e-5, atol=1e-6)


def test_median_width_is_the_median_pair_distance(X, generator):
    flat = X.reshape(23, -1)
    for kernel, p in ((RBF, 2.0), (Laplacian, 1.0)):
        width = kernel.median(X, generator=generator, sample=23).width
        assert width == pytest.approx(float(torch.nn.functional.pdist(flat, p=p).median()), rel=1e-12)


def test_memory_mapped_integers_and_nested_batches_are_accepted(tmp_path):
    images = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(6, 2, 2))
    images[:] = np.arange(24).reshape(6, 2, 2)
    assert_close(Linear()(images, images[:2]), flatten(images) @ flatten(images[:2]).T)
    nested = {"a": torch.ones(3, 2), "b": torch.full((3,), 2.0)}
    assert_close(Linear().diagonal(nested), torch.full((3,), 6.0))


@pytest.mark.parametrize("make", [lambda: RBF(0.0), lambda: Laplacian(-1.0), lambda: Polynomial(scale=float("nan"))])
def test_a_width_or_scale_that_is_not_positive_is_refused(make):
    with pytest.raises(InvalidInputError, match="must be positive"):
        make()


def test_a_polynomial_that_is_not_positive_is_refused():
    with pytest.raises(InvalidInputError, match="offset=-1 is out of range"):
        Polynomial(offset=-1.0)
    with pytest.raises(InvalidInputError, match="degree=0"):
        Polynomial(degree=0)


def test_nan_is_refused_with_the_row_where_its_chunk_begins(X):
    X[20, 1, 1] = float("nan")
    with pytest.raises(InvalidInputError, match=r"counted from sample 20, holds 1 NaN .* index \(0, 1, 1\)"):
        RBF(1.0, memory_budget=16 * (X[0].numel() + 2)).rows(X, X[:2].reshape(2, -1))
    with pytest.raises(InvalidInputError, match="the prepared points holds 1 NaN"):
        Linear().prepare(X)


def test_other_refusals_say_what_was_required(X, generator):
    with pytest.raises(InvalidInputError, match="6 features cannot be compared with prepared points of 3"):
        Linear()(X, X[:, 0])
    with pytest.raises(InvalidInputError, match="no sample"):
        Linear()(X, X[:0])
    with pytest.raises(InvalidInputError, match=r"weights of shape \(23,\), got \(22,\)"):
        RBF(1.0).mean_feature(X, torch.ones(22))
    with pytest.raises(InvalidInputError, match="median distance .* is zero"):
        RBF.median(torch.ones(10, 2), generator=generator)
