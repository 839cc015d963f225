"""What a benchmark's figures are compared with, and that one that fails does not stop the others."""

import json
import types

import pytest
from benchmarks import __main__ as runner
from benchmarks import before

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
