"""Every target from end to end on embedded data in place of the real: digits for pictures, applicants for tables."""

from dataclasses import replace

import pytest

from krepes.reproduce import SCALES, TARGETS, Scale, coverage, reproduce, scalability
from krepes.reproduce.base import Target
from krepes.runs.settings import Settings

TABLES = {"adult", "bank", "covertype", "higgs"}
DIGITS = Settings(data="digits", encoder="mlp", encoder_options={"width": 16, "out": 8}, augment="crops", max_rows=300)
PEOPLE = replace(DIGITS, data="applicants", label="group", augment="drop")
TINY = Scale(
    "quick", seeds=1, m=70, h=4, wide=5, test=40, rows=200, images=120, streamed=90, halves=4, retrainings=2
)  # a k-NN of 50 votes among landmarks after ten are deleted


@pytest.fixture
def embedded(monkeypatch):
    def recipe(data, *, loss, scale, seed):
        return replace(PEOPLE if data in TABLES else DIGITS, loss=loss, seed=seed, epochs=1)

    monkeypatch.setattr("krepes.reproduce.trial.recipe", recipe)
    monkeypatch.setattr("krepes.reproduce.grids.base", lambda data, seed: recipe(data, loss=None, scale="", seed=seed))
    monkeypatch.setattr("krepes.reproduce.grids.DATA", ("mnist", "adult"))
    monkeypatch.setattr(
        "krepes.reproduce.grids.GRIDS", {"lam": (0.01, 0.1), "lr": (1e-3, 1e-2), "spread weight": (0, 25)}
    )
    monkeypatch.setitem(SCALES, "quick", TINY)
    monkeypatch.setattr(coverage, "DRAWS", 2)
    monkeypatch.setitem(scalability.SIZES, "quick", {scalability.FULL: (210, 240), scalability.FIXED: (210, 240)})


SAID = ("| yes |", "**no**", "**holds", "**does not hold**")
NAMES = ["consistency", "coverage", "encoders", "faithfulness", "init", "landmarks", "repulsive", "samples", "spectral"]


@pytest.mark.parametrize("name", [*NAMES, "scalability"])
def test_a_target_runs_draws_and_judges(name, embedded, tmp_path):
    target: Target = TARGETS[name]
    table = reproduce(target, "quick", None, tmp_path)
    assert set(table.columns) >= {*target.keys, "mean", "seeds"}
    assert not table.duplicated(list(target.keys)).any()
    assert table["mean"].notna().mean() > 0.9
    if target.paper is not None:
        known = target.paper.merge(table, on=list(target.keys))
        assert len(known) == len(target.paper), "the paper's figures must stand beside rows that were measured"
    assert target.draw is None or (tmp_path / f"{name}-quick.png").stat().st_size > 5_000
    page = (tmp_path / f"{name}-quick.md").read_text()
    assert f"`krepes reproduce {name} --scale quick`" in page and any(word in page for word in SAID)
