"""Features that are kept: the same numbers, every sample looked at once, nothing of another kernel."""

import pytest
import torch
from torch import nn

from krepes import Krepes
from krepes.kernels.memory import features_kept
from krepes.kernels.sketch import SketchedNTK
from krepes.views import GaussianNoise, ViewStream


def conv(seed=0):
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5)
    return nn.Sequential(*layers).double().eval()


def pictures(n, seed=0):
    return torch.randn(n, 1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def looked_at(kernel, monkeypatch):
    """Count the samples whose gradients a kernel takes."""
    counts, forms = [], kernel.tangent.forms
    monkeypatch.setattr(kernel.tangent, "forms", lambda X: (counts.append(len(X)), forms(X))[1])
    return counts


def test_kept_features_are_those_that_are_made_anew_and_each_sample_is_looked_at_once(monkeypatch):
    kernel, X = SketchedNTK(conv(), q=64), pictures(12)
    asked = [X[:7], X[[3, 9, 3, 9]], X.flip(0)]
    plain = [kernel.features(part) for part in asked]
    embedded = kernel.rows(X, plain[0]).embedding
    counts = looked_at(kernel, monkeypatch)
    with features_kept("1M"):
        for part, expected in zip(asked, plain, strict=True):
            torch.testing.assert_close(kernel.features(part), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(kernel.rows(X, plain[0]).embedding, embedded, rtol=1e-12, atol=1e-12)
    assert sum(counts) == 12
    kernel.features(X)
    assert sum(counts) == 24, "nothing is kept after the block"


def test_kernels_of_other_weights_seeds_and_sizes_share_nothing():
    X = pictures(5)
    kernels = [
        SketchedNTK(conv(), q=64),
        SketchedNTK(conv(1), q=64),
        SketchedNTK(conv(), q=64, sketch_seed=1),
        SketchedNTK(conv(), q=64, seed=1),
        SketchedNTK(conv(), q=32),
        SketchedNTK(conv(), q=64, parameters="3.*"),
    ]
    plain = [kernel.features(X) for kernel in kernels]
    with features_kept("1M"):
        for kernel, expected in zip(kernels, plain, strict=True):
            torch.testing.assert_close(kernel.features(X), expected, rtol=1e-12, atol=1e-12)


def test_samples_of_the_same_bytes_and_another_shape_or_type_are_others():
    X = pictures(4).float()
    with features_kept("1M") as memory:
        for one in (X, X.view(4, 6, 6), X.view(torch.int32), X.bfloat16()):
            memory.look_up("kernel", one, lambda part: (torch.zeros(len(part), 2), torch.zeros(len(part), 1)))
        assert len(memory.known) == 16


def test_without_room_every_sample_is_looked_at_again(monkeypatch):
    kernel, X = SketchedNTK(conv(), q=64), pictures(6)
    expected, counts = kernel.features(X), looked_at(kernel, monkeypatch)
    with features_kept(100) as memory:
        for _ in range(2):
            torch.testing.assert_close(kernel.features(X), expected, rtol=1e-12, atol=1e-12)
        assert not memory.known and memory.room == 100
    assert sum(counts) == 12


@pytest.mark.parametrize("objective", ["barlow_twins", "simclr"])
def test_a_fit_is_the_same_and_a_second_one_looks_at_no_sample(objective, monkeypatch):
    encoder = nn.Sequential(nn.Unflatten(1, (1, 6, 6)), *conv()).eval()
    views = ViewStream(pictures(40).flatten(1), GaussianNoise(0.1), seed=0)
    options = {"objective": objective, "m": 8, "h": 3, "kernel_kind": "sketch", "q": 256, "progress": False}
    X = pictures(5, seed=1).flatten(1)
    expected = Krepes(encoder, **options).fit(views).embed(X)
    looks = []
    make = SketchedNTK._look
    monkeypatch.setattr(SketchedNTK, "_look", lambda self, X: (looks.append(len(X)), make(self, X))[1])
    with features_kept("16M"):
        Krepes(encoder, **options).fit(views).embed(X)
        once = sum(looks)
        Krepes(encoder, **options, centre=False, cosine=False).fit(views).embed(X)
        found = Krepes(encoder, **options).fit(views).embed(X)
    assert sum(looks) == once
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
