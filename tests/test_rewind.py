"""Steps that learn again from rewound weights: what they start at, where they lead, and their derivatives."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from krepes.encoders.functional import AdamW
from krepes.encoders.losses import LOSSES
from krepes.encoders.pretrain import pretrain
from krepes.influence import rungs
from krepes.influence.reverse import differentiate, forward
from krepes.influence.rewind import (
    ALIKE,
    KEEP,
    REWINDS,
    foretold,
    member_seed,
    returning_rate,
    rewinds_of,
    rewound_steps,
)
from krepes.influence.rungs import of_encoder, warm
from krepes.influence.warm import warm_steps
from krepes.views import GaussianNoise, ViewStream

EVERY = [*LOSSES, "byol"]


@pytest.fixture
def X(generator):
    return torch.randn(12, 5, generator=generator, dtype=torch.float64)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()


@pytest.fixture
def trained(generator):
    """An encoder whose training can be found again: 80 rows of two groups."""
    X = torch.randn(80, 6, generator=generator)
    X[:40, :3] += 3.0
    stream = ViewStream(X, GaussianNoise(0.3), seed=1)
    torch.manual_seed(0)
    fresh = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))
    return pretrain(fresh, stream, projector=(), epochs=40, lr=2e-3, progress=False).encoder, stream


def outcomes(X):
    def measure(embed):
        Z = embed(X)
        return torch.stack([Z[0] @ Z[1], (Z[2] - Z[3]).square().sum()])

    return measure


def steps_of(net, X, loss, T=6):
    return warm_steps(net, ViewStream(X, GaussianNoise(0.2)), loss, lr=1.0, steps=T)


@pytest.fixture
def normed(net):
    """The same encoder with a batch norm whose statistics are not those of the data, and dropout."""
    norm = nn.BatchNorm1d(6).double()
    norm.running_mean += 0.3
    return nn.Sequential(net[0], norm, nn.Dropout(0.5), net[1], net[2]).eval()


@pytest.mark.parametrize("with_norm", [False, True], ids=["plain", "batch norm"])
@pytest.mark.parametrize("loss", EVERY)
def test_derivative_in_the_weights_is_that_of_finite_differences(loss, with_norm, net, normed, X):
    steps = rewound_steps(steps_of(normed if with_norm else net, X, loss), 1e-2, seed=3)
    measure = of_encoder(outcomes(X), steps.twins.encoder)
    found = differentiate(steps, measure, progress=False).dw
    rows, size = [], 1e-4
    for i in range(12):
        e = torch.zeros(12).double()
        e[i] = size
        f = {k: measure(forward(steps, steps.start(), 1 + k * e, 99)[-1]).detach() for k in (-2, -1, 1, 2)}
        rows.append((8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * size))
    expected = torch.stack(rows)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_batch_norms_learn_again_and_nothing_else_is_in_training(normed, X):
    """Statistics of the frozen encoder are of other weights: with them a rewound replay learns something else."""
    steps = steps_of(normed, X, "barlow_twins")
    again = rewound_steps(steps, 1e-2, seed=3)
    assert [type(part) for part in again.twins.modules() if part.training] == [nn.BatchNorm1d]
    assert not any(part.training for part in [*steps.twins.modules(), *normed.modules()])
    last = forward(again, again.start(), torch.ones(12).double(), 99)[-1]
    assert not torch.equal(last["encoder.1.running_mean"], normed[1].running_mean)


@pytest.mark.parametrize("loss", EVERY)
def test_weight_zero_is_a_replay_without_the_row(loss, normed, X):
    whole = rewound_steps(steps_of(normed, X, loss), 1e-2, seed=3)
    w = torch.ones(12).double()
    w[4] = 0.0

    def others(t):
        chosen, views = whole.views(t)
        return chosen[chosen != 4], views[:, chosen != 4]

    found = forward(whole, whole.start(), w, 99)[-1]
    less = replace(whole, views=others)
    expected = forward(less, less.start(), torch.ones(12).double(), 99)[-1]
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-8)


def test_matrices_go_most_of_the_way_to_a_shuffle_of_themselves_and_vectors_stay(net, X):
    before = copy.deepcopy(net.state_dict())
    steps = rewound_steps(steps_of(net, X, "byol"), 1e-2, seed=3)
    after = steps.twins.encoder.state_dict()
    for name, x in before.items():
        torch.testing.assert_close(net.state_dict()[name], x, rtol=0, atol=0)  # the encoder itself is left alone
        torch.testing.assert_close(steps.twins.target[0].state_dict()[name], x, rtol=0, atol=0)
        if x.ndim == 1:
            torch.testing.assert_close(after[name], x, rtol=0, atol=0)
        else:
            shuffled = (after[name] - KEEP * x) / (1 - KEEP)
            torch.testing.assert_close(shuffled.flatten().sort().values, x.flatten().sort().values)
            assert not torch.allclose(shuffled, x)
    other = rewound_steps(steps_of(net, X, "byol"), 1e-2, seed=4).twins.encoder.state_dict()
    assert not torch.equal(other["0.weight"], after["0.weight"])


def test_the_rate_is_the_one_that_leads_back(trained):
    encoder, stream = trained
    steps = warm_steps(encoder, stream, "barlow_twins", lr=1.0, steps=30)
    found = returning_rate(steps, seed=0, rates=(1e-9, 5e-3, 10.0))
    assert found.rate == 5e-3 and found.alike["0.005"] > max(found.start, ALIKE)
    assert found.alike["1e-09"] == pytest.approx(found.start, abs=1e-4)
    assert returning_rate(steps, seed=0, rates=(10.0,)).rate is None
    assert returning_rate(replace(steps, T=1), seed=0, rates=(1e-12,)).rate is None


def test_a_warm_replay_adds_the_mean_of_its_rewinds(trained, monkeypatch, tmp_path, capsys):
    encoder, stream = trained
    monkeypatch.setattr(rungs, "foretold", lambda *_: 1.0)
    asked = outcomes(stream.plain(torch.arange(4)))
    plain = warm(encoder, stream, "barlow_twins", asked, steps=30, rewinds=0, progress=False)
    assert "rewinds" not in plain.details
    settings = {"steps": 30, "seed": 5, "progress": False}
    found = warm(encoder, stream, "barlow_twins", asked, rewinds=2, path=tmp_path / "x", **settings)
    expected = warm(encoder, stream, "barlow_twins", asked, rewinds=0, **settings).dw
    for member in range(2):
        seed = member_seed(5, member)
        steps = warm_steps(encoder, stream, "barlow_twins", lr=1.0, steps=30, seed=seed)
        steps = rewound_steps(steps, found.details["rate"], seed)
        assert isinstance(steps.rule, AdamW)
        part = differentiate(steps, of_encoder(asked, steps.twins.encoder), progress=False)
        expected += part.dw.double() / 2
    torch.testing.assert_close(found.dw, expected)
    assert found.details["rewinds"] == 2 and found.details["rate"] in (8e-3, 2e-3, 5e-4, 1e-4)
    again = warm(
        encoder, stream, "barlow_twins", asked, rewinds=2, path=tmp_path / "x", **settings | {"progress": True}
    )
    bars = capsys.readouterr().err
    assert all(name in bars for name in ("warm replay:", "rewound replay 1 of 2:", "rewound replay 2 of 2:"))
    torch.testing.assert_close(again.dw, found.dw)
    none = replace(returning_rate(steps, seed=0, rates=(10.0,)), rate=None)
    monkeypatch.setattr(rungs, "returning_rate", lambda *_: none)
    short = warm(encoder, stream, "barlow_twins", asked, steps=30, rewinds=2, progress=False)
    assert short.details["rewinds"] == 0 and short.details["rate"] is None
    torch.testing.assert_close(short.dw, plain.dw)


def test_a_derivative_foretells_its_own_replay_without_a_few_rows(net, X):
    steps = rewound_steps(steps_of(net, X, "barlow_twins", T=3), 1e-4, seed=3)
    measure = of_encoder(outcomes(X), steps.twins.encoder)
    found = differentiate(steps, measure, progress=False)
    draw = torch.Generator().manual_seed(0)
    shares = []  # by hand: one row at a time is the twentieth of twelve
    for _ in range(2):
        w = torch.ones(12).double()
        w[torch.randperm(12, generator=draw)[0]] = 0.0
        changed = measure(forward(steps, steps.start(), w, 99)[-1]).detach() - found.values
        shares.append(torch.stack([(found.dw.T @ (w - 1) - changed).square(), changed.square()]))
    errors, sizes = torch.stack(shares).sum(0)
    value = foretold(steps, measure, found, seed=0)
    assert value == pytest.approx(1 - float((errors / sizes).median())) and value > 0.5
    assert foretold(steps, measure, replace(found, dw=-found.dw), seed=0) < 0
    assert foretold(steps, measure, replace(found, dw=1000 * found.dw), seed=0) < 0


def test_rewinds_that_do_not_foretell_themselves_are_left_out(trained, monkeypatch):
    encoder, stream = trained
    asked, settings = outcomes(stream.plain(torch.arange(4))), {"steps": 20, "seed": 5, "progress": False}
    told = iter([0.7, -3.0, 0.1, 0.7, 1.0, 0.1])
    monkeypatch.setattr(rungs, "foretold", lambda *_: next(told))
    less = warm(encoder, stream, "barlow_twins", asked, rewinds=3, **settings)
    whole = warm(encoder, stream, "barlow_twins", asked, rewinds=3, **settings)
    plain = warm(encoder, stream, "barlow_twins", asked, rewinds=0, **settings)
    assert less.details["rewinds"] == 2 and less.details["foretold"] == [0.7, -3.0, 0.1]
    assert whole.details["rewinds"] == 3
    seed = member_seed(5, 1)
    steps = warm_steps(encoder, stream, "barlow_twins", lr=1.0, steps=20, seed=seed)
    steps = rewound_steps(steps, less.details["rate"], seed)
    one = differentiate(steps, of_encoder(asked, steps.twins.encoder), progress=False).dw.double()
    torch.testing.assert_close(3 * (whole.dw - plain.dw) - one, 2 * (less.dw - plain.dw))


def test_byol_has_no_rewinds_unless_asked(net, X):
    stream = ViewStream(X, GaussianNoise(0.2))
    found = warm(net, stream, "byol", outcomes(X), steps=3, lr=0.01, progress=False)
    assert rewinds_of("byol") == 0 and "rewinds" not in found.details
    asked = warm(net, stream, "byol", outcomes(X), steps=3, lr=0.01, rewinds=1, progress=False)
    assert "rewinds" in asked.details and rewinds_of("vicreg") == REWINDS
