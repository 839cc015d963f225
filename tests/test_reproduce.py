"""Reproductions: the frame around them on made-up data here; the real ones behind `make slow` with KREPES_DATA."""

import json
import os

import pandas as pd
import pytest

from krepes.errors import InvalidInputError
from krepes.reproduce import TARGETS, Target, find_target, reproduce
from krepes.reproduce.base import Scale, markdown


def target(run):
    paper = pd.DataFrame({"data": ["a"], "method": ["ours"], "paper": [0.5]})
    return Target("toy", "A toy table", ("none",), ("data", "method"), run, paper, "made up")


def test_seeds_are_averaged_and_the_papers_figure_stands_beside(tmp_path, monkeypatch):
    scale = Scale(train=1, test=1, epochs=1, m=1, h=1, seeds=3, width=4)
    monkeypatch.setitem(__import__("krepes.reproduce.base", fromlist=["SCALES"]).SCALES, "quick", scale)

    def run(size, data_dir, seed):
        return pd.DataFrame({"data": ["a", "a"], "method": ["ours", "random"], "value": [seed + 1.0, 0.25]})

    table = reproduce(target(run), "quick", None, tmp_path)
    assert table["mean"].tolist() == [2.0, 0.25] and table["spread"].tolist() == [1.0, 0.0]
    assert table["seeds"].tolist() == [3, 3] and table["paper"].iloc[0] == 0.5 and pd.isna(table["paper"].iloc[1])
    story = json.loads((tmp_path / "toy-quick.json").read_text())
    assert story["scale"]["seeds"] == 3 and story["table"][1]["paper"] is None
    page = (tmp_path / "toy-quick.md").read_text()
    assert "`krepes reproduce toy --scale quick`" in page and "| a | random | 0.25 | 0 | 3 | – |" in page


def test_unknown_names_and_scales_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be reproduced yet: choose one of consistency"):
        find_target("everything")
    with pytest.raises(InvalidInputError, match="scale='huge' is unknown"):
        reproduce(TARGETS["spectral"], "huge", None, tmp_path)


def test_markdown_keeps_rows_apart():
    assert markdown(pd.DataFrame({"x": [1.23456], "y": ["b"]})) == "| x | y |\n| --- | --- |\n| 1.235 | b |\n"


@pytest.mark.realdata
@pytest.mark.skipif("KREPES_DATA" not in os.environ, reason="KREPES_DATA names no data folder")
@pytest.mark.parametrize("name", TARGETS)
def test_quick_reproductions_run_and_carry_their_baselines(name, tmp_path):
    table = reproduce(TARGETS[name], "quick", None, tmp_path)
    print("\n" + table.to_string(index=False))
    assert table["mean"].notna().all()
    if name == "consistency":
        assert {"influence", "latent cosine", "kernel", "random", "input distance"} <= set(table["method"])
