"""Encoders of other packages on the command line and in settings: their own sizes, recorded, and opened again."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.errors import InvalidInputError
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.retraining import require_recipe
from krepes.runs.settings import Settings
from krepes.runs.training import pretrain_run
from packages import FAKES, MEAN, STD, Net, folder_of, weights_of

SMALL = dict(m=6, h=3, epochs=1, projector=(), batch_size=16)


@pytest.fixture
def packages(monkeypatch):
    for name, make in FAKES.items():
        monkeypatch.setitem(sys.modules, name, make())


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for place in range(20):
        Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(tmp_path / "photos" / f"{place}.png")
    return str(tmp_path / "photos")


def recorded(folder):
    return json.loads(next(folder.glob("settings*.json")).read_text())


NAMED = {"timm": ("timm:tiny.dino", "head", ""), "torchvision": ("torchvision:resnet", "fc", "")}
NAMED["openclip"] = ("openclip:ViT-B-32", "fc", "visual.")


@pytest.mark.parametrize("package", NAMED)
def test_a_run_records_what_the_model_says_and_opens_without_trust(package, packages, photos, tmp_path):
    name, head, prefix = NAMED[package]
    net = Net(0 if prefix else 10, head=head).eval()
    weights = str(weights_of(net, tmp_path / "w.safetensors", prefix=prefix))
    run = fit(Settings(data=photos, encoder=name, weights=weights, **SMALL), tmp_path / "run", progress=False)
    kept = recorded(tmp_path / "run")
    assert (kept["encoder"], kept["size"], kept["mean"], kept["std"]) == (name, 8, list(MEAN), list(STD))
    again = open_run(tmp_path / "run")
    X = again.test_samples
    assert X.shape[1:] == (3, 8, 8) and X.min() < 0
    assert torch.equal(run.model.transform(X), again.model.transform(X))
    assert again.recipe is None


def test_a_fit_says_which_weights_it_took_and_which_would_fit_too(packages, photos, tmp_path, caplog):
    student, teacher = Net(head="head").state_dict(), Net(head="head").state_dict()
    torch.save({"student": student, "teacher": teacher}, tmp_path / "dino.pth")
    settings = Settings(data=photos, encoder="timm:tiny", weights=str(tmp_path / "dino.pth"), **SMALL)
    with caplog.at_level("INFO", logger="krepes"):
        fit(settings, tmp_path / "run", progress=False)
    assert "dino.pth fit, prefix 'student/', own names; as good: --prefix 'teacher/'" in caplog.text


def test_what_is_passed_beats_the_model(packages, photos, tmp_path):
    weights = str(weights_of(Net(head="head"), tmp_path / "w.safetensors"))
    given = dict(size=12, mean=(0.1, 0.1, 0.1), std=(1.0, 1.0, 1.0), output="cls")
    settings = Settings(data=photos, encoder="timm:tiny", weights=weights, **given, **SMALL)
    run = fit(settings, tmp_path / "run", progress=False)
    assert run.settings == settings
    assert open_run(tmp_path / "run").test_samples.shape[2:] == (12, 12)


def test_a_folder_brings_its_weights_and_its_pooling_is_recorded(packages, photos, tmp_path):
    folder_of(tmp_path / "vit", without=["pooler."])
    settings = Settings(data=photos, encoder=f"hf:{tmp_path / 'vit'}", **SMALL)
    with pytest.raises(InvalidInputError, match="--size: hf:.* does not say how large its images are"):
        fit(settings, tmp_path / "run", progress=False)
    about = {"image_mean": MEAN, "image_std": STD, "size": 8}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(about))
    run = fit(settings, tmp_path / "run", progress=False)
    assert recorded(tmp_path / "run")["output"] == "cls" and recorded(tmp_path / "run")["size"] == 8
    again = open_run(tmp_path / "run")
    assert torch.equal(run.model.transform(again.test_samples), again.model.transform(again.test_samples))
    with pytest.raises(InvalidInputError, match="fitted from weights, hf:.*vit, that do not say"):
        require_recipe(again)
    (tmp_path / "vit").rename(tmp_path / "moved")
    with pytest.raises(InvalidInputError, match="not a local folder"):
        open_run(tmp_path / "run")
    moved = open_run(tmp_path / "run", encoder=f"hf:{tmp_path / 'moved'}")
    assert torch.equal(moved.model.transform(again.test_samples), run.model.transform(again.test_samples))


def test_without_weights_an_architecture_is_trained_and_its_recipe_kept(packages, photos, tmp_path):
    settings = Settings(data=photos, encoder="timm:tiny", **SMALL)
    pretrain_run(settings, tmp_path / "w.safetensors", progress=False)
    weights = str(tmp_path / "w.safetensors")
    fit(Settings(data=photos, encoder="timm:tiny", weights=weights, **SMALL), tmp_path / "run", progress=False)
    recipe = open_run(tmp_path / "run").recipe
    assert (recipe.settings.encoder, recipe.settings.size) == ("timm:tiny", 8)


WRONG = {
    "unknown name": (["--encoder", "timm:tiyn"], "Did you mean 'tiny'"),
    "unknown option": (["--encoder", "timm:tiny", "--encoder-option", "pretrained=true"], "option 'pretrained'"),
    "no folder": (["--encoder", "hf:google/vit"], "not a local folder"),
    "wrong pooling": (["--encoder", "timm:tiny", "--output", "sum"], "no pooling of timm"),
    "no such weights": (["--encoder", "timm:tiny", "--weights", "none.pth"], "no file of this name"),
    "too small": (["--encoder", "timm:tiny", "--size", "2"], "does not take samples of shape (3, 2, 2)"),
}


def command(photos, flags, tmp_path):
    result = CliRunner().invoke(app, ["fit", photos, *flags, "--out", str(tmp_path / "run"), "--m", "6", "--quiet"])
    said = " ".join((result.output + str(result.exception or "")).replace("│", " ").split())
    return result, said


@pytest.mark.parametrize("case", WRONG)
def test_the_command_refuses_before_any_work(case, packages, photos, tmp_path):
    flags, problem = WRONG[case]
    result, said = command(photos, flags, tmp_path)
    assert result.exit_code != 0 and problem in said


@pytest.mark.parametrize("name", ["timm:tiny", "torchvision:resnet", "openclip:ViT-B-32"])
def test_a_missing_package_is_refused_with_the_command_that_installs_it(name, photos, tmp_path, monkeypatch):
    for package in FAKES:
        monkeypatch.setitem(sys.modules, package, None)
    result, said = command(photos, ["--encoder", name], tmp_path)
    assert result.exit_code != 0 and f"pip install 'krepes[{name.partition(':')[0]}]'" in said


def test_a_settings_file_names_the_encoder_too(packages, photos, tmp_path):
    weights = weights_of(Net(head="head"), tmp_path / "w.safetensors")
    path = tmp_path / "s.toml"
    path.write_text(f'encoder = "timm:tiny"\nweights = "{weights}"\nh = 3\nepochs = 1\n')
    result, said = command(photos, ["--config", str(path)], tmp_path)
    assert result.exit_code == 0, said
    assert recorded(tmp_path / "run")["size"] == 8


def test_settings_without_such_an_encoder_say_the_size_at_once():
    assert Settings(data="x").size == 32 and Settings(data="x", encoder="timm:tiny").size is None
    assert Settings.from_dict(Settings(data="x", encoder="timm:tiny").to_dict()).size is None
