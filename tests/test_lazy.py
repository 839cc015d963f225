"""Lazy replay: against gradient descent on rows written out, against finite differences, and without the row."""

import dataclasses

import pytest
import torch
from torch import nn

from krepes.encoders.functional import SGD, Steps
from krepes.encoders.losses import LOSSES, weighted_mean
from krepes.encoders.twins import Twins
from krepes.errors import InvalidInputError
from krepes.influence.gradients import row_gradients
from krepes.influence.lazy import (
    LAZY,
    NEAR,
    LazyRowSteps,
    LazySteps,
    _falls,
    _stepped,
    falling_eta,
    lazy_batches,
    lazy_loss,
    scores,
)
from krepes.influence.linearised import Linearised, coefficients
from krepes.influence.reverse import differentiate, forward
from krepes.influence.rungs import lazy
from krepes.kernels.entk import EmpiricalNTK
from krepes.views import GaussianNoise, ViewStream


@pytest.fixture
def X(generator):
    return torch.randn(14, 5, generator=generator, dtype=torch.float64)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


@pytest.fixture
def linearised(encoder, X):
    return Linearised.of(encoder, EmpiricalNTK(encoder), X[:6])


@pytest.fixture
def stream(X):
    return ViewStream(X, GaussianNoise(0.2), batch_size=5)


def asked(X):
    def outcomes(embed):
        Z = embed(X)
        return torch.stack([Z[0] @ Z[1], Z[3].sin().sum()])

    return outcomes


def test_rows_span_the_landmarks_and_hold_the_embedding(linearised, encoder, X):
    K = EmpiricalNTK(encoder)(X, X[:6])
    rows = linearised.rows(X)
    K_mm = K[:6]
    torch.testing.assert_close(rows[:, :6] @ rows[:, :6].T, K @ torch.linalg.pinv(K_mm) @ K.T)
    torch.testing.assert_close(rows[:, 6:9], encoder(X).detach())
    torch.testing.assert_close(rows @ coefficients(torch.zeros(6, 3).double()), encoder(X).detach())


@pytest.mark.parametrize("name", LAZY)
def test_steps_on_moments_are_steps_on_all_rows(name, linearised, stream):
    """The moments hold all a step needs: the same B as by autograd on the rows themselves, with the training loss."""
    moments = linearised.moments(stream, progress=False)
    (batch,) = lazy_batches(linearised, stream, 1, size=14)
    rows = torch.cat([rows for _, rows in linearised.views(stream, 1, False)], dim=1)
    by_rows = LazyRowSteps(lazy_loss(name), ((batch[0], rows),) * 4, 3, 0.05, 14)
    by_moments = LazySteps(LAZY[name], moments, 3, 0.05, 4)
    found = forward(by_moments, by_moments.start(), moments.M.reshape(-1), 99)[-1]["B"]
    expected = forward(by_rows, by_rows.start(), torch.ones(14).double(), 99)[-1]["B"]
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def own(Z_a, Z_b, w=None):
    """A loss of one's own: distances of unit rows, and a pull of the mean to the origin."""
    U_a, U_b = (torch.nn.functional.normalize(Z, dim=1) for Z in (Z_a, Z_b))
    return weighted_mean((U_a - U_b).square().sum(1), w) + weighted_mean(U_a, w).square().sum()


@pytest.mark.parametrize("name", [*LOSSES, "byol", own])
def test_derivative_in_the_weights_is_that_of_finite_differences(name, linearised, stream, X):
    """The rows are replayed with one weight changed; moments are then those of weighted rows."""
    eta, T = 0.02, 5
    found = lazy(linearised, stream, name, asked(X), steps=T, draws=1, eta=eta, progress=False).dw
    rows = torch.cat([rows for _, rows in linearised.views(stream, 1, False)], dim=1)
    whole = ((torch.arange(14), rows),) * T
    batches = whole if name in LAZY else lazy_batches(linearised, stream, T)
    steps = LazyRowSteps(lazy_loss(name), batches, 3, eta, 14)
    outcomes = asked(X)

    def end(w):
        B = forward(steps, steps.start(), w, 99)[-1]["B"]
        return outcomes(lambda x: linearised.rows(x) @ coefficients(B))

    expected = []
    for i in range(14):
        e = torch.zeros(14).double()
        e[i] = 1e-5
        up, down = torch.ones(14).double() + e, torch.ones(14).double() - e
        if name == "vicreg":  # the moments' W / (W - 1) stays that of n rows
            up, down = 14 * up / up.sum(), 14 * down / down.sum()
        expected.append((end(up) - end(down)) / 2e-5)
    expected = torch.stack(expected)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("name", LAZY)
def test_scores_of_moments_sum_to_zero_and_do_not_depend_on_batches(name, linearised, stream, X):
    one = lazy(linearised, stream, name, asked(X), steps=5, draws=2, progress=False)
    other = lazy(linearised, stream.with_batch_size(14), name, asked(X), steps=5, draws=2, progress=False)
    torch.testing.assert_close(one.dw, other.dw, rtol=1e-6, atol=1e-10)
    assert float(one.dw.sum(0).abs().max()) < 1e-10 * float(one.dw.abs().max())


@pytest.mark.parametrize("name", ["barlow_twins", "vicreg", "byol"])
def test_step_size_is_the_largest_that_keeps_the_loss_falling_and_the_embeddings_near(name, linearised, stream):
    if name in LAZY:
        steps = LazySteps(LAZY[name], linearised.moments(stream, progress=False), 3, 1.0, 10)
    else:
        steps = LazyRowSteps(lazy_loss(name), lazy_batches(linearised, stream, 1, size=14) * 10, 3, 1.0, 14)
    found, losses = falling_eta(steps)
    assert losses == sorted(losses, reverse=True) and len(losses) == 11
    further, rising = _stepped(dataclasses.replace(found, eta=2 * found.eta), 10)
    assert rising != sorted(rising, reverse=True) or steps.moved(further) > NEAR


def test_loss_that_does_not_fall_is_refused(linearised, stream):
    batches = lazy_batches(linearised, stream, 2)
    steps = LazyRowSteps(lambda Z, Z_0, w: (Z - Z.detach()).square().sum() + 1.0, batches, 3, 1.0, 14)
    with pytest.raises(InvalidInputError, match="does not fall"):
        falling_eta(steps)


def test_scores_by_hand(generator):
    G = torch.randn(3, 2, 2, 4, 4, generator=generator, dtype=torch.float64)
    rows = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    M = torch.einsum("ubi,vbj->uvij", rows, rows) / 5

    class Held:
        pass

    held = Held()
    held.M = M
    expected = torch.einsum("ubi,ouvij,vbj->bo", rows, G, rows) - torch.einsum("ouvij,uvij->o", G, M)
    torch.testing.assert_close(scores(G, held, rows), expected)


# Gradients


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_rows_are_derivatives_of_the_gradient_in_weights(name, encoder, X):
    def views(t):
        noise = torch.randn(2, 14, 5, generator=torch.Generator().manual_seed(t), dtype=torch.float64)
        return torch.randperm(14, generator=torch.Generator().manual_seed(t)), X + 0.2 * noise

    steps = Steps(Twins(encoder, torch.empty(1, 3), (), LOSSES[name]), views, SGD(1.0), 2, 14)
    state, outcomes = steps.start(), asked(X)

    def measure(state):
        own = {key.removeprefix("encoder."): x for key, x in state.items()}
        return outcomes(lambda x: torch.func.functional_call(encoder, own, (x,)))

    found = row_gradients(steps, state, measure, range(2))

    def moved(w):
        """The parameters after a step of size one are minus the gradient, up to a constant."""
        return torch.stack([torch.cat([-x.flatten() for x in steps(t, state, w).values()]) for t in range(2)]).mean(0)

    G = torch.stack([(moved(1 + e) - moved(1 - e)) / 2e-5 for e in 1e-5 * torch.eye(14).double()])
    leaves = {key: x.requires_grad_() for key, x in steps.start().items()}
    rows = [torch.autograd.grad(o, list(leaves.values()), retain_graph=True) for o in measure(leaves)]
    g = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    size = float((G @ G.T).abs().max())
    torch.testing.assert_close(found.gram, G @ G.T, rtol=1e-5, atol=1e-6 * size)
    torch.testing.assert_close(found.dot(), -G @ g.T, rtol=1e-5, atol=1e-5 * float((G @ g.T).abs().max()))
    ridge = 0.1 * found.gram.diagonal().mean()
    inverse = torch.linalg.inv(G.T @ G + ridge * torch.eye(G.shape[1]).double())
    expected = -G @ inverse @ g.T
    torch.testing.assert_close(found.trak(0.1), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_one_step_of_replay_is_the_dot_product(encoder, X):
    views = lambda t: (torch.arange(14), torch.stack([X, X.flip(1)]))  # noqa: E731
    steps = Steps(Twins(encoder, torch.empty(1, 3), (), LOSSES["simclr"]), views, SGD(1e-3), 1, 14)
    outcomes = asked(X)

    def measure(state):
        own = {key.removeprefix("encoder."): x for key, x in state.items()}
        return outcomes(lambda x: torch.func.functional_call(encoder, own, (x,)))

    dot = row_gradients(steps, forward(steps, steps.start(), torch.ones(14).double(), 9)[0], measure, [0]).dot()
    found = differentiate(steps, measure, progress=False).dw / 1e-3
    torch.testing.assert_close(found, dot, rtol=0.05, atol=0.05 * float(dot.abs().max()))


def test_on_batches_of_rows_the_loss_may_rise_a_little_but_not_in_the_end():
    assert _falls([3.0, 2.9, 2.92, 2.8], 0.02) and not _falls([3.0, 2.9, 2.92, 2.8], 0.0)
    assert not _falls([3.0, 3.01, 3.02], 0.02) and not _falls([3.0, 2.0, 2.5, 1.0], 0.02)
    assert _falls([-3.0, -3.1, -3.06, -3.2], 0.02) and not _falls([-3.0, -4.0, -3.5, -5.0], 0.02)
