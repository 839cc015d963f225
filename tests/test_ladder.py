"""One call for every rung: the replays through a fitted model, and the choice among them."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import nn

from krepes import influence as inf
from krepes.encoders import MLP
from krepes.encoders.pretrain import pretrain
from krepes.errors import InvalidInputError
from krepes.influence import compute, ladder
from krepes.influence.caution import beside_a_proof
from krepes.influence.ladder import How, choose
from krepes.kernels.classic import RBF
from krepes.model import Krepes
from krepes.objectives import VICReg
from krepes.views import GaussianNoise, ViewStream


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))


@pytest.fixture
def X(generator):
    return torch.randn(40, 5, generator=generator)


@pytest.fixture
def trained(X):
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=20)
    return pretrain(network(), stream, projector=(6,), epochs=5, record=True, progress=False)


@pytest.fixture
def model(X, trained):
    stream = ViewStream(X, GaussianNoise(0.2), batch_size=20)
    return Krepes(trained.encoder, m=12, h=4, progress=False).fit(stream)


@pytest.fixture
def outcomes(model, X):
    return [
        inf.similarity(model, X[:1], X[1:2], reference=X, name="pair"),
        inf.group_distance(model, X[:5], X[5:9], name="groups"),
        inf.toward(model, X[2:3], torch.ones(4), name="toward"),
    ]


@pytest.mark.parametrize("method", ["lazy", "warm", "replay"])
def test_every_rung_gives_one_kind_of_result(method, model, outcomes, trained):
    how = How(recordings=(trained.recording,), steps=5)
    found = inf.influence_of(
        model, outcomes, method=method, how=how, ids=[f"row {i}" for i in range(40)], progress=False
    )
    assert found.method == method and found.values.shape == (40, 3) and found.names == ("pair", "groups", "toward")
    assert found.seconds > 0 and "plan" in found.details and "/ 40" in found.unit
    assert np.abs(found.values.sum(0)).max() < 1e-3 * np.abs(found.values).sum(0).max()  # float32, scale-free
    row = int(found.top(1).iloc[0]["row"])
    assert found.sentence(row).startswith("pair would fall by") and f"row {row} had not been there" in found.sentence(
        row
    )
    np.testing.assert_allclose(found.removal([row])["pair"], -found.values[row, 0] / 40)


def test_warm_influence_is_the_effect_of_removing_the_row_from_the_replay(model, outcomes):
    """Removing a row is weight zero: to first order the outcome changes by minus its influence over n."""
    from krepes.influence.reverse import forward
    from krepes.influence.rungs import of_encoder
    from krepes.influence.warm import warm_steps

    found = inf.influence_of(model, outcomes, method="warm", how=How(steps=5), progress=False)
    steps = warm_steps(model.kernel, model.stream_, "barlow_twins", lr=found.details["lr"], steps=5)
    measure = of_encoder(ladder.joined(outcomes), model.kernel)
    whole = measure(forward(steps, steps.start(), torch.ones(40), 9)[-1]).detach()
    changes = []
    for i in range(40):
        w = torch.ones(40)
        w[i] = 0.0
        changes.append(measure(forward(steps, steps.start(), w, 9)[-1]).detach() - whole)
    predicted = -found.values / 40
    for k in range(3):
        assert np.corrcoef(torch.stack(changes).numpy()[:, k], predicted[:, k])[0, 1] > 0.95


def test_auto_takes_the_best_that_is_possible_and_says_so(model, outcomes, trained, X, capsys):
    whole = How(recordings=(trained.recording,) * 4, steps=5)
    assert choose(model, outcomes, whole, model.stream_).method == "replay"
    assert "influence by replay, about" in capsys.readouterr().err
    plan = choose(model, outcomes, How(steps=5), model.stream_, progress=False)
    assert plan.method == "warm" and "0 trainings were recorded" in plan.refused["replay"]
    assert capsys.readouterr().err == ""
    poor = choose(model, outcomes, How(seconds=0.0), model.stream_, progress=False)
    assert poor.method == "surrogate" and "it would take" in poor.refused["lazy"]
    found = inf.influence_of(model, outcomes, method="auto", how=How(seconds=0.0), progress=False)
    assert found.method == "surrogate"
    concept = inf.toward(
        model, X[:1], torch.ones(4), in_model=True
    )  # found in the model's space, unknown to the encoder
    plan = choose(model, [outcomes[0], concept], whole, model.stream_, progress=False)
    assert plan.method == "surrogate" and "kernel model alone" in plan.refused["replay"]
    with pytest.raises(InvalidInputError, match="kernel model alone"):
        inf.influence_of(model, concept, method="warm", how=How(steps=2), progress=False)
    kernel = Krepes(RBF(2.0), m=12, h=4, augment=GaussianNoise(0.1), progress=False).fit(X)
    plan = choose(kernel, [inf.toward(kernel, X[:1], torch.ones(4))], How(), kernel.stream_, progress=False)
    assert plan.method == "surrogate" and "needs the encoder" in plan.refused["warm"]


def test_warm_goes_without_rewinds_where_the_seconds_do_not_allow_them(model, outcomes, monkeypatch):
    costs = {"replay": 1e3, "warm": 50.0, "lazy": 1.0}
    monkeypatch.setattr(ladder, "_cost", lambda _model, _outcomes, method, *_: costs[method])
    plans = {s: choose(model, outcomes, How(seconds=s), model.stream_, progress=False) for s in (5.0, 15.0, 60.0)}
    assert [plan.method for plan in plans.values()] == ["lazy", "warm", "warm"]
    assert (plans[15.0].rewinds, plans[15.0].costs["warm"], plans[60.0].rewinds) == (0, 10.0, None)
    assert "it would take 50 s of 15" in plans[15.0].refused["rewinds"] and "warm" not in plans[15.0].refused
    fixed = choose(model, outcomes, How(seconds=15.0, rewinds=2), model.stream_, progress=False)
    assert fixed.method == "lazy"
    monkeypatch.setattr(compute, "choose", lambda *_, **__: plans[15.0])
    found = inf.influence_of(model, outcomes, method="auto", how=How(steps=3), progress=False)
    assert found.method == "warm" and "rewinds" not in found.details
    assert "with its rewinds; this one has none: it would take 50 s of 15." in beside_a_proof(found.details)
    assert beside_a_proof({}) == ""


def test_auto_goes_down_a_rung_that_refuses_when_it_starts(model, outcomes, monkeypatch, capsys):
    def refuses(*_, **__):
        raise InvalidInputError("at none of 13 step sizes does the loss fall. Check the loss.")

    monkeypatch.setattr(ladder, "warm", refuses)
    found = inf.influence_of(model, outcomes, method="auto", how=How(steps=3))
    assert found.method == "lazy" and "no warm: at none of 13 step sizes does the loss fall" in found.details["plan"]
    assert "influence by lazy" in capsys.readouterr().err
    with pytest.raises(InvalidInputError, match="step sizes"):
        inf.influence_of(model, outcomes, method="warm", how=How(steps=3), progress=False)
    monkeypatch.setattr(ladder, "lazy", refuses)
    assert inf.influence_of(model, outcomes, method="auto", how=How(steps=3), progress=False).method == "surrogate"


def test_auto_takes_no_rung_whose_step_is_beyond_the_budget(model, outcomes, trained, monkeypatch):
    def step(*args, **named):
        raise AssertionError("a step was made to see what it costs")

    monkeypatch.setattr(model, "memory_budget", 10_000)  # 40 samples in two views take more with what is made of them
    monkeypatch.setattr(ladder, "step_cost", step)
    plan = choose(model, outcomes, How(recordings=(trained.recording,) * 4), model.stream_, progress=False)
    assert plan.method == "lazy"
    for rung in ("replay", "warm"):
        assert plan.refused[rung].startswith("a step takes about") and "9.766 KiB" in plan.refused[rung]


def test_a_rung_that_was_asked_for_says_before_it_starts_what_it_takes_beyond_the_budget(
    model, outcomes, monkeypatch, caplog
):
    how = How(steps=2, rewinds=0)
    inf.influence_of(model, outcomes, method="warm", how=how, progress=False)
    assert "memory" not in caplog.text
    monkeypatch.setattr(model, "memory_budget", 10_000)
    with pytest.raises(RuntimeError, match="the work began"):
        monkeypatch.setattr(ladder, "warm", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("the work began")))
        inf.influence_of(model, outcomes, method="warm", how=how, progress=False)
    assert "influence by warm: a step takes about" in caplog.text and "9.766 KiB: memory will exceed it" in caplog.text


def test_vicreg_warns_of_weights_and_starts_that_predicted_nothing(model, X):
    cases = {
        ("n", "pca"): "h times as much",
        ("n", "encoder"): "h times as much",
        ("nh", "pca"): "principal components",
    }
    for (reduction, init), why in cases.items():
        objective = VICReg(inv_reduction=reduction, var_halved=True)
        other = Krepes(model.kernel, objective=objective, m=12, h=4, init=init, progress=False).fit(model.stream_)
        with pytest.warns(UserWarning, match=why):
            inf.influence_of(other, inf.similarity(other, X[:1], X[1:2]), progress=False)


def test_vicreg_from_the_encoder_answers_as_a_replay_does_and_not_from_principal_components():
    """Spearman of influences with those of the lazy replay, of pairs of digits; 0.54 to 0.57 against 0.26 to 0.32."""
    draw = torch.Generator().manual_seed(0)
    X = torch.tensor(load_digits().data, dtype=torch.float32)[torch.randperm(1797, generator=draw)[:120]] / 16 - 0.3
    torch.manual_seed(0)
    encoder, train, pairs = MLP(64, 32, 1, 8), X[:100], X[100:]
    pretrain(encoder, ViewStream(train, GaussianNoise(0.4)), loss="vicreg", epochs=15, lr=2e-3, progress=False)
    objective, found = VICReg(inv_reduction="nh", var_halved=True), {}
    for init in ("pca", "encoder"):
        stream = ViewStream(train.repeat(4, 1), GaussianNoise(0.4), seed=9)
        fitted = Krepes(encoder, objective=objective, landmarks=range(40), h=8, init=init, progress=False).fit(stream)
        outcomes = [
            inf.similarity(fitted, a[None], b[None], reference=train)
            for a, b in zip(pairs[:10], pairs[10:], strict=True)
        ]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            values = inf.influence_of(fitted, outcomes, progress=False).values
        assert any("principal components" in str(one.message) for one in caught) == (init == "pca")
        found[init] = values.reshape(4, 100, 10).sum(0)
    replayed = (
        inf
        .influence_of(fitted, outcomes, method="lazy", stream=stream, how=How(draws=1), progress=False)
        .values.reshape(4, 100, 10)
        .sum(0)
    )
    agree = {
        init: np.mean([spearmanr(*both).statistic for both in zip(of.T, replayed.T, strict=True)])
        for init, of in found.items()
    }
    assert agree["encoder"] > 0.45 and agree["encoder"] > agree["pca"] + 0.15, agree


def test_what_cannot_be_replayed_is_refused(model, outcomes, X):
    with pytest.raises(InvalidInputError, match="method='magic' is unknown"):
        inf.influence_of(model, outcomes, method="magic", progress=False)
    with pytest.raises(InvalidInputError, match="at least one recording"):
        inf.influence_of(model, outcomes, method="replay", progress=False)
    with pytest.raises(InvalidInputError, match="kernel rows alone"):
        held = inf.AugmentedRows(inf.rows(model, X[:1]).Kbar)
        inf.influence_of(model, inf.toward(model, held, torch.ones(4)), method="warm", how=How(steps=2), progress=False)
    with pytest.raises(InvalidInputError, match="belongs to the kernel model alone"):
        inf.influence_of(model, inf.loss(model), method="warm", how=How(steps=2), progress=False)
    other = model.refit(objective="simple")
    with pytest.raises(InvalidInputError, match="no training loss has the name of the objective 'simple'"):
        inf.influence_of(other, outcomes, method="warm", how=How(steps=2), progress=False)
