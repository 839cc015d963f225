"""What a benchmark's figures are compared with, and that one that fails does not stop the others."""

import json
import types

import pytest
import torch
from benchmarks import __main__ as runner
from benchmarks import before
from benchmarks.exactness import exactness
from torch import nn

RESULT = {
    "ResMLP": {"KREPES": 0.2, "torch.func / KREPES": 186.0, "share of limit": 0.84},
    "records": [{"n": 20, "streamed_over_solve": 200.0, "solve_s": 0.3}],
    "shared speedup": 1.9,
    "CPU ms per row, achieved / allowed": 0.8,
}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setattr(before, "FILE", tmp_path / "before.json")
    before.FILE.write_text(json.dumps({"entk": {"ResMLP: torch.func / KREPES": 93.0}}))
    return before.FILE


def test_seconds_are_not_compared_and_ratios_are():
    assert before.figures(RESULT) == {
        "ResMLP: torch.func / KREPES": 186.0,
        "ResMLP: share of limit": 0.84,
        "records: n = 20: streamed_over_solve": 200.0,
        "shared speedup": 1.9,
    }


def test_figures_stand_beside_those_before(stored):
    lines = before.table("entk", RESULT)
    assert lines[1].split()[-3:] == ["93", "186", "2.00"] and lines[2].split()[-3:] == ["-", "0.84", "-"]
    assert before.table("solve", {"seconds": 1.0}) == []


def test_kept_figures_replace_those_of_benchmarks_that_ran(stored):
    before.keep({"solve": RESULT})
    assert before.load()["entk"] == {"ResMLP: torch.func / KREPES": 93.0}
    assert before.load()["solve"]["shared speedup"] == 1.9


def test_the_stored_figures_are_those_of_benchmarks_that_there_are():
    assert set(before.load()) <= set(runner.NAMES)


def test_one_that_fails_is_named_and_the_others_run(stored, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def fails():
        raise ZeroDivisionError

    def missing():
        raise ImportError("no timm")

    mains = {"benchmarks.entk": fails, "benchmarks.rows": missing, "benchmarks.solve": lambda: RESULT}
    monkeypatch.setattr(runner.importlib, "import_module", lambda name: types.SimpleNamespace(main=mains[name]))
    assert runner.main(["entk", "rows", "solve"], keep=True) == 1
    told = capsys.readouterr()
    assert "failed: entk" in told.err and "skipped: no timm" in told.out and "shared speedup" in told.out
    assert json.loads((tmp_path / "results/bench-solve.json").read_text()) == RESULT
    assert "solve" in before.load() and "rows" not in before.load()


def test_an_error_at_a_kink_is_told_from_one_of_the_rules():
    """The first unit is 1 + 2^-30 - 1: nought in float32, positive in float64, so that its slope is 0 or 1."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    with torch.no_grad():
        network[0].weight[0] = torch.tensor([1.0, 2.0**-30, -1.0])
        network[0].bias[0] = 0.0
    found = exactness(network, torch.cat([torch.ones(1, 3), torch.randn(3, 3)]))
    assert found["kinks"] == 2 and found["across kinks"] > 1e-3 and found["autograd in float32"] > 1e-3
    assert found["error"] < 1e-6 and found["in float64"] < 1e-12 and found["slow share"] == 0
    away = exactness(network, torch.randn(4, 3))
    assert away["kinks"] == 0 and away["error"] == away["across kinks"] < 1e-6


def test_a_pooling_that_takes_another_pixel_is_a_kink():
    """One pixel is larger by 2^-30, which only float64 sees after the first layer has added 1."""
    network = nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        network[0].weight.fill_(1.0)
        network[0].bias.fill_(1.0)
    X = torch.zeros(2, 1, 4, 4)
    X[0, 0, 1, 1], X[1] = 2.0**-30, torch.arange(16.0).reshape(4, 4)
    found = exactness(network, X)
    assert found["kinks"] == 4  # the pixel that is taken and the one that is not, on both sides of the kernel
    assert found["error"] < 1e-6 and found["in float64"] < 1e-12
