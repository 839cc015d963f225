"""Selection without labels: an encoder per value, where each value goes, what is kept, and what is never picked."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from krepes.audit import select_by_spectrum, view_retrieval
from krepes.audit import selection as criteria
from krepes.audit.selection import CRITERIA, RECOMMENDED, alarm, choose, encoder_criteria, spread_of
from krepes.encoders import MLP, CollapsedEncoderError, FrozenEncoder, save_weights
from krepes.errors import InvalidInputError, RunFolderError
from krepes.model import Krepes
from krepes.runs import selection
from krepes.runs.grid import make_grid
from krepes.runs.selection import select
from krepes.runs.settings import Settings
from krepes.storage.tensorfile import read_header
from krepes.views import GaussianNoise, ViewStream

NET = {"width": 16, "depth": 1, "out": 8}
SMALL = Settings(
    data="digits", max_rows=150, epochs=1, batch_size=32, encoder="mlp", encoder_options=NET, projector=(16,), m=20, h=5
)
quiet = {"progress": False}


def slow_rank(Z):
    """Effective rank by its definition, in loops over plain numbers."""
    singular = np.linalg.svd(np.asarray(Z, dtype=np.float64), compute_uv=False)
    shares = [s / singular.sum() + 1e-7 for s in singular]
    return math.exp(-sum(p * math.log(p) for p in shares))


def slow_retrieval(first, second):
    """Look for the partner of each view among all samples, one cosine at a time."""
    first, second = (np.asarray(Z, dtype=np.float64) - np.asarray(Z, dtype=np.float64).mean(0) for Z in (first, second))

    def cosine(u, v):
        return float(u @ v) / (math.sqrt(float(u @ u)) * math.sqrt(float(v @ v)))

    hits = 0
    for A, B in ((first, second), (second, first)):
        for i in range(len(A)):
            hits += all(cosine(A[i], B[i]) > cosine(A[i], B[j]) for j in range(len(A)) if j != i)
    return hits / (2 * len(first))


@pytest.fixture(autouse=True)
def unrendered(request, monkeypatch):
    """Figures take as long as everything else here: one test draws one."""
    if "encoder_of_its_own" not in request.node.name:
        monkeypatch.setattr(selection, "render", lambda figure: b"")


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return MLP(6, **NET).double()


@pytest.fixture
def stream(generator):
    return ViewStream(torch.randn(40, 6, generator=generator).double(), GaussianNoise(0.5), seed=3)


def test_criteria_of_an_encoder_are_those_of_slow_obvious_versions(encoder, stream, monkeypatch):
    monkeypatch.setattr(criteria, "CHUNK", 7)
    found = encoder_criteria(FrozenEncoder(encoder), stream)
    with torch.no_grad():
        Z = encoder(stream.plain(torch.arange(40)))
        views = [stream.with_seed(3 + draw).views_of(torch.arange(40)) for draw in range(criteria.DRAWS)]
        draws = [(encoder(first), encoder(second)) for first, second in views]
    assert found["encoder_rankme"] == pytest.approx(slow_rank(Z - Z.mean(0)), abs=1e-10)
    assert found["spread"] == pytest.approx(np.mean(np.std(Z.numpy(), 0, ddof=1)) / np.sqrt(np.mean(Z.numpy() ** 2)))
    assert found["retrieval"] == pytest.approx(np.mean([slow_retrieval(*pair) for pair in draws]), abs=1e-12)
    assert 0 < found["retrieval"] < 1


def test_criteria_of_a_kernel_model_are_those_of_slow_obvious_versions(encoder, stream):
    model = Krepes(encoder, m=15, h=4, progress=False).fit(stream)
    row = select_by_spectrum({1: model}).curve.iloc[0]
    A, K = model.A_.numpy(), model.K_mm_.numpy()
    for name, G in (("entropy", A.T @ A), ("entropy_kernel", A.T @ K @ A)):
        shares = np.linalg.eigvalsh(G) / np.trace(G)
        assert row[name] == pytest.approx(-sum(p * math.log(p) for p in shares) / math.log(4), abs=1e-9)
    views = model.transform(stream.views_of(torch.arange(40)).flatten(0, 1))
    assert row["rankme"] == pytest.approx(slow_rank(views), rel=1e-5)
    assert row["encoder_rankme"] == encoder_criteria(FrozenEncoder(encoder), stream)["encoder_rankme"]


def test_views_that_are_all_alike_find_nobody_and_fill_one_dimension():
    assert view_retrieval(torch.ones(5, 3), torch.ones(5, 3)) == 0
    flat = FrozenEncoder(nn.Linear(6, 4))
    nn.init.zeros_(flat.module.weight)
    found = encoder_criteria(flat, ViewStream(torch.randn(20, 6), GaussianNoise(0.1)))
    assert found["encoder_rankme"] == 1 and found["spread"] < 1e-6 and found["collapsed"]


def test_the_alarm_asks_less_of_few_dimensions():
    assert alarm(0.5, 2.9, 64) == "2.9 of 64 dimensions, below 3" and not alarm(0.5, 3.1, 64)
    assert not alarm(0.5, 1.3, 2) and alarm(0.5, 1.2, 2)


@pytest.mark.parametrize("moved", [1, 3])
def test_a_large_constant_in_a_few_dimensions_is_no_collapse(encoder, stream, moved):
    before = encoder_criteria(FrozenEncoder(encoder), stream)
    for constant in (5.0, 1000.0, -1e4):
        other = copy.deepcopy(encoder)
        with torch.no_grad():
            other.layers[-1].bias[:moved] += constant
        after = encoder_criteria(FrozenEncoder(other), stream)
        assert not before["collapsed"] and not after["collapsed"]
        assert after["spread"] == pytest.approx(before["spread"], rel=0.5)
        assert after["retrieval"] == before["retrieval"]
        assert after["encoder_rankme"] == pytest.approx(before["encoder_rankme"])


def test_embeddings_that_fell_to_a_point_are_a_collapse_with_or_without_offsets(generator):
    noise = torch.randn(500, 16, generator=generator).double()
    point = torch.randn(16, generator=generator).double() + 2
    gone = {"near a point": point + 0.02 * noise, "zero": torch.zeros(500, 16), "float noise": point + 1e-7 * noise}
    gone["float noise beside a constant"] = torch.eye(16)[0].double() * 100 + 1e-8 * noise
    sizes = torch.logspace(-4, 1, 16).double()  # as of smooth units that are nearly off
    gone["at every size"] = sizes * (1 + 0.02 * noise)
    for name, Z in gone.items():
        assert alarm(spread_of(Z), 16, 16).startswith("spread"), name
        offset = Z.clone()
        offset[:, :3] += 50
        assert name in {"zero"} or alarm(spread_of(offset), 16, 16).startswith("spread"), name
    off = torch.cat([torch.zeros(500, 40), noise], 1)  # most units never speak
    assert spread_of(off) == pytest.approx(float(off.std(0).mean() / off.square().mean().sqrt()), rel=1e-6)


CURVE = pd.DataFrame({
    "value": [1, 2, 3, 4],
    **{name: [0.9, 0.5, 0.6, math.nan] for name in CRITERIA},
    "collapsed": ["spread 0.01, below 0.05", "", "", "training stopped"],
})


@pytest.mark.parametrize("by", CRITERIA)
def test_a_collapsed_encoder_is_never_picked_whichever_criterion(by):
    found = choose(CURVE, by)
    assert found.winner == 3 and set(found.winners.values()) == {3}
    assert choose(CURVE.assign(collapsed="gone"), by).winner is None


def test_a_value_goes_to_the_loss_and_to_the_objective_where_both_take_it():
    first, second = make_grid(replace(SMALL, loss_options={"lam": 5.0}), "lam", [0.1, 0.2])
    assert first.settings.loss_options == first.settings.objective_options == {"lam": 0.1}
    assert second.settings.loss_options == second.settings.objective_options == {"lam": 0.2}
    (only,) = make_grid(SMALL, "centre", [False])
    assert only.settings.objective_options == {"centre": False} and only.settings.loss_options == {}
    (loss,) = make_grid(SMALL, "loss_options.lam", [0.1])
    assert loss.settings.loss_options == {"lam": 0.1} and loss.settings.objective_options == {}
    (weights,) = make_grid(replace(SMALL, objective="vicreg"), "var_weight", [3.0])
    assert weights.settings.loss_options == {"weights": [25.0, 3.0, 1.0]}
    assert weights.settings.objective_options == {"var_weight": 3.0}
    given = make_grid(replace(SMALL, weights="a.safetensors"), "lam", [0.1])[0].settings
    assert given.loss_options == {} and given.objective_options == {"lam": 0.1}


@pytest.mark.parametrize(
    ("name", "values", "changes", "message"),
    [
        (
            "lamm",
            [1.0],
            {},
            r"nothing of that name to vary. Did you mean 'lam'\? Known are lam, centre, eps, loss, epo",
        ),
        ("m", [10], {}, "nothing of that name to vary"),
        ("lr", [0.1, -1.0], {}, "--over lr=-1.0: .* more than 0"),
        ("lr", [0.1, 0.1], {}, "none twice"),
        ("loss_options.lan", [0.1], {}, r"\['lan'\] do not fit loss='barlow_twins', which takes \['lam'\]"),
        ("encoder_options.widht", [8], {}, "widht"),
        ("weights", ["nowhere.safetensors"], {}, "nowhere.safetensors"),
        ("lr", [0.1], {"kernel": "rbf"}, "nothing is trained"),
        ("lr", [0.1], {"h": 1}, "no spectrum"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_anything_is_trained(
    name, values, changes, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(selection, "pretrain_run", None)
    with pytest.raises(InvalidInputError, match=message):
        select(replace(SMALL, **changes), name, values, tmp_path / "out", **quiet)
    assert not (tmp_path / "out").exists()


def test_an_unknown_criterion_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(InvalidInputError, match="--by='accuracy' must be one of"):
        select(SMALL, "lr", [0.1], tmp_path, by="accuracy")
    with pytest.raises(InvalidInputError, match="--by retrieval judges an encoder"):
        select(replace(SMALL, kernel="rbf"), "lam", [0.1], tmp_path, by="retrieval")


@pytest.fixture
def trainings(monkeypatch):
    """Every training that is begun, by its settings; one whose learning rate is 7 collapses."""
    begun, real = [], selection.pretrain_run

    def watched(settings, out, **rest):
        begun.append(settings)
        if settings.lr == 7:
            raise CollapsedEncoderError("the loss became nan at step 3. Lower lr.")
        return real(settings, out, **rest)

    monkeypatch.setattr(selection, "pretrain_run", watched)
    return begun


def test_every_value_has_an_encoder_of_its_own_and_finished_ones_are_not_trained_again(tmp_path, trainings):
    out = tmp_path / "grid"
    first = select(SMALL, "lam", [0.001, 0.1], out, **quiet)
    assert [settings.loss_options["lam"] for settings in trainings] == [0.001, 0.1]
    recipes = [read_header(out / f"lam-{lam}.safetensors")["recipe"]["settings"] for lam in (0.001, 0.1)]
    assert [recipe["loss_options"] for recipe in recipes] == [{"lam": 0.001}, {"lam": 0.1}]
    assert first.curve["encoder_rankme"].nunique() == 2 and first.by == RECOMMENDED
    assert first.winner == first.curve.set_index("value")[RECOMMENDED].idxmax()
    (out / "lam-0.1.json").unlink()  # as if it had been interrupted here
    again = select(SMALL, "lam", [0.001, 0.1, 1.0], out, **quiet)
    assert [settings.loss_options["lam"] for settings in trainings[2:]] == [0.1, 1.0]
    pd.testing.assert_frame_equal(again.curve[:2], first.curve)
    assert (out / "criteria.png").stat().st_size > 5000 and len(pd.read_csv(out / "curve.csv")) == 3
    assert json.loads((out / "selection.json").read_text())["winner"] == again.winner
    with pytest.raises(RunFolderError, match=r"differs in epochs=2 \(was 1\)"):
        select(replace(SMALL, epochs=2), "lam", [0.1], out, **quiet)
    with pytest.raises(RunFolderError, match="no selection of ours"):
        select(SMALL, "lam", [0.1], tmp_path, **quiet)


def test_values_that_share_a_training_share_an_encoder(tmp_path, trainings):
    found = select(SMALL, "objective_options.lam", [0.001, 0.1], tmp_path / "grid", **quiet)
    assert len(list((tmp_path / "grid").glob("*.safetensors"))) == 1
    assert found.curve["encoder_rankme"].nunique() == 1 and found.curve["entropy_kernel"].nunique() == 2


def test_a_training_that_collapses_is_a_row_and_no_error(tmp_path, trainings):
    found = select(replace(SMALL, label="label"), "lr", [1e-3, 7.0], tmp_path / "grid", **quiet)
    assert found.winner == 1e-3 and set(found.winners.values()) == {1e-3}
    assert found.curve["collapsed"].tolist() == ["", "training stopped: the loss became nan at step 3. Lower lr."]
    assert found.curve["probe"][0] > 0.3 and math.isnan(found.curve["probe"][1])
    select(replace(SMALL, label="label"), "lr", [1e-3, 7.0], tmp_path / "grid", **quiet)
    assert len(trainings) == 2


def test_given_weights_are_compared_and_never_trained(tmp_path, monkeypatch):
    torch.manual_seed(0)
    flat, alive = MLP(64, **NET), MLP(64, **NET)
    with torch.no_grad():
        flat.layers[-1].weight.mul_(1e-4)
    paths = [tmp_path / "flat.safetensors", tmp_path / "alive.safetensors"]
    for network, path in zip((flat, alive), paths, strict=True):
        save_weights(network, path)
    monkeypatch.setattr(selection, "pretrain_run", None)
    found = select(SMALL, "weights", [str(path) for path in paths], tmp_path / "grid", **quiet)
    assert found.winner == str(paths[1]) and found.curve["collapsed"][0].startswith("spread")
    save_weights(alive, paths[0])
    again = select(SMALL, "weights", [str(path) for path in paths], tmp_path / "grid", **quiet)
    assert again.curve["collapsed"].tolist() == ["", ""], "a file that was changed is read again"


def test_given_weights_that_do_not_take_the_samples_are_refused_as_a_fit_refuses_them(tmp_path):
    path = tmp_path / "narrow.safetensors"
    save_weights(nn.Sequential(nn.Flatten(), nn.Linear(5, 8)), path)
    settings = replace(SMALL, encoder=f"{__name__}:narrow", encoder_options={})
    with pytest.raises(InvalidInputError, match=r"--over weights=.*--encoder: the encoder does not take samples of"):
        select(settings, "weights", [str(path)], tmp_path / "grid", **quiet)
    assert not (tmp_path / "grid").exists()


def narrow():
    """Return an encoder of five numbers, for samples that have more."""
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 8))


def test_an_objective_without_moments_is_judged_by_samples(tmp_path, trainings):
    settings = replace(SMALL, objective="simclr", max_rows=60, m=10, damping=1.0)
    assert select(settings, "temperature", [0.2], tmp_path / "grid", **quiet).curve["rankme"].notna().all()
    assert trainings[0].loss_options == {"temperature": 0.2}


def test_encoders_are_asked_about_the_same_views_or_not_by_retrieval(tmp_path, trainings, monkeypatch):
    seen, real = [], selection.encoder_criteria

    def watched(encoder, stream):
        seen.append(stream.fingerprint())
        return real(encoder, stream)

    monkeypatch.setattr(selection, "encoder_criteria", watched)
    select(SMALL, "augment_options.crop", [0.3, 0.9], tmp_path / "strengths", **quiet)
    assert len(set(seen)) == 1 and [settings.augment_options["crop"] for settings in trainings] == [0.3, 0.9]
    found = select(SMALL, "augment", ["crops", "images"], tmp_path / "kinds", **quiet)
    assert len(set(seen[2:])) == 2 and found.by == "encoder_rankme" and found.curve["retrieval"].isna().all()
    with pytest.raises(InvalidInputError, match="must ask every encoder about the same views"):
        select(SMALL, "augment", ["crops"], tmp_path / "other", by="retrieval", **quiet)
