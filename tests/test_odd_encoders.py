"""Encoders that once gave a wrong value, a crash or a false reason."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from krepes.kernels import EmpiricalNTK


def oracle(network, w, X):
    """Kernel of all samples by autograd, all in one batch: one row of it at a time."""
    parameters, rows = [p.requires_grad_() for p in network.parameters()], []
    for i in range(len(X)):
        z = network(X)[i]
        found = torch.autograd.grad(z @ w, parameters, materialize_grads=True)
        rows.append(torch.cat([*[g.flatten() for g in found], z.detach(), z.new_ones(1)]))
    G = torch.stack(rows)
    return G @ G.T


class Stem(nn.Module):
    """Convolution and batch norm, then tokens: the norm's gradient lies otherwise in memory than its input."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.norm(self.conv(x)).flatten(2).transpose(1, 2))).mean(1)


def test_a_sample_that_is_alone_in_its_batch_has_the_same_value():
    """Torch's batch norm goes back wrongly through a batch of one there: such values were off by a sixth."""
    torch.manual_seed(0)
    network, X = Stem().eval().double(), torch.randn(4, 3, 8, 8, dtype=torch.float64)
    kernel = EmpiricalNTK(network)
    K = kernel(X, X)
    assert_close(K, oracle(network, kernel.tangent.cotangents[0], X), rtol=1e-12, atol=1e-12)
    alone = torch.cat([kernel.diagonal(X[i : i + 1]) for i in range(4)])
    assert_close(alone, K.diagonal(), rtol=1e-12, atol=1e-12)
    rows = torch.cat([kernel.rows(X[i : i + 1], kernel.prepare(X)).K for i in range(4)])
    assert_close(rows, K, rtol=1e-12, atol=1e-12)


class Routed(nn.Module):
    """Some samples take a second layer instead."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        chosen, out = x[:, 0] > 0, self.first(x)
        if chosen.any():
            out = out.clone()
            out[chosen] = self.second(x[chosen])
        return out


def test_samples_in_which_a_parameter_has_no_say_have_no_gradient_in_it():
    torch.manual_seed(0)
    network, X = Routed().double(), torch.randn(12, 5, dtype=torch.float64)
    kernel = EmpiricalNTK(network)
    K = kernel(X, X)
    assert any(entry.rule.startswith("per-sample") for entry in kernel.coverage())
    assert_close(K, oracle(network, kernel.tangent.cotangents[0], X), rtol=1e-12, atol=1e-12)


class Heads(nn.Module):
    """Three heads with a scale each, as many as the samples of the proof; ``open`` says whether they have a say."""

    def __init__(self, open):
        super().__init__()
        self.embed, self.scale = nn.Linear(4, 6), nn.Parameter(torch.rand(3, 1, 1))
        self.gate = nn.Parameter(torch.full((6,), open))

    def forward(self, x):
        n, T, _ = x.shape
        windows = self.embed(x).reshape(n * 2, T // 2, 3, 2).transpose(1, 2)
        weights = ((windows @ windows.mT) * self.scale).softmax(-1)
        return (self.gate * (weights @ windows).transpose(1, 2).reshape(n, T, 6) + self.embed(x)).mean(1)


@pytest.mark.parametrize("open", [0.0, 1.0])
def test_as_many_heads_as_samples_of_the_proof_are_not_taken_for_them(open):
    torch.manual_seed(0)
    network, X = Heads(open).double(), torch.randn(5, 4, 4, dtype=torch.float64)
    kernel = EmpiricalNTK(network)
    assert_close(kernel(X, X), oracle(network, kernel.tangent.cotangents[0], X), rtol=1e-12, atol=1e-12)
