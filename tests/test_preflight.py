"""Everything that needs no work is checked before any: the wrong name costs a second, not a training."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.encoders import training
from krepes.errors import KrepesError
from krepes.runs.dataset import open_dataset
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.place import claimed
from krepes.runs.settings import FIELDS, Settings, flag


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), "alter": rng.integers(1, 9, 60)})
    frame.assign(gekündigt=rng.choice(["ja", "nein"], 60)).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.fixture
def no_training(monkeypatch):
    def trained(*_, **__):
        raise AssertionError("work was begun")

    monkeypatch.setattr(training.Training, "advance", trained)


WRONG = {
    "label": ({"label": "gekuendigt"}, {}, r"--label.* Did you mean 'gekündigt'"),
    "group": ({}, {"groups": ["altr"]}, r"--group.* Did you mean 'alter'"),
    "concept": ({}, {"concepts": ["nothing"]}, r"--concept 'nothing' is not column=value"),
    "concept's column": ({}, {"concepts": ["altr=3"]}, r"--concept: .* Did you mean 'alter'"),
    "concept's value": ({}, {"concepts": ["gekündigt=jaa"]}, r"--concept gekündigt=jaa names 0 of 48 .*'ja'"),
    "predictions": ({}, {"predictions": "altr"}, r"--predictions: .* Did you mean 'alter'"),
    "sensitive": ({"sensitive": ("altr",)}, {}, r"--sensitive.* Did you mean 'alter'"),
    "exclude": ({"exclude": ("z",)}, {}, r"--exclude: .* no column 'z'"),
    "id": ({"id_column": "alter"}, {}, r"--id-column: .* repeated ids"),
    "m": ({"m": 49}, {}, r"--m: 49 landmarks cannot be chosen among 48"),
    "candidates": ({"m": 20, "candidates": 10}, {}, r"--m: 20 landmarks cannot be chosen among 10"),
    "h": ({"m": 3, "h": 7}, {}, r"--h: 7 dimensions are more than the 6 landmark points"),
    "objective option": ({"objective_options": {"lamb": 0.1}}, {}, r"--objective-options.*Did you mean 'lam'"),
    "loss option": ({"loss_options": {"lamb": 0.1}}, {}, r"loss_options \['lamb'\]"),
    "augment option": ({"augment_options": {"drp": 0.1}}, {}, r"--augment-options.*Did you mean 'drop'"),
    "encoder option": ({"encoder": "mlp", "encoder_options": {"widht": 3}}, {}, r"widht"),
    "encoder": ({"encoder": "resnet18"}, {}, r"--encoder|encoder"),
    "augment": ({"data": "digits", "augment": "noise"}, {}, r"--augment noise: GaussianNoise .* got \(2, 1, 8, 8\)"),
    "views": ({"augment": "none"}, {}, r"--objective: barlow_twins compares 2 views"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_any_training(name, table, tmp_path, no_training):
    settings, options, words = WRONG[name]
    with pytest.raises(KrepesError, match=words):
        fit(Settings(**{"data": str(table), **settings}), tmp_path / "run", progress=False, **options)


def test_a_right_fit_does_begin_its_work(table, tmp_path, no_training):
    with pytest.raises(AssertionError, match="work was begun"):
        fit(Settings(data=str(table), label="gekündigt"), tmp_path / "run", progress=False)


def test_hidden_columns_never_reach_the_encoder(table):
    settings = Settings(data=str(table), label="gekündigt", sensitive=("alter",), exclude=("y",))
    assert set(open_dataset(settings).encoding.groups) == {"x"}


def test_the_objective_chooses_the_loss_unless_told_otherwise():
    assert Settings(data="x", objective="simclr").training_loss == "simclr"
    assert Settings(data="x", objective="simclr", loss="vicreg").training_loss == "vicreg"
    assert Settings(data="x", objective="kpca").training_loss == "barlow_twins"


def test_unfinished_work_of_other_settings_is_not_used(tmp_path):
    with pytest.raises(RuntimeError), claimed(tmp_path / "run", {"seed": 1}) as work:
        (work / "half").write_text("done")
        raise RuntimeError
    with claimed(tmp_path / "run", {"seed": 1}) as work:
        assert (work / "half").exists()
        (work / "half").touch()
    with pytest.raises(RuntimeError), claimed(tmp_path / "run", {"seed": 1}) as work:
        (work / "half").write_text("done")
        raise RuntimeError
    with claimed(tmp_path / "run", {"seed": 2}) as work:
        assert not (work / "half").exists()


def test_every_setting_is_a_flag_with_its_help(table, tmp_path):
    shown = CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "250", "TERM": "dumb"}).output
    assert all(flag(name) in shown for name in FIELDS if name != "data")


def test_flags_reach_the_run(table, tmp_path):
    arguments = ["fit", table, "--kernel", "rbf", "--m", 12, "--h", 3, "--no-centre", "--init", "kaiming", "--quiet"]
    arguments += ["--damping", "0.5", "--damping-unit", "absolute", "--objective-option", "lam=0.02"]
    arguments += [
        "--objective-option",
        "eps=0.001",
        "--memory",
        "512M",
        "--seed",
        4,
        "--exclude",
        "x",
        "--exclude",
        "y",
    ]
    arguments += ["--second-augment", "noise", "--out", tmp_path / "run"]
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    run = open_run(tmp_path / "run")
    model, settings = run.model, run.settings
    assert (model.centre, model.init, model.seed, model.A_.shape) == (False, "kaiming", 4, (24, 3))
    assert model.solution_.damping_absolute == pytest.approx(0.5)
    assert settings.objective_options == {"lam": 0.02, "eps": 0.001} and settings.exclude == ("x", "y")
    assert model.objective_.lam == 0.02
    assert 511 << 20 < model.memory_budget <= 512 << 20, "the samples that are held are taken off"
    assert run.stream.describe()["augment"]["name"] == "PerView"


def test_a_warning_of_the_solve_is_shown_by_the_audit(table, tmp_path):
    fit(Settings(data=str(table), kernel="rbf", m=10, h=3, centre=False), tmp_path / "run", progress=False)
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "run")], catch_exceptions=False)
    assert "not centred" in " ".join((result.output + (result.stderr or "")).split())
    found = json.loads(CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--json"]).stdout)
    assert any("not centred" in text for text in found["audits"]["trust"]["warnings"])


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["report", "--help"], ["--version"]])
def test_help_needs_no_torch(arguments):
    script = "import sys; sys.argv = ['krepes', *sys.argv[1:]]\nfrom krepes.cli import main\ntry:\n    main()\n"
    script += (
        "except SystemExit:\n    pass\nprint('LOADED', [m for m in ('torch', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout


def test_a_run_may_bear_the_name_of_its_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / ".krepes-run").write_text("")
    monkeypatch.setattr("krepes.runs.store.MARKER", ".krepes-run")
    with pytest.raises(KrepesError, match="data_dir|KREPES_DATA|adult"):
        open_dataset(Settings(data="adult", data_dir=str(tmp_path / "nowhere")))
    with pytest.raises(KrepesError, match="image|picture"):
        (tmp_path / "folder").mkdir()
        open_dataset(Settings(data="folder"))


def test_audits_see_numbers_and_dates_that_the_file_writes_as_text(tmp_path):
    lines = [f"{i % 13},{i % 10};{1 + i % 28:02d}.{1 + i % 12:02d}.{1990 + i % 20};{'ab'[i % 2]}" for i in range(60)]
    (tmp_path / "g.csv").write_text("\n".join(["Umsatz;Datum;Ort", *lines]))
    space = fit(Settings(data=str(tmp_path / "g.csv"), kernel="rbf", m=8, h=2), tmp_path / "run", progress=False)
    for frame in space.tables:
        assert frame["Umsatz"].dtype == "float64" and frame["Datum"].dtype == "datetime64[us]"


@pytest.mark.parametrize("text", ["a,b\n1,2\n1,2,3\n", "a;b\n1;2\n"])
def test_a_broken_table_is_refused_in_flags(text, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(KrepesError, match="--delimiter ';'"):
        open_dataset(Settings(data=str(path), delimiter="," if ";" in text else None))
