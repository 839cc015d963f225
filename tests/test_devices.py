"""An encoder on another device, from its kernel to the report: nothing mixes devices, and no number changes."""

import copy
import dataclasses
import importlib

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from callings import WIDTH, core, state
from elsewhere import AWAY, Away, Elsewhere, MixedDevicesError
from krepes import batches
from krepes.attribution import attribute, attribute_stream
from krepes.audit import confidence_drop, faithfulness, rankings
from krepes.budget import Budget
from krepes.concepts import ConceptVector
from krepes.encoders import FrozenEncoder, pretrain
from krepes.influence import influence_of, similarity
from krepes.kernels import RBF, EmpiricalNTK, Laplacian, Polynomial, SketchedNTK, tangent_kernel
from krepes.landmarks import SELECTORS, select
from krepes.model import Krepes
from krepes.report import build_report
from krepes.views import GaussianNoise, ViewStream
from networks import NETWORKS, make

N, T, M = 80, 20, 16
WALKS = [
    *((objective, "exact", "encoder") for objective in ("barlow_twins", "kpca", "kae", "simclr")),  # moments to rows
    *(("barlow_twins", "exact", where) for where in ("encoder and data", "data", "by name")),
    ("barlow_twins", "sketch", "encoder"),
    ("kae", "sketch", "encoder and data"),
]

pytestmark = pytest.mark.filterwarnings(
    "ignore:There is a performance drop",
    "ignore:Using padding='same'",
    "ignore:for .* copying from a non-meta",  # torch goes by the device's name; the stand-in does copy
)


@pytest.fixture(scope="module")
def X():
    return torch.randn(N + T, WIDTH, generator=torch.Generator().manual_seed(0))


def fit(encoder, X, **settings):
    return Krepes(encoder, m=M, h=4, augment=GaussianNoise(0.2), progress=False, **settings).fit(X)


def away(samples):
    return batches.map_tensors(lambda x: x.to(AWAY), samples)


def assert_here(*tensors):
    assert all(type(x) is torch.Tensor and x.device.type == "cpu" for x in tensors)


# The stand-in can fail


def test_the_other_device_computes_and_refuses_to_mix():
    with Elsewhere() as device:
        x = torch.arange(6.0).reshape(2, 3).to(AWAY)
        x[1:] *= 2
        assert x.device == AWAY and x.cpu().tolist() == [[0, 1, 2], [6, 8, 10]] and device.operations > 2
        assert x[torch.tensor([1])].shape == (1, 3) and (x + torch.tensor(1.0)).device == AWAY
        for mixed in (
            lambda: x + torch.ones(3),
            lambda: x @ torch.ones(3, 2),
            lambda: torch.cat([x, torch.ones(2, 3)]),
        ):
            with pytest.raises(MixedDevicesError, match="two devices"):
                mixed()
        with pytest.raises(RuntimeError):
            x.numpy()


PLANTED = {
    "rows stay away": ("krepes.engine.rows", "pieces", lambda pieces: lambda *a, **k: map(sent_away, pieces(*a, **k))),
    "samples stay here": ("krepes.encoders.frozen", "cast", lambda cast: lambda X, device, dtype: X),
    "landmark rows stay away": ("krepes.landmarks.rpcholesky", "draw", lambda draw: lambda *a: draw(*a).to(AWAY)),
}


def sent_away(piece):
    return dataclasses.replace(piece, Kbar=piece.Kbar.to(AWAY))


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fault, X, monkeypatch):
    module, name, spoil = PLANTED[fault]
    owner = importlib.import_module(module)
    with Elsewhere():
        encoder = core().to(AWAY)
        fit(encoder, X)
        monkeypatch.setattr(owner, name, spoil(getattr(owner, name)))
        with pytest.raises(MixedDevicesError):
            fit(encoder, X)


# Kernels


@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - {"resnet18"}))  # the layers of "cnn", and many more of them
def test_every_layer_has_its_kernel_on_its_device(name, generator):
    encoder, inputs = make(name)
    X, Y = inputs(6, generator), inputs(5, generator)
    for kind, settings, place in ((EmpiricalNTK, {"heads": 2}, away), (SketchedNTK, {"q": 32}, lambda x: x)):
        here = kind(encoder, **settings)
        expected = here.rows(X, here.prepare(Y), diagonal=True, mean=here.mean_feature(Y))
        with Elsewhere():
            there = kind(copy.deepcopy(encoder).to(AWAY), **settings)
            found = there.rows(place(X), there.prepare(Y), diagonal=True, mean=there.mean_feature(Y))
            assert isinstance(found.K, Away)
            for part in ("K", "diagonal", "mean"):
                assert_close(getattr(found, part).cpu(), getattr(expected, part), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "cnn", "text"])
@pytest.mark.parametrize("route", ["factors", "explicit"])
def test_landmarks_on_disk_meet_rows_on_a_device(name, route, generator, monkeypatch):
    from krepes.kernels import forms

    monkeypatch.setattr(forms.Form, "route", lambda self, m: route)
    encoder, inputs = make(name)
    X, Y = inputs(6, generator), inputs(5, generator)
    expected = EmpiricalNTK(encoder)(X, Y)
    with Elsewhere():
        kernel = EmpiricalNTK(copy.deepcopy(encoder).to(AWAY))
        monkeypatch.setattr(Budget, "fits", lambda self, size, share=1.0: False)
        prepared = kernel.prepare(Y)
        assert prepared.spilled
        assert_close(kernel.rows(X, prepared).K.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kernel", [RBF(2.0), Laplacian(2.0), Polynomial(scale=0.2)], ids=lambda kernel: type(kernel).__name__
)
def test_classic_kernels_take_data_from_both_sides(kernel, X):
    expected = fit(kernel, X[:N]).transform(X[N:])
    with Elsewhere():
        model = fit(kernel, X[:N].to(AWAY))
        for samples in (X[N:], X[N:].to(AWAY)):
            found = model.transform(samples)
            assert_here(found, model.K_mm_, model.A_)
            assert_close(found, expected)


@pytest.mark.parametrize("method", SELECTORS)
def test_every_selector_chooses_the_same_landmarks(method, X):
    def chosen(encoder, X):
        draw = torch.Generator().manual_seed(0)
        return select(X, 8, kernel=EmpiricalNTK(encoder), method=method, generator=draw)

    expected = chosen(core(), X)
    with Elsewhere():
        encoder = core().to(AWAY)
        for samples in (X, X.to(AWAY)):
            found = chosen(encoder, samples)
            assert_here(found)
            assert torch.equal(found, expected)


# From fit to report


@pytest.mark.parametrize(("objective", "kernel", "where"), WALKS)
def test_a_walk_from_fit_to_influence_and_back_from_disk(objective, kernel, where, X, tmp_path):
    def walk(encoder, X, folder, **settings):
        if kernel == "sketch":
            encoder = tangent_kernel(encoder, X[:3], M, kernel="sketch", q=64)[0]
        model = fit(encoder, X[:N], objective=objective, **settings)
        model.save(folder)
        loaded = Krepes.load(folder, encoder, **settings)
        outcome = similarity(model, X[N : N + 1], X[N + 1 : N + 2])
        attribution = attribute(model, X[N:])
        tensors = [
            model.transform(X[N:]),
            loaded.transform(X[N:]),
            attribution.scores,
            attribution.directional,
            attribute_stream(model, X[N:], k=3).scores,
            model.solution_.theta,
        ]
        assert_here(*tensors, model.K_mm_, model.landmarks_)
        return [*tensors, torch.from_numpy(influence_of(model, outcome, progress=False).values)]

    expected = walk(core(), X, tmp_path / "here")
    with Elsewhere() as device:
        encoder = core() if where in {"data", "by name"} else core().to(AWAY)
        data = X.to(AWAY) if "data" in where else X
        found = walk(encoder, data, tmp_path / "there", **({"device": AWAY} if where == "by name" else {}))
        assert device.operations > 100 or where == "data"
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_audits_and_report_of_an_encoder_elsewhere(X):
    y = (X[:, 0] > 0).long().numpy()

    def audits(model, X, test):
        labels = y[:N][model.landmarks_]
        concept = ConceptVector.fit(model, X[y[:N] == 1], X[y[:N] == 0], name="positive")
        return concept, [
            faithfulness(model, X, y[:N], test, y[N:]).estimate,
            confidence_drop(model, test, labels, k=3, delete=3).estimate,
            *(top.flatten() for top in rankings(model, test, k=4).values()),
        ]

    def findings(model, concept):
        report = build_report(model, X_test=X[N:], labels=(y[:N], y[N:]), concepts=[concept], shown=2, k=2)
        return [section.finding for section in report.parts[0].sections]

    model = fit(core(), X[:N])
    concept, expected = audits(model, X[:N], X[N:])
    words = findings(model, concept)
    with Elsewhere():
        encoder, there = core().to(AWAY), X.to(AWAY)
        for train, test in ((X[:N], there[N:]), (there[:N], X[N:])):
            model = fit(encoder, train)
            concept, tables = audits(model, train, test)
            for a, b in zip(tables, expected, strict=True):
                np.testing.assert_allclose(a, b)
        assert findings(model, concept) == words


def test_a_device_by_name_takes_a_copy_and_leaves_the_encoder(X):
    encoder = core()
    before = state(encoder)
    with Elsewhere():
        frozen = FrozenEncoder(encoder, device=AWAY)
        assert frozen.module is not encoder and frozen.device == AWAY
        assert_here(frozen.encode(X))
        assert all(type(p.data) is torch.Tensor for p in encoder.parameters())
        assert FrozenEncoder(frozen.module, device="meta").module is frozen.module
    after = state(encoder)
    assert after[:2] == before[:2]


# Training


@pytest.mark.parametrize("loss", ["barlow_twins", "simclr", "vicreg", "byol"])
@pytest.mark.parametrize("data_away", [False, True])
def test_training_elsewhere_takes_the_same_steps_also_when_resumed(loss, data_away, X, tmp_path):
    def train(encoder, X, epochs=2, **settings):
        stream = ViewStream(X[:64], GaussianNoise(0.2), batch_size=32)
        result = pretrain(encoder, stream, loss=loss, epochs=epochs, projector=(8, 8), progress=False, **settings)
        return {name: value.cpu() for name, value in result.encoder.state_dict().items()}

    expected = train(core(), X)
    with Elsewhere():
        data, path = X.to(AWAY) if data_away else X, tmp_path / "c.safetensors"
        found = train(core().to(AWAY), data, checkpoint=path)
        resumed = train(core(seed=1).to(AWAY), data, checkpoint=path, resume=True)
    for name, value in expected.items():
        assert_close(found[name], value)
        assert_close(resumed[name], value)
