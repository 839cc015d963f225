"""What a fit asks of its encoder, counted: one look per candidate, per landmark point, and per view in the pass."""

import os
import time

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from krepes.encoders import resnet50
from krepes.engine.rows import collect_moments
from krepes.kernels import EmpiricalNTK, SketchedNTK
from krepes.kernels.auto import look_once, sketch_to_choose_by
from krepes.kernels.transforms import default_transform
from krepes.landmarks import KMeansPlusPlus
from krepes.model import Krepes
from krepes.model.choosing import Candidates
from krepes.views import FunctionAugmentation

PHASES = ["kernel", "reference", "selection", "landmarks", "pass", "solve"]


def pictures(n, side=12, seed=0):
    """Return pictures of a few frequent and many rare kinds, so that some landmarks are better than others."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randn(25, 3, side, side, generator=draw)
    share = 1 / torch.arange(1.0, 26.0) ** 1.5
    which = torch.multinomial(share, n, replacement=True, generator=draw)
    return kinds[which] + 0.1 * torch.randn(n, 3, side, side, generator=draw)


def noisy(X):
    return X + 0.1 * torch.randn_like(X)


def conv():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 8)).eval()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(432, 24), nn.Tanh(), nn.Linear(24, 8)).eval()


def counted(encoder):
    """Return the encoder, and a list of the samples that its forward pass is given."""
    seen = []
    encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    return encoder, seen


def model(encoder, **changes):
    settings = {"m": 20, "h": 6, "reference": 32, "q": 64, "augment": FunctionAugmentation(noisy), "progress": False}
    return Krepes(encoder, **settings | changes)


@pytest.mark.parametrize("kind", ["exact", "sketch"])
@pytest.mark.parametrize("init", ["pca", "encoder"])
def test_a_fit_costs_at_most_1_6_passes_over_the_views(kind, init):
    """A tenth of the samples as landmarks, as 200 of 2,000: forward passes are counted in the encoder itself."""
    X = pictures(1000)
    encoder, seen = counted(conv())
    fitted = model(encoder, m=100, q=256, reference=256, kernel_kind=kind, init=init, h=None if init != "pca" else 6)
    fitted.fit(X)
    views = fitted.p_ * len(X)
    assert sum(seen) <= 1.6 * views
    work = {name: spent.samples for name, spent in fitted.work_.items()}
    assert list(work) == PHASES and sum(work.values()) == sum(seen)
    centred = init == "pca"
    assert work["reference"] == (256 if centred else 0)
    assert work["selection"] == 1000 - work["reference"]
    assert work["landmarks"] == 200 and work["pass"] == views - 200 and work["solve"] == 0
    assert work["kernel"] < 40


@pytest.mark.slow
def test_a_fit_of_a_resnet_50_costs_at_most_1_6_passes_over_the_views():
    """As many pictures as KREPES_PICTURES says, by default 2,000 of 64 pixels, a tenth of them as landmarks."""
    n = int(os.environ.get("KREPES_PICTURES", 2000))
    torch.manual_seed(0)
    encoder, seen = counted(resnet50(cifar_stem=False).eval())
    fitted = Krepes(
        encoder, m=n // 10, h=8, progress=False, augment=FunctionAugmentation(noisy), reference=min(512, n // 4)
    )
    began = time.process_time()
    fitted.fit(pictures(n, side=64))
    work, views = {name: spent.samples for name, spent in fitted.work_.items()}, 2 * n
    print(f"{n} pictures: {sum(seen) / views:.2f} passes, {time.process_time() - began:.0f} CPU s, {work}")
    assert sum(work.values()) == sum(seen) <= 1.6 * views


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "all", [3, 5, 8, 11, 20, 31, 40, 44]])
@pytest.mark.parametrize("kind", ["exact", "sketch"])
def test_landmarks_that_need_no_kernel_cost_no_look(landmarks, kind):
    fitted = model(conv(), landmarks=landmarks, kernel_kind=kind).fit(pictures(60))
    chosen = fitted.work_.get("selection")
    assert chosen is None or chosen.samples == 0


def nystrom_error(F, landmarks):
    """Return the share of the trace that the features of the landmarks do not reach."""
    Q = torch.linalg.qr(F[landmarks].T).Q
    return 1 - float((F @ Q).square().sum() / F.square().sum())


def test_landmarks_chosen_in_sketched_features_are_as_good_as_those_of_the_exact_kernel(monkeypatch):
    X = pictures(300).double()
    encoder = conv().double()
    errors = {"sketch": [], "exact": [], "uniform": []}
    for seed in range(3):
        for how in errors:
            with monkeypatch.context() as patch:
                if how == "exact":
                    patch.setattr("krepes.model.choosing.sketch_to_choose_by", lambda *_: None)
                method = "uniform" if how == "uniform" else "rpcholesky"
                fitted = model(encoder, q=512, kernel_kind="exact", seed=seed, landmarks=method).fit(X)
            K = fitted.kernel_(X, X)
            values, vectors = torch.linalg.eigh(K)
            errors[how].append(nystrom_error(vectors * values.clamp_min(0).sqrt(), fitted.landmarks_))
    sketch, exact, uniform = (sum(found) / len(found) for found in errors.values())
    print(f"Nystrom trace error: sketch {sketch:.4f}, exact {exact:.4f}, uniform {uniform:.4f}")
    assert sketch <= 1.1 * exact and sketch < 0.85 * uniform


def test_small_networks_of_single_tokens_are_still_measured_exactly():
    X = pictures(40)
    assert sketch_to_choose_by(EmpiricalNTK(mlp()), X, 20, 4096) is None
    assert sketch_to_choose_by(EmpiricalNTK(conv()), X, 20, 64) is not None
    assert sketch_to_choose_by(EmpiricalNTK(conv()), X, 33, 64) is None, "64 features have too few directions for 33"
    fitted = model(mlp(), kernel_kind="exact").fit(X)
    assert Candidates.of(fitted, "rpcholesky", torch.arange(40), torch.arange(32)).looks(True) is None
    assert Candidates.of(fitted, KMeansPlusPlus(), torch.arange(40), torch.arange(32)).looks(True) == 0


@pytest.mark.parametrize("make", [EmpiricalNTK, SketchedNTK])
@pytest.mark.parametrize("network", [conv, mlp])
@pytest.mark.parametrize("budget", ["1G", "600K"])
def test_one_look_gives_what_several_gave(make, network, budget):
    encoder, X = network().double(), pictures(30).double()
    kernel, R = make(encoder, memory_budget=budget), X[20:]
    mean = kernel.mean_feature(R)
    prepared, own = kernel.enter(X, gram=True, diagonal=True, mean=mean)
    slow = kernel.rows(X, kernel.prepare(X), diagonal=True, mean=mean)
    near = {"rtol": 1e-10, "atol": 1e-10}
    for name in ("K", "diagonal", "mean", "embedding"):
        assert_close(getattr(own, name), getattr(slow, name), **near)
    assert_close(own.embedding, encoder(X), **near)
    assert_close(kernel.rows(X[:4], prepared).K, slow.K[:4], **near)
    assert kernel.enter(X)[1].K.shape == (30, 0)
    whole = default_transform(kernel, R)
    _, own = whole.enter(X, gram=True, diagonal=True)
    assert_close(own.K, whole.rows(X, whole.prepare(X)).K, **near)


@pytest.mark.parametrize("make", [EmpiricalNTK, SketchedNTK])
def test_mean_and_features_come_from_one_look(make):
    encoder, seen = counted(conv().double())
    X, kernel = pictures(30).double(), make(encoder)
    sketch = kernel if isinstance(kernel, SketchedNTK) else SketchedNTK(kernel.tangent, q=64)
    slow, features = kernel.mean_feature(X), sketch.features(X)
    seen.clear()
    mean, found = look_once(kernel, sketch, X)
    assert sum(seen) == 30
    assert_close(found, features, rtol=1e-12, atol=1e-12)
    assert mean.square == pytest.approx(slow.square, rel=1e-12)


@pytest.mark.parametrize("kind", ["exact", "sketch"])
def test_features_that_were_seen_with_the_reference_are_those_of_the_same_samples(kind):
    X = pictures(60).double()
    fitted = model(conv().double(), kernel_kind=kind, reference=25).fit(X)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    reference, pool = order[:25].sort().values, order[:50].sort().values
    fitted.reference_ = X[reference]
    candidates = Candidates.of(fitted, "rpcholesky", pool, reference)
    _, seen = candidates.look(fitted)
    for wanted in (pool, reference, order[30:40], order.flip(0)):
        found = candidates._features(fitted, candidates.sketch, seen, wanted)
        assert_close(found, candidates.sketch.features(X[wanted]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("objective", ["barlow_twins", "kpca"])
def test_rows_of_landmarks_are_not_made_again_and_change_nothing(objective):
    X, calls = pictures(50).double(), []
    fitted = model(conv().double(), objective=objective, kernel_kind="exact").fit(X)
    known = fitted.set_points(diagonal=True)
    views = list(fitted.stream_.with_batch_size(7))
    how = (fitted.pass_kernel_, fitted.prepared_, fitted.pass_gram_)
    slow = collect_moments(views, *how, trace=True, progress=False)
    rows = fitted.kernel_.rows
    object.__setattr__(fitted.kernel_, "rows", lambda X, *a, **k: calls.append(len(X)) or rows(X, *a, **k))
    fast = collect_moments(views, *how, known=known, trace=True, progress=False)
    assert sum(calls) == 2 * 30
    assert_close(fast.M, slow.M, rtol=1e-10, atol=1e-12)
    assert fast.trace == pytest.approx(slow.trace, rel=1e-12)
