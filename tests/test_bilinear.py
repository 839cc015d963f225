"""Convolutions for replays: torch's own values and derivatives up to the third, with every setting of a layer."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from krepes.encoders.bilinear import BilinearConvolutions

CASES = {
    "plain": (F.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), {}),
    "stride and padding": (F.conv2d, (2, 3, 7, 6), (4, 3, 3, 2), {"stride": 2, "padding": (1, 0)}),
    "dilation": (F.conv2d, (2, 2, 7, 7), (3, 2, 3, 3), {"dilation": 2, "padding": 1}),
    "groups": (F.conv2d, (2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2}),
    "one axis": (F.conv1d, (3, 2, 9), (4, 2, 3), {"stride": 3}),
    "three axes": (F.conv3d, (2, 1, 4, 4, 4), (2, 1, 2, 2, 2), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bias", [False, True])
def test_values_and_derivatives_are_those_of_torch(case, bias, generator):
    function, shape, kernel, how = CASES[case]
    x, w = (torch.randn(size, generator=generator, dtype=torch.float64, requires_grad=True) for size in (shape, kernel))
    b = torch.randn(kernel[0], generator=generator, dtype=torch.float64, requires_grad=True) if bias else None
    sources = [x, w] if b is None else [x, w, b]

    def derivatives():
        """Value, gradient, a derivative of the gradient and one of that, all of a nonlinear function of the output."""
        y = function(x, w, b, **how)
        found = [y]
        value = y.sin().sum()
        for _ in range(3):
            parts = torch.autograd.grad(value, sources, create_graph=True)
            found += parts
            value = sum(
                (part * torch.linspace(-1, 1, part.numel()).double().reshape(part.shape)).sum() for part in parts
            )
        return found

    expected = derivatives()
    with BilinearConvolutions():
        found = derivatives()
    assert any("_Forward" in type(node).__name__ for node in _graph(found[0]))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def _graph(y):
    return [y.grad_fn, *(node for node, _ in y.grad_fn.next_functions)]


@pytest.mark.parametrize("layer", [nn.Conv2d(2, 3, 3, padding="same"), nn.ConvTranspose2d(2, 3, 3)])
def test_other_convolutions_are_left_to_torch(layer, generator):
    x, single = torch.randn(2, 2, 5, 5, generator=generator), nn.Conv2d(2, 3, 3)
    expected, alone = layer(x), single(x[0])
    with BilinearConvolutions():
        assert torch.equal(layer(x), expected) and torch.equal(single(x[0]), alone)
        batched = torch.func.vmap(single)(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert single(x).dtype == torch.bfloat16
    torch.testing.assert_close(batched, single(x))
