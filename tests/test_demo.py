"""The demo: planted truths are found where they were hidden, runs are left to ask, and the same bytes every time."""

import hashlib
from dataclasses import replace

import pytest
import torch

from krepes.data.drawings import GROUNDS, OBJECTS, drawings
from krepes.data.people import people
from krepes.runs import demo
from krepes.runs.store import is_run


def test_drawings_show_what_the_table_says_and_repeat():
    found, again, other = drawings(80), drawings(80), drawings(80, seed=1)
    assert found.X.shape == (80, 3, 32, 32) and 0 <= found.X.min() < found.X.max() <= 1
    assert torch.equal(found.X, again.X) and not torch.equal(found.X, other.X)
    assert set(found.frame["object"]) == set(OBJECTS) and set(found.frame["ground"]) == set(GROUNDS)
    sea = torch.tensor((found.frame["ground"] == "sea").to_numpy())
    blue = found.X[:, 2, -6:].mean((1, 2)) - found.X[:, 0, -6:].mean((1, 2))  # the foot of the picture
    assert blue[sea].min() > blue[~sea].max()


def test_occupation_gives_sex_away_and_nothing_else_does():
    frame = people(4000)
    female = frame["sex"] == "F"
    # Of three own occupations in six, by strength 0.8: 0.9 of either sex work in one of their own.
    own = frame["occupation"].isin(["nurse", "teacher", "clerk"])
    assert own[female].mean() == pytest.approx(0.9, abs=0.03) and own[~female].mean() == pytest.approx(0.1, abs=0.03)
    assert abs(frame["age"][female].mean() - frame["age"][~female].mean()) < 1.5
    assert abs((frame["district"][female] == "east").mean() - (frame["district"][~female] == "east").mean()) < 0.05


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo at a twelfth of its size, its pictures by a network that takes a second and not a minute."""
    planned, threads = demo.cases, torch.get_num_threads()

    def quick(table, texts):
        found = planned(table, texts)
        pictures = replace(found["drawings"].settings, encoder="mlp", encoder_options={}, augment="crops")
        return found | {"drawings": replace(found["drawings"], settings=pictures)}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "cases", quick)
        found = demo.run_demo(tmp_path_factory.mktemp("demo"), progress=False, smaller=0.08)
    assert torch.get_num_threads() == threads
    return found


def test_the_demo_leaves_a_page_a_table_and_runs_to_ask(made):
    page = made.report.read_text()
    assert page.count("<article") == 3 and page.count('<img src="data:image/png') > 100
    assert made.table.read_text().startswith('"age"') and all(is_run(run) for run in made.runs)
    assert page.count('<mark class="m3">') > 20
    assert f"<span>explore</span> <span>{made.runs[0]}</span>" in page


def test_the_hidden_column_is_found_and_was_not_shown(made):
    page = made.report.read_text()
    assert "“sex” was hidden from the encoder" in page.replace("</a>", "").replace(
        '<a class="term" href="#word-hidden">', ""
    ).replace('<a class="term" href="#word-encoder">', "")
    assert "The encoder saw 7 columns" in page.replace('<a class="term" href="#word-encoder">encoder</a>', "encoder")


@pytest.mark.slow
def test_demo_is_small_and_repeats_to_the_byte(tmp_path, monkeypatch):
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)  # the page names its runs as they are typed
        contents.append(demo.run_demo(demo.Path("."), progress=False).report.read_bytes())
    assert len({hashlib.sha256(content).hexdigest() for content in contents}) == 1
    assert len(contents[0]) < 5e6
