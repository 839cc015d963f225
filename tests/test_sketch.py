"""Sketched tangent features: unbiased, the same by either route, and accurate enough to use."""

import os

import pytest
import torch
from torch import nn

from krepes.budget import Budget
from krepes.data import cifar10
from krepes.encoders.resmlp import ResMLP
from krepes.encoders.resnet import resnet18
from krepes.errors import InvalidInputError
from krepes.kernels import sketch
from krepes.kernels.auto import KernelChoice, tangent_kernel
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK
from networks import make

NAMES = ["mlp", "cnn", "vit", "text", "tied embedding", "conv2d, grouped and dilated", "frames folded into the batch"]

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.mark.parametrize("name", NAMES)
def test_features_do_not_depend_on_the_route(name, generator, monkeypatch):
    encoder, inputs = make(name)
    X = inputs(4, generator)
    phi = []
    for transform in (True, False):
        monkeypatch.setattr(sketch, "by_transform", lambda form, q, transform=transform: transform)
        phi.append(SketchedNTK(encoder.double(), q=64, heads=2).features(X))
    torch.testing.assert_close(*phi, rtol=1e-10, atol=1e-10 * float(phi[1].abs().max()))  # FFT round-off


@pytest.mark.parametrize("name", NAMES)
def test_inner_products_are_unbiased(name, generator):
    """Mean over 100 sketches within 3 standard errors; entries of one kernel move together, so nearly all or none."""
    encoder, inputs = make(name)
    X, Y = inputs(6, generator), inputs(5, generator)
    exact = EmpiricalNTK(encoder)(X, Y)
    draws = torch.stack([SketchedNTK(encoder, q=256, sketch_seed=s)(X, Y) for s in range(100)])
    z = (draws.mean(0) - exact) / (draws.std(0) / 100**0.5)
    assert float((z.abs() > 3).float().mean()) <= 0.05


def centred_error(approximate, exact):
    def centre(K):
        return K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()

    return float((centre(approximate) - centre(exact)).norm() / centre(exact).norm())


def smooth_pictures(n, generator):
    """Low frequencies only: white noise has no structure that a kernel could see, and pictures have little of it."""
    coarse = torch.randn(n, 3, 4, 4, generator=generator)
    return torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")


@pytest.mark.parametrize("name", ["ResMLP", "ResNet-18"])
def test_centred_error_at_4096_features(name, generator):
    torch.manual_seed(0)
    encoder = ResMLP(20) if name == "ResMLP" else resnet18()
    X = torch.randn(24, 20, generator=generator) if name == "ResMLP" else smooth_pictures(16, generator)
    exact = EmpiricalNTK(encoder)(X, X)
    assert centred_error(SketchedNTK(encoder, q=4096)(X, X), exact) <= 0.08


@pytest.mark.realdata
@pytest.mark.skipif("KREPES_DATA" not in os.environ, reason="KREPES_DATA names no data folder")
def test_centred_error_on_pictures_of_cifar10():
    X = (cifar10.load(split="test").pixels[:48] / 255.0 - 0.47) / 0.25
    torch.manual_seed(0)
    encoder = resnet18()
    exact = EmpiricalNTK(encoder)(X, X)
    found = [centred_error(SketchedNTK(encoder, q=4096, sketch_seed=seed)(X, X), exact) for seed in range(3)]
    print("centred error at q=4096:", ", ".join(f"{error:.3f}" for error in found))
    assert max(found) <= 0.08


def test_rows_agree_with_features(generator):
    encoder, inputs = make("cnn")
    X, Y = inputs(7, generator), inputs(5, generator)
    kernel = SketchedNTK(encoder, q=128)
    phi_x, phi_y = kernel.features(X), kernel.features(Y)
    mean = kernel.mean_feature(Y)
    rows = kernel.rows(X, kernel.prepare(Y), diagonal=True, mean=mean)
    loose = {"rtol": 1e-4, "atol": 1e-4 * float(phi_x.square().sum(1).max())}  # float32 sums of 128 products
    torch.testing.assert_close(rows.K, phi_x @ phi_y.T, **loose)
    torch.testing.assert_close(rows.diagonal, phi_x.square().sum(1), **loose)
    torch.testing.assert_close(rows.mean, (phi_x @ phi_y.T).mean(1), **loose)
    assert mean.square == pytest.approx(float(phi_y.mean(0).square().sum()), rel=1e-4)


def test_auto_takes_exact_for_a_table_and_a_sketch_for_pictures(generator):
    table, choice = tangent_kernel(ResMLP(20), torch.randn(3, 20, generator=generator), m=1000)
    assert isinstance(table, EmpiricalNTK) and choice.kind == "exact" and "1000 landmark points" in choice.reason
    pictures, choice = tangent_kernel(resnet18(), torch.randn(3, 3, 32, 32, generator=generator), m=1000)
    assert isinstance(pictures, SketchedNTK) and choice.kind == "sketch" and "q=4096" in choice.reason
    assert str(choice) == f"sketch: {choice.reason}"
    few, _ = tangent_kernel(resnet18(width=16), torch.randn(3, 3, 32, 32, generator=generator), m=2)
    assert isinstance(few, EmpiricalNTK)


def test_a_choice_of_the_user_is_taken_and_named(generator):
    X = torch.randn(3, 4, generator=generator)
    exact, choice = tangent_kernel(ResMLP(4), X, m=5, kernel="exact")
    assert isinstance(exact, EmpiricalNTK) and choice == KernelChoice("exact", "as asked")
    sketch, choice = tangent_kernel(ResMLP(4), X, m=5, kernel="sketch", q=64)
    assert isinstance(sketch, SketchedNTK) and sketch.q == 64 and choice.kind == "sketch"


def test_unknown_choice_is_refused():
    with pytest.raises(InvalidInputError, match="'fast' is unknown: choose one of auto, exact, sketch"):
        tangent_kernel(ResMLP(4), torch.zeros(3, 4), m=5, kernel="fast")


@pytest.mark.parametrize("kernel", [3, 7])
def test_gradients_are_sketched_in_pieces_and_give_the_same_features(kernel):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, kernel, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4)
    encoder = nn.Sequential(*layers).double()
    X = torch.rand(9, 3, 28, 28, dtype=torch.float64)
    whole, pieces = SketchedNTK(encoder, q=512), SketchedNTK(encoder, q=512)
    whole.tangent.probe(X)
    forms = whole.tangent.forms(X)
    pieces.tangent, pieces.budget = whole.tangent, Budget(1)
    torch.testing.assert_close(pieces.sketched(forms), whole.sketched(forms), rtol=1e-12, atol=1e-12)
