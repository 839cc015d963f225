"""The remembered way back from values made of parameters, against autograd's own, gradient by gradient."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from krepes.kernels import EmpiricalNTK
from krepes.kernels.derived import pull
from krepes.kernels.pullback import remember


def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


PLACES = torch.randint(0, 9, (16,), generator=torch.Generator().manual_seed(3))
MASK = torch.zeros(4, 1, 4, 4, dtype=torch.float64).masked_fill(torch.eye(4, dtype=torch.bool), -100.0)


def table():
    p = leaf(9, 2)
    return p[PLACES].view(4, 4, 2).permute(2, 0, 1).contiguous(), [p]


def masked_table():
    value, leaves = table()
    return value.unsqueeze(0) + MASK, leaves


def positions_by_a_network():
    W, b, V = leaf(8, 2), leaf(8, seed=1), leaf(3, 8, seed=2)
    coordinates = leaf(9, 2, seed=4).detach()
    value = (torch.relu(coordinates @ W.T + b) @ V.T)[PLACES]
    return 16 * torch.sigmoid(value), [W, b, V]


def scale():
    p = leaf(3, 1, 1)
    return p.clamp(max=4.0).exp(), [p]


def sliced():
    p = leaf(6, 5)
    return torch.cat([p[1:4], torch.zeros(2, 5, dtype=torch.float64)]), [p]


VALUES = [table, masked_table, positions_by_a_network, scale, sliced]


@pytest.mark.parametrize("make", VALUES, ids=lambda make: make.__name__)
def test_the_remembered_way_is_that_of_autograd(make):
    value, leaves = make()
    way = remember(value, leaves)
    assert way is not None and way.fits(value)
    g = torch.randn(7, *value.shape, dtype=torch.float64)
    for found, expected in zip(way(g), pull(value, leaves, g), strict=True):
        assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_moved_entries_need_no_matrix():
    assert remember(*masked_table()).rows is None and remember(*sliced()).rows is None
    assert remember(*positions_by_a_network()).rows is not None


def test_a_table_that_cannot_tell_its_entries_apart_is_left_to_autograd():
    p = torch.zeros(9, 2, requires_grad=True)
    assert remember(p[PLACES], [p]) is None


def test_large_maps_are_left_to_autograd(monkeypatch):
    value, leaves = positions_by_a_network()
    monkeypatch.setattr("krepes.kernels.pullback.LARGEST_ROWS", 10)
    assert remember(value, leaves) is None
    monkeypatch.setattr("krepes.kernels.pullback.LARGEST_VALUE", 10)
    assert remember(*table()) is None


class Windows(nn.Module):
    """Attention logits with a table of relative positions, of which the width of a batch says what is read."""

    def __init__(self):
        super().__init__()
        self.embed, self.bias, self.step = nn.Linear(3, 4), nn.Parameter(torch.randn(11, 2)), 1

    def forward(self, x):
        T = x.shape[1]
        where = ((torch.arange(T)[:, None] - torch.arange(T) + 5) // self.step).reshape(-1)
        bias = self.bias[where].view(T, T, 2).permute(2, 0, 1).unsqueeze(0)
        q = self.embed(x).view(len(x), T, 2, 2).transpose(1, 2)
        return ((q @ q.mT + bias).softmax(-1) @ q).sum(2).flatten(1)


def test_batches_that_read_the_table_otherwise_take_their_own_way():
    torch.manual_seed(0)
    network = Windows().double()
    kernel = EmpiricalNTK(network)
    for T, step in ((4, 1), (6, 1), (4, 1), (4, 2), (5, 2)):
        network.step = step
        X = torch.randn(5, T, 3, dtype=torch.float64)
        K, w = kernel(X, X), kernel.tangent.cotangents[0]
        rows = []
        for x in X:
            z = network(x.unsqueeze(0))[0]
            gradients = torch.autograd.grad(z @ w, list(network.parameters()))
            rows.append(torch.cat([*[g.flatten() for g in gradients], z.detach(), torch.ones(1, dtype=z.dtype)]))
        G = torch.stack(rows)
        assert_close(K, G @ G.T, rtol=1e-11, atol=1e-11)
    assert not any(entry.rule.startswith("per-sample") for entry in kernel.coverage())
