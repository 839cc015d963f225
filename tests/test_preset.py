"""The paper's preset: every value reaches the model, what is passed beats it, and each says where the paper has it."""

import dataclasses
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import krepes
from krepes.audit.features import FeatureSpace
from krepes.cli.app import app
from krepes.cli.fit import summary
from krepes.encoders import MLP, TextEncoder
from krepes.errors import InvalidInputError
from krepes.kernels import RBF
from krepes.model import Krepes
from krepes.objectives import OBJECTIVES, VICReg
from krepes.preset import ARGUMENTS, NOT_OF_A_MODEL, presets
from krepes.report import render
from krepes.report.build import report_of
from krepes.runs.augment import augmentation
from krepes.runs.dataset import open_dataset
from krepes.runs.fitting import fit, make_model
from krepes.runs.forecast import forecast
from krepes.runs.grid import make_grid
from krepes.runs.opening import open_run
from krepes.runs.selection import select
from krepes.runs.settings import FIELDS, Settings
from krepes.runs.training import pretrain_run
from krepes.views import GaussianNoise

PAPER = presets["paper"]
SMALL = {"m": 30, "h": 6, "max_rows": 120, "epochs": 1, "encoder_options": {"width": 8, "out": 8}}
FEW = {name: SMALL[name] for name in ("max_rows", "epochs", "encoder_options")}
runner = CliRunner()


def test_every_value_is_a_setting_and_says_where_the_paper_has_it():
    assert set(PAPER.values) <= set(FIELDS)
    assert set(PAPER.sources) == {*PAPER.values, *(f"objective {name}" for name in PAPER.objectives)}
    for name, options in PAPER.objectives.items():
        assert set(options) <= {field.name for field in dataclasses.fields(OBJECTIVES[name])}


def test_every_value_reaches_the_settings_and_the_model():
    settings = Settings(data="digits", preset="paper")
    for name, value in PAPER.values.items():
        assert getattr(settings, name) == value
    objective = krepes.presets["paper"].objective("barlow_twins")
    model = make_model(settings, MLP(4, width=8), objective, 5000, progress=False)
    arguments = PAPER.arguments()
    assert set(arguments) == {ARGUMENTS.get(n, n) for n in PAPER.values if n not in NOT_OF_A_MODEL} - {
        "damping_unit"
    } | {"relative", "objective"}
    for name, value in arguments.items():
        assert getattr(model, name) == value, name
    assert model.relative is False and model.objective.centre is False


def test_defaults_stay_as_they_are():
    plain = Settings(data="digits")
    assert plain.preset is None and plain.objective_options == {} and plain.agreement == "indicator"
    assert (plain.centre, plain.m, plain.landmarks, plain.damping) == (None, None, "rpcholesky", "auto")


@pytest.mark.parametrize("name", PAPER.values)
def test_what_is_passed_beats_the_preset(name):
    others = {
        "kernel": "sketch",
        "landmarks": "leverage-hutchinson",
        "init": "kaiming",
        "damping": 0.5,
        "damping_unit": "relative",
        "augment": "crops",
        "agreement": "indicator",
        "centre": True,
        "cosine": True,
    }
    value = others.get(name, 7)
    found = Settings(data="digits", preset="paper", **{name: value})
    assert getattr(found, name) == value
    untouched = set(PAPER.values) - {name}
    assert all(getattr(found, other) == PAPER.values[other] for other in untouched)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_options_of_the_objective_are_merged_one_by_one(objective):
    found = Settings(data="digits", preset="paper", objective=objective)
    assert found.objective_options == dict(PAPER.objectives.get(objective, {}))
    again = Settings.from_dict(found.to_dict())
    assert again == found
    told = Settings(data="digits", preset="paper", objective="vicreg", objective_options={"hinge_curvature": "irls"})
    assert told.objective_options == {"inv_reduction": "n", "var_halved": False, "hinge_curvature": "irls"}


def test_a_start_at_the_encoder_and_a_second_view_leave_out_what_they_replace():
    at_encoder = Settings(data="digits", preset="paper", init="encoder")
    assert at_encoder.h is None and Settings.from_dict(at_encoder.to_dict()) == at_encoder
    pair = Settings(data="digits", preset="paper", augment="crops", second_augment="images")
    assert pair.augment == "crops"
    alone = Settings(data="digits", preset="paper", second_augment="crops")
    assert alone.augment is None and Settings.from_dict(alone.to_dict()) == alone


def test_a_file_names_the_preset_and_flags_beat_both(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('data = "digits"\npreset = "paper"\nm = 300\nlandmarks = "uniform"\n')
    found = Settings.gather(path, {"landmarks": "leverage-hutchinson", "h": None})
    assert (found.preset, found.m, found.landmarks, found.h) == ("paper", 300, "leverage-hutchinson", 250)
    path.write_text('data = "digits"\nm = 300\n')
    assert Settings.gather(path, {"preset": "paper"}).m == 300


def test_an_unknown_preset_is_refused_with_those_that_there_are(tmp_path):
    with pytest.raises(InvalidInputError, match=r"argument preset: 'standard' is unknown. Choose one of paper"):
        Settings(data="digits", preset="standard")
    shown = runner.invoke(app, ["fit", "digits", "--preset", "papr", "--out", str(tmp_path / "run")])
    assert str(shown.exception) == "--preset: 'papr' is unknown. Did you mean 'paper'?"
    with pytest.raises(InvalidInputError, match="objective='bt' is unknown"):
        PAPER.objective("bt")


def test_the_run_folder_records_the_preset_and_its_values_and_opens_again(tmp_path):
    settings = Settings(data="applicants", preset="paper", label="group", damping=5.0, **SMALL)
    run = fit(settings, tmp_path / "run", progress=False)
    assert run.model.centre is False and run.model.solution_.damping_absolute == pytest.approx(5.0)
    opened = open_run(tmp_path / "run")
    assert opened.settings == settings and opened.settings.preset == "paper" and opened.settings.m == 30
    assert opened.model.objective_.centre is False
    from krepes.runs.answers import study

    asked = study(opened, groups=(), counterfactual=False, shown=2)
    assert asked.space.placed
    page = render(report_of(asked))
    assert "<dt>Preset</dt>" in page and "<dd>paper; what was passed beside it beats it</dd>" in page
    found, settings = (page.split(f'id="p1-{name}"')[1].split("</section>")[0] for name in ("features", "audited"))
    assert "agreement codes, the paper&#39;s" in found and "agreement codes, the paper&#39;s" in settings


def test_the_views_suit_the_data():
    for data, words in (("digits", "PerView"), ("applicants", "FeatureDrop")):
        settings = Settings(data=data, preset="paper")
        dataset = open_dataset(settings)
        sample = dataset.take(torch.arange(8))
        made = augmentation(settings, dataset, sample)
        assert words in json.dumps(made.describe())
        if data == "digits":  # grey: three channels have the colours of solo-learn's pair
            colour = augmentation(settings, dataset, sample.expand(-1, 3, -1, -1))
            assert "ColourJitter" in json.dumps(colour.describe()) and "Solarize" in json.dumps(colour.describe())


def test_python_takes_the_preset_as_arguments():
    X = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    arguments = krepes.presets["paper"].arguments("simclr", m=20, h=5, tol=1e-5, damping=1e6)
    model = Krepes(MLP(4, width=8), augment=GaussianNoise(0.1), progress=False, **arguments).fit(X)
    assert model.solution_.damping_absolute == pytest.approx(1e6)
    assert model.objective_.reduction == "sum" and model.landmarks == "kmeans++"
    assert np.isfinite(model.solution_.loss_after)
    assert "h" not in PAPER.arguments(init="encoder")


def test_sizes_of_the_preset_alone_give_way_to_the_data_and_a_note_names_both(tmp_path, caplog):
    run = fit(Settings(data="applicants", preset="paper", **FEW), tmp_path / "run", progress=False)
    assert (run.model.m, run.model.h, run.settings.m, run.settings.h) == (48, 12, 48, 12)
    assert "1000 landmarks cannot be chosen among 96 samples, so 48 are taken (--m)" in caplog.text
    assert "250 dimensions go with more landmarks, so 12 are taken (--h)" in caplog.text
    opened = open_run(tmp_path / "run")
    assert (opened.settings, opened.settings.m, opened.model.h) == (run.settings, 48, 12)
    fewer = fit(Settings(data="applicants", preset="paper", m=20, **FEW), tmp_path / "fewer", progress=False)
    assert (fewer.model.m, fewer.model.h) == (20, 5)
    caplog.clear()
    allowed = fit(Settings(data="applicants", preset="paper", m=30, h=6, **FEW), tmp_path / "told", progress=False)
    assert (allowed.model.m, allowed.model.h, "preset" in caplog.text) == (30, 6, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"m": 1000}, "--m: 1000 landmarks cannot be chosen among 96 samples"),
        ({"m": 97}, "--m: 97 landmarks cannot be chosen among 96 samples"),
        ({"h": 250}, "--h: 250 dimensions are more than the 96 landmark points"),
        ({"m": 30, "h": 250}, "--h: 250 dimensions are more than the 60 landmark points"),
    ],
)
def test_a_size_that_was_given_is_refused_and_leaves_no_run_folder(given, words, tmp_path):
    settings = Settings(data="applicants", preset="paper", **FEW, **given)
    for told in (settings, dataclasses.replace(settings, seed=1), pickle.loads(pickle.dumps(settings))):
        with pytest.raises(InvalidInputError, match=words):
            fit(told, tmp_path / "runs" / "run", progress=False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("unit", ["relative", "absolute"])
def test_the_damping_that_a_fit_shows_is_the_one_that_it_takes(unit, tmp_path):
    settings = Settings(data="applicants", m=20, h=4, damping_unit=unit, **FEW)
    first = fit(settings, tmp_path / "auto", progress=False)
    shown = summary(first)["damping"]
    again = fit(dataclasses.replace(settings, damping=shown), tmp_path / "given", progress=False)
    wanted = first.model.solution_.damping_absolute
    assert again.model.solution_.damping_absolute == pytest.approx(wanted) and wanted != pytest.approx(1)
    assert summary(again)["damping"] == pytest.approx(shown)


def test_a_copy_of_settings_knows_what_its_preset_gave(tmp_path):
    settings = Settings(data="applicants", preset="paper", **FEW)
    for copy in (dataclasses.replace(settings, seed=1), pickle.loads(pickle.dumps(settings))):
        assert fit(copy, tmp_path / str(copy.seed), progress=False).model.m == 48
    assert dataclasses.replace(settings, init="encoder").h is None
    assert dataclasses.replace(settings, second_augment="drop").augment is None


def test_a_copy_with_another_objective_has_the_options_for_it():
    first = Settings(data="digits", preset="paper", objective_options={"lam": 0.1})
    assert dataclasses.replace(first, objective="vicreg").objective_options == {
        **PAPER.objectives["vicreg"],
        "lam": 0.1,
    }
    there = dataclasses.replace(Settings(data="digits", preset="paper"), objective="vicreg")
    assert there.objective_options == PAPER.objectives["vicreg"]
    back = dataclasses.replace(there, objective="barlow_twins")
    assert back == Settings(data="digits", preset="paper")
    own = Settings(data="digits", preset="paper", objective="vicreg", objective_options={"centre": False})
    assert own.objective_options["centre"] is False  # a person's stays, and is refused


def test_a_selection_and_a_forecast_take_the_sizes_that_the_data_allow(tmp_path, caplog):
    settings = Settings(data="applicants", preset="paper", **FEW)
    found = select(settings, "objective", ["barlow_twins", "vicreg"], tmp_path / "out", by="entropy", progress=False)
    assert len(found.curve) == 2 and caplog.text.count("so 48 are taken") == 1
    assert open_run(tmp_path / "out" / "objective-vicreg").settings.m == 48
    assert forecast(settings).kernel.kind == "exact"


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice("the a good bad film was not plot actor scene fun".split(), 6)) for _ in range(80)]


def test_texts_take_the_papers_other_selector_and_views_of_words(texts, tmp_path, caplog):
    (tmp_path / "t.txt").write_text("\n".join(texts))
    shared = {"data": str(tmp_path / "t.txt"), "preset": "paper", "epochs": 1, "encoder_options": {"width": 8}}
    run = fit(Settings(**shared, m=10), tmp_path / "run", progress=False)
    assert (run.settings.landmarks, run.settings.augment, run.model.centre) == ("leverage-hutchinson", "words", False)
    (line,) = [record.getMessage() for record in caplog.records if "texts" in record.getMessage()]
    assert "--landmarks leverage-hutchinson instead of kmeans++ and --augment words instead of paper" in line
    assert open_run(tmp_path / "run").settings == run.settings
    for given, words in (({"landmarks": "kmeans++"}, "--landmarks: kmeans"), ({"augment": "paper"}, "takes numbers")):
        with pytest.raises(InvalidInputError, match=words):
            fit(Settings(**shared, **given), tmp_path / "not", progress=False)
    assert not (tmp_path / "not").exists()
    pretrain_run(Settings(**shared), tmp_path / "e.safetensors", progress=False)


def test_the_front_door_takes_a_preset(texts, caplog):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=100), "c": rng.choice(list("abc"), 100)})
    found = krepes.explain(MLP(4, width=8), frame, preset="paper", objective="vicreg", progress=False)
    model = found.model
    assert (model.m, model.h, model.landmarks, model.relative, model.centre) == (40, 10, "kmeans++", False, False)
    assert "among 80 samples, so 40 are taken (m)" in caplog.text
    assert model.objective_.hinge_curvature == "none"
    codes = found.study.features.encode(frame)
    assert torch.equal(codes, FeatureSpace.of(found.study.tables[0], agreement="codes").encode(frame))
    X = torch.rand(60, 1, 8, 8)
    pictures = krepes.explain(MLP(64, width=8), X, preset="paper", m=20, h=5, progress=False)
    assert "Solarize" in json.dumps(pictures.model.stream_.augment.describe()) and pictures.model.m == 20
    read = krepes.explain(TextEncoder(width=8), texts, preset="paper", m=10, progress=False)
    assert read.model.landmarks == "leverage-hutchinson" and "landmarks leverage-hutchinson instead" in caplog.text
    own = krepes.explain(RBF(2.0), X.flatten(1), preset="paper", objective=VICReg(), landmarks="all", progress=False)
    assert (own.model.m_, own.model.h, own.model.objective_.hinge_curvature) == (48, 12, VICReg().hinge_curvature)
    with pytest.raises(InvalidInputError, match="preset='papr' is unknown: choose one of paper"):
        krepes.explain(RBF(2.0), X, preset="papr")
    with pytest.raises(InvalidInputError, match="m=1000"):
        krepes.explain(RBF(2.0), X, preset="paper", m=1000, progress=False)


def test_info_lists_presets():
    shown = runner.invoke(app, ["info", "--json"])
    assert json.loads(shown.output)["presets"] == "paper"


def test_another_objective_of_a_grid_has_the_presets_options_for_it():
    settings = Settings(data="digits", preset="paper", objective_options={"lam": 0.1})
    found = {
        one.value: one.settings for one in make_grid(settings, "objective", ["barlow_twins", "vicreg", "spectral"])
    }
    assert found["barlow_twins"].objective_options == {"centre": False, "eps": 0.0, "lam": 0.1}
    assert found["vicreg"].objective_options == {
        **PAPER.objectives["vicreg"],
        "lam": 0.1,
    }  # a person's stay, and are refused
    assert found["spectral"].objective_options == {"lam": 0.1}
    plain = make_grid(Settings(data="digits", preset="paper"), "objective", ["simclr", "byol"])
    for one in plain:
        krepes.presets["paper"].objective(one.value, **one.settings.objective_options)
