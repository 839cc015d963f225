"""Row weights of the training losses: all ones is the plain loss, zero is a row absent, two is a row twice."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from krepes.encoders.losses import LOSSES, cosine_distance, weighted
from krepes.encoders.twins import Bootstrap, Twins
from krepes.encoders.weighted_norm import WeightedBatchNorm
from krepes.errors import InvalidInputError

EVERY = {**LOSSES, "cosine_distance": cosine_distance}
TIGHT = dict(rtol=1e-9, atol=1e-11)  # float64, a dozen rows: only round-off may differ
SUMS = sorted(set(EVERY) - {"simclr"})  # a row is never its own negative, so twice is not the same as weight two

problems = st.tuples(st.integers(0, 2**31), st.integers(4, 9), st.integers(1, 5), st.floats(0.2, 3.0))


def drawn(seed, b, h, size):
    Z = torch.randn(2, b, h, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return size * (Z[0] + 0.2 * Z[1]), size * (Z[0] - 0.2 * Z[1])


def value_and_gradient(loss, Z_a, Z_b, *w):
    Z = [z.clone().requires_grad_() for z in (Z_a, Z_b)]
    value = loss(*Z, *w)
    return value.detach(), *torch.autograd.grad(value, Z)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25, deadline=None)
@given(problem=problems)
def test_weights_of_one_are_the_plain_loss(name, problem):
    Z = drawn(*problem)
    plain, ones = (value_and_gradient(EVERY[name], *Z, *w) for w in ((), (torch.ones(problem[1]).double(),)))
    torch.testing.assert_close(ones, plain, **TIGHT)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25, deadline=None)
@given(problem=problems, place=st.integers(0, 3))
def test_weight_zero_is_the_row_absent(name, problem, place):
    Z = drawn(*problem)
    w = torch.ones(problem[1]).double()
    w[place] = 0.0
    there = w > 0
    value, *gradients = value_and_gradient(EVERY[name], *Z, w)
    expected, *parts = value_and_gradient(EVERY[name], *(z[there] for z in Z))
    torch.testing.assert_close(value, expected, **TIGHT)
    for gradient, part in zip(gradients, parts, strict=True):
        torch.testing.assert_close(gradient[there], part, **TIGHT)
        assert not gradient[place].any()


@pytest.mark.parametrize("name", SUMS)
@settings(max_examples=25, deadline=None)
@given(problem=problems, place=st.integers(0, 3))
def test_weight_two_is_the_row_twice(name, problem, place):
    Z = drawn(*problem)
    w = torch.ones(problem[1]).double()
    w[place] = 2.0
    twice = [torch.cat([z, z[place : place + 1]]) for z in Z]
    torch.testing.assert_close(EVERY[name](*Z, w), EVERY[name](*twice), **TIGHT)


@pytest.mark.parametrize("name", EVERY)
def test_derivative_in_the_weights_by_differences(name):
    Z = drawn(3, 8, 4, 1.0)
    w = torch.linspace(0.3, 1.8, 8).double()
    (found,) = torch.autograd.grad(EVERY[name](*Z, w.requires_grad_()), w)
    w = w.detach()
    for i in range(8):
        e = torch.zeros(8).double()
        e[i] = 1e-6
        difference = (EVERY[name](*Z, w + e) - EVERY[name](*Z, w - e)) / 2e-6
        torch.testing.assert_close(found[i], difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"simclr", "vicreg"}))  # log W and W - 1 stand in those
def test_weights_count_only_relative_to_each_other(name):
    Z, w = drawn(4, 8, 4, 1.0), torch.linspace(0.3, 1.8, 8).double()
    torch.testing.assert_close(EVERY[name](*Z, 3 * w), EVERY[name](*Z, w), **TIGHT)


def test_own_loss_without_weights_is_refused_and_one_with_weights_is_taken():
    with pytest.raises(InvalidInputError, match="takes no row weights"):
        weighted(lambda Z_a, Z_b: (Z_a - Z_b).square().sum())
    for loss in (*EVERY.values(), lambda Z_a, Z_b, w: w.sum(), lambda *Z: Z[0].sum()):
        assert weighted(loss) is loss


class Distance(nn.Module):
    def forward(self, Z_a, Z_b):
        return (Z_a - Z_b).square().sum()


class WeightedDistance(Distance):
    def forward(self, Z_a, Z_b, w=None):
        return (Z_a - Z_b).square().sum(1) @ w


def test_a_third_argument_that_is_no_weight_is_not_taken_for_one():
    def heated(Z_a, Z_b, temperature=0.5):
        return (Z_a - Z_b).square().sum() / temperature

    with pytest.raises(InvalidInputError, match="heated.* takes no row weights .its third argument is 'temperature'"):
        weighted(heated)
    with pytest.raises(InvalidInputError, match="'Distance' takes no row weights"):
        weighted(Distance())
    loss = WeightedDistance()
    assert weighted(loss) is loss


# Batch norm


def normed(seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4), nn.BatchNorm1d(4)
    return nn.Sequential(*layers).double().train()


@pytest.fixture
def x(generator):
    return torch.randn(7, 2, 6, 6, generator=generator, dtype=torch.float64)


def outputs(x, w):
    """Two passes with weights: embeddings and the running statistics after them."""
    net = normed()
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    with WeightedBatchNorm(w) as mode:
        first = functional_call(net, buffers, (x,))
        second = functional_call(net, buffers, (x * 1.5,))
    return first, second, {name: mode.after(buffer) for name, buffer in buffers.items()}


def test_weights_of_one_are_plain_batch_norm(x):
    net = normed()
    expected = net(x), net(x * 1.5), dict(net.named_buffers())
    torch.testing.assert_close(outputs(x, torch.ones(7).double()), expected, **TIGHT)


def test_batch_norm_weight_zero_is_the_row_absent_and_two_is_the_row_twice(x):
    w = torch.ones(7).double()
    w[2], w[5] = 0.0, 2.0
    rows = [0, 1, 3, 4, 5, 6, 5]
    found, expected = outputs(x, w), outputs(x[rows], torch.ones(7).double())
    torch.testing.assert_close([part[rows] for part in found[:2]], list(expected[:2]), **TIGHT)
    torch.testing.assert_close(found[2], expected[2], **TIGHT)


def test_batch_norm_in_eval_mode_is_left_alone(x):
    net = normed().eval()
    with WeightedBatchNorm(torch.zeros(7).double()) as mode:
        found = net(x)
    torch.testing.assert_close(found, net(x), rtol=0, atol=0)
    assert not mode.running


@pytest.mark.parametrize("name", [*LOSSES, "byol"])
def test_twins_with_weight_zero_are_twins_without_the_row(name, x):
    torch.manual_seed(0)
    Y, net = torch.empty(1, 4).double(), normed()
    twins = Bootstrap(net, Y, (6, 5), 0.9) if name == "byol" else Twins(net, Y, (6, 5), LOSSES[name])
    w = torch.ones(7).double()
    w[3] = 0.0
    views = x, x.flip(2)
    with WeightedBatchNorm(w):
        found = twins(*views, w)[0]
    expected = twins(*(view[w > 0] for view in views))[0]
    torch.testing.assert_close(found, expected, **TIGHT)
