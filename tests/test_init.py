import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from krepes.engine.init import constrained_maximiser, kaiming_init, principal_component_init
from krepes.errors import InvalidInputError, RankDeficientKernelError


def gram(generator, m, rank=None):
    F = torch.randn(m, rank or 2 * m, generator=generator, dtype=torch.float64)
    return F @ F.T


@given(seed=st.integers(0, 2**31), m=st.integers(1, 12), scale=st.floats(1e-8, 1e8), data=st.data())
@settings(max_examples=30, deadline=None)
def test_principal_components_are_orthonormal_in_the_kernel(seed, m, scale, data):
    """A0ᵀ K A0 = I whatever the size and the scale of K; round-off grows with the condition of K, here below 1e4."""
    h = data.draw(st.integers(1, m))
    K = scale * gram(torch.Generator().manual_seed(seed), m)
    A0 = principal_component_init(K, h)
    assert_close(A0.T @ K @ A0, torch.eye(h, dtype=K.dtype), rtol=0, atol=1e-9)


def test_principal_components_give_the_kernel_back(generator):
    """K A0 A0ᵀ K = K when h is the rank: the start is the Nyström feature map."""
    K = gram(generator, 9, rank=4)
    Phi = K @ principal_component_init(K, 4)
    assert_close(Phi @ Phi.T, K, rtol=1e-10, atol=1e-11)


def test_order_of_the_landmarks_only_reorders_the_rows(generator):
    K = gram(generator, 7)
    order = torch.randperm(7, generator=generator)
    assert_close(principal_component_init(K[order][:, order], 3), principal_component_init(K, 3)[order])


@pytest.mark.parametrize("h", [0, 5, 9])
def test_h_beyond_the_rank_is_refused(generator, h):
    with pytest.raises(RankDeficientKernelError, match=rf"h={h} is not between 1 and the numerical rank 4 of K_mm"):
        principal_component_init(gram(generator, 9, rank=4), h)


def test_a_kernel_without_a_positive_eigenvalue_is_refused():
    with pytest.raises(RankDeficientKernelError, match="numerical rank 0.*not positive"):
        principal_component_init(torch.zeros(3, 3, dtype=torch.float64), 1)


def test_principal_components_are_the_constrained_maximiser_of_the_squared_kernel(generator):
    K = gram(generator, 6)
    assert_close(constrained_maximiser(K @ K, K, 3), principal_component_init(K, 3), rtol=1e-8, atol=1e-9)


def test_no_other_point_of_the_constraint_beats_the_maximiser(generator):
    K, S = gram(generator, 6), torch.randn(6, 6, generator=generator, dtype=torch.float64)
    S = S + S.T
    A = constrained_maximiser(S, K, 2)
    assert_close(A.T @ K @ A, torch.eye(2, dtype=K.dtype), rtol=0, atol=1e-10)
    W = principal_component_init(K, 6)
    for _ in range(50):
        rotation, _ = torch.linalg.qr(torch.randn(6, 2, generator=generator, dtype=torch.float64))
        other = W @ rotation
        assert (other.T @ S @ other).trace() <= (A.T @ S @ A).trace() + 1e-9


def test_kaiming_repeats_with_its_generator_and_has_its_variance():
    first = kaiming_init(400, 50, generator=torch.Generator().manual_seed(3))
    again = kaiming_init(400, 50, generator=torch.Generator().manual_seed(3))
    assert torch.equal(first, again)
    # 20,000 draws: the variance is known to 1 %, so 5 % is five standard errors.
    assert_close(float(first.var()), 2 / 400, rtol=0.05, atol=0)


def test_kaiming_refuses_an_empty_shape(generator):
    with pytest.raises(InvalidInputError, match="q=0 landmark points"):
        kaiming_init(0, 3, generator=generator)
