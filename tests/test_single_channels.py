"""Convolutions of single channels: their gradient by one filtering, against unfolded patches in float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from krepes.kernels.patches import Patches, Window

CASES = list(itertools.product([1, 2, 3], [1, 2], [1, 2], [0, 1, 2], [1, 2]))


@pytest.mark.parametrize(("axes", "stride", "dilation", "padding", "heads"), CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_filtering_gives_the_gradient_of_unfolded_patches(axes, stride, dilation, padding, heads, bias, generator):
    n, C, size, kernel = 3, 4, (8, 7, 6)[:axes], (3, 2, 3)[:axes]
    x = torch.randn(n, C, *size, generator=generator, dtype=torch.float64)
    weight = torch.randn(C, 1, *kernel, generator=generator, dtype=torch.float64)
    out = getattr(F, f"conv{axes}d")(x, weight, None, stride, padding, dilation, C)
    d = torch.randn(n, 1, heads, *out.shape[1:], generator=generator, dtype=torch.float64)
    window = Window(kernel, (stride,) * axes, (padding,) * axes, (dilation,) * axes, C)
    form = Patches(x.unsqueeze(1), d, window, bias=bias)
    slow = form.outer()
    assert form._single()
    assert_close(form.explicit(), slow.explicit(), rtol=1e-12, atol=1e-12)
    v = torch.randn(slow.explicit().shape[1], generator=generator, dtype=torch.float64)
    w = torch.randn(n, generator=generator, dtype=torch.float64)
    assert_close(form.dot(v), slow.dot(v), rtol=1e-12, atol=1e-12)
    assert_close(form.square(), slow.square(), rtol=1e-12, atol=1e-12)
    assert_close(form.weighted_sum(w), slow.weighted_sum(w), rtol=1e-12, atol=1e-12)
