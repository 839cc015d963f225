"""``krepes fit --dry-run``: counts are those of the fit, nothing is written, and what a fit refuses is refused."""

import json
import os

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.encoders import ConvNet, save_weights
from krepes.errors import InvalidInputError
from krepes.kernels import EmpiricalNTK, SketchedNTK
from krepes.runs.calibration import prepared_like, seconds_each
from krepes.runs.fitting import fit
from krepes.runs.forecast import forecast
from krepes.runs.scaling import Work, on_gpus
from krepes.runs.settings import Settings

PHASES = ["kernel", "reference", "selection", "landmarks", "pass", "solve"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr("krepes.runs.calibration.LONG_ENOUGH", 0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, draw = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for i in range(80):
        Image.fromarray(draw.integers(0, 256, (14, 14, 3), dtype=np.uint8)).save(root / f"{i:03d}.png")
    return root


def settings(folder, tmp_path, **changes):
    weights = tmp_path / "net.safetensors"
    if not weights.exists():
        torch.manual_seed(0)
        save_weights(ConvNet(width=8, out=6), weights)
    given = {"data": str(folder), "size": 12, "encoder": "convnet", "weights": str(weights), "m": 8, "h": 4}
    given["encoder_options"] = {"width": 8, "out": 6}
    return Settings(**given | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": "sketch", "features": 64},
        {"kernel": "exact", "features": 64, "reference": 20},
        {"kernel": "sketch", "features": 64, "init": "encoder", "h": None, "objective": "vicreg"},
        {"landmarks": "uniform", "objective": "simclr", "features": 64},
    ],
    ids=str,
)
def test_counts_are_those_of_the_fit(folder, tmp_path, changes):
    asked = settings(folder, tmp_path, **changes)
    found = forecast(asked)
    run = fit(asked, tmp_path / "run", progress=False)
    counts = found.table.set_index("phase")["samples through the encoder"]
    assert found.exact and found.kernel == run.model.kernel_choice_
    assert {name: int(counts[name]) for name in PHASES} == {k: v.samples for k, v in run.model.work_.items()}
    disk = float(found.table["disk MiB"].max()) * 2**20
    written = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    assert written / 1.5 < disk + 60_000 and disk < 1.5 * written  # beside arrays a run has its manifest and settings
    assert (found.table["seconds"] >= 0).all() and (found.table["memory MiB"] >= 0).all()


def test_a_count_that_depends_on_the_data_is_called_an_estimate(tmp_path, generator):
    np.save(tmp_path / "x.npy", torch.randn(90, 5, generator=generator).numpy())
    found = forecast(Settings(data=str(tmp_path / "x.npy"), m=8, h=4, epochs=2, batch_size=32, kernel="exact"))
    counts = found.table.set_index("phase")["samples through the encoder"]
    assert not found.exact and counts["training"] == 2 * 2 * 64 and counts["pass"] == 2 * (72 - 8)


def test_a_table_is_forecast_with_the_training_of_its_encoder():
    asked = Settings(data="applicants", label="group", max_rows=300, epochs=2, m=8, h=4)
    counts = forecast(asked).table.set_index("phase")["samples through the encoder"]
    assert counts["training"] == 2 * 2 * 240 and counts["pass"] == 2 * (240 - 8)


def test_nothing_is_written_and_the_table_is_printed(folder, tmp_path, monkeypatch):
    asked = settings(folder, tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    flags = {"--size": "12", "--encoder": "convnet", "--weights": asked.weights, "-m": "8", "-h": "4"}
    words = ["fit", asked.data, *[word for pair in flags.items() for word in pair]]
    words += ["--encoder-option", "width=8", "--encoder-option", "out=6"]
    done = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [row["phase"] for row in told["phases"]] == ["opening", *PHASES, "saving"]
    assert "nothing was written" in CliRunner().invoke(app, [*words, "--dry-run"]).output
    assert sorted(os.listdir()) == before
    with pytest.raises(InvalidInputError, match="90 landmarks cannot be chosen"):
        forecast(settings(folder, tmp_path, m=90))


@pytest.mark.parametrize("make", [EmpiricalNTK, SketchedNTK])
def test_repeated_points_have_the_size_and_the_values_of_real_ones(make, generator):
    torch.manual_seed(0)
    kernel, X = make(ConvNet(width=8, out=6).eval()), torch.rand(6, 3, 12, 12, generator=generator)
    repeated = prepared_like(kernel, X, 10)
    real = kernel.prepare(X[torch.arange(10) % 4])
    torch.testing.assert_close(kernel.rows(X, repeated).K, kernel.rows(X, real).K)


def test_a_timing_is_of_as_many_as_take_long_enough(monkeypatch):
    clock, asked = [0.0], []

    def work(k):
        asked.append(k)
        clock[0] += 0.1 * k

    monkeypatch.setattr("krepes.runs.calibration.LONG_ENOUGH", 0.7)
    monkeypatch.setattr("krepes.runs.calibration.time.perf_counter", lambda: clock[0])
    assert seconds_each(work, 64) == pytest.approx(0.1)
    assert asked == [1, 1, 6, 12]
    asked.clear()
    assert seconds_each(work, 64, first=8) == pytest.approx(0.1) and asked == [1, 8]


def test_hours_on_gpus_divide_what_is_shared_and_nothing_else(folder, tmp_path):
    parts = [
        Work("pass", "encoder", 3600.0, "shared by all"),
        Work("pass", "reading", 800.0, "shared by all"),
        Work("landmarks", "encoder", 360.0, "repeated by each"),
        Work("solve", "numbers", 36.0, "done by the first"),
    ]
    table = on_gpus(parts, [1, 4], speed=10.0, readers=8).set_index("phase")
    assert table.loc["pass", "1 GPU"] == pytest.approx(460 / 3600)
    assert table.loc["pass", "4 GPU"] == pytest.approx(115 / 3600)
    assert table.loc["landmarks", "4 GPU"] == table.loc["landmarks", "1 GPU"] == pytest.approx(36 / 3600)
    assert table.loc["together", "4 GPU"] == pytest.approx((115 + 36 + 36) / 3600)
    assert table.loc["together", "mostly"] == "pass" and table.loc["pass", "mostly"] == "encoder, shared by all"
    found = forecast(settings(folder, tmp_path, kernel="sketch", features=64))
    here, spread = found.table.set_index("phase")["seconds"], on_gpus(found.parts, [2], 1.0).set_index("phase")
    for phase in ("pass", "landmarks", "solve", "saving"):
        assert 3600 * spread.loc[phase, "hours here"] == pytest.approx(here[phase], rel=1e-6), "all of it, in parts"


@pytest.mark.parametrize("given", [["--gpus", "1,8"], ["--gpus", "0", "--dry-run"], ["--gpus", "many", "--dry-run"]])
def test_numbers_of_gpus_are_numbers_and_belong_to_a_dry_run(given):
    found = CliRunner().invoke(app, ["fit", "digits", *given])
    assert isinstance(found.exception, InvalidInputError) and "such as 1,8,32, with --dry-run" in str(found.exception)
