"""Reproductions: the frame around them on made-up data here; the real ones behind `make slow` with KREPES_DATA."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

from krepes.audit.probes import probe
from krepes.cli.app import app
from krepes.errors import ConvergenceWarning, InvalidInputError
from krepes.figures.style import new_figure
from krepes.model import Krepes
from krepes.reproduce import (
    SCALES,
    TARGETS,
    Findings,
    Scale,
    Target,
    begin,
    crew,
    find_target,
    measured,
    recipe,
    reproduce,
    write_page,
)
from krepes.reproduce import trial as trial_module
from krepes.reproduce.claims import Claim, Reading
from krepes.reproduce.page import told
from krepes.reproduce.probes import ModelProbe
from krepes.reproduce.stored import REPOSITORY, end_retraining
from krepes.reproduce.tables import markdown, wide
from krepes.reproduce.trial import Trial
from krepes.runs.settings import Settings
from krepes.storage.tensorfile import read_tensors

SIZES = {"m": 10, "h": 4, "wide": 5, "rows": 60, "images": 50, "halves": 2, "retrainings": 2}
PAPER = pd.DataFrame({"data": ["a"], "method": ["ours"], "paper": [0.5]})


@pytest.fixture
def three_seeds(monkeypatch):
    scale = Scale(
        "quick", seeds=3, m=10, h=4, wide=5, test=20, rows=60, images=50, streamed=50, halves=2, retrainings=2
    )
    monkeypatch.setitem(SCALES, "quick", scale)


def toy(run, **rest):
    return Target("toy", "A toy table", ("none",), ("data", "method"), "method", run, "made up", paper=PAPER, **rest)


def found(trial):
    rows = pd.DataFrame({"data": ["a", "a"], "method": ["ours", "random"], "value": [trial.seed + 1.0, 0.25]})
    return Findings(rows, {"first": new_figure(1.0)})


def test_seeds_are_averaged_and_the_papers_figure_stands_beside(tmp_path, three_seeds):
    table = reproduce(toy(found), "quick", None, tmp_path)
    assert table["mean"].tolist() == [2.0, 0.25] and table["spread"].tolist() == [1.0, 0.0]
    assert table["seeds"].tolist() == [3, 3] and table["paper"].iloc[0] == 0.5 and pd.isna(table["paper"].iloc[1])
    details = json.loads((tmp_path / "toy-quick.json").read_text())
    assert details["runs"][0]["seeds"] == 3 and details["table"]["paper"] == [0.5, None]
    assert details["table"]["by_seed"] == [[1.0, 2.0, 3.0], [0.25] * 3], "in the order of the seeds"
    page = (tmp_path / "toy-quick.md").read_text()
    assert "`krepes reproduce toy --scale quick`" in page and "| a | 2 ± 1 (0.5) | 0.25 ± 0 |" in page


def test_figures_and_verdicts_go_to_the_page(tmp_path, three_seeds):
    def judge(table):
        best = table.set_index("method")["mean"]
        return [("ours ahead of random", best["ours"] > best["random"]), ("random ahead of ours", False)]

    target = toy(found, draw=lambda table: new_figure(1.0), judge=judge)
    reproduce(target, "quick", None, tmp_path)
    assert (tmp_path / "toy-quick.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "toy-quick-first.png").exists()
    page = (tmp_path / "toy-quick.md").read_text()
    assert "| ours ahead of random | yes |" in page and "| random ahead of ours | **no** |" in page
    assert "(./toy-quick-first.png)" in page
    whole = write_page(tmp_path, "quick", tmp_path / "docs" / "all.md", [target, replace(target, name="other")])
    assert "Not run at this scale: other." in whole.read_text() and "(all/toy-quick.png)" in whole.read_text()
    assert (tmp_path / "docs" / "all" / "toy-quick-first.png").exists()
    with pytest.raises(InvalidInputError, match="no result of scale 'full'"):
        write_page(tmp_path, "full", tmp_path / "all.md", [target])


def test_a_page_keeps_what_it_shows_and_is_written_anew_without_the_results(tmp_path, three_seeds):
    target, other = toy(found, draw=lambda table: new_figure(1.0)), replace(toy(found), name="other")
    reproduce(target, "quick", None, tmp_path / "results")
    reproduce(other, "quick", None, tmp_path / "results")
    page = tmp_path / "docs" / "all.md"
    before = write_page(tmp_path / "results", "quick", page, [target, other]).read_text()
    assert write_page(tmp_path / "nowhere", "quick", page, [target, other]).read_text() == before
    doubled = replace(other, run=lambda trial: Findings(found(trial).rows.assign(value=7.0)))
    reproduce(doubled, "quick", None, tmp_path / "again")
    after = write_page(tmp_path / "again", "quick", page, [target, other]).read_text()
    assert after.count("| a | 2 ± 1 (0.5) | 0.25 ± 0 |") == 1 and after.count("| a | 7 ± 0 (0.5) | 7 ± 0 |") == 1


def test_an_interrupted_run_goes_on_after_its_last_seed_if_the_commit_is_the_same(tmp_path, three_seeds, monkeypatch):
    ran = []

    def run(trial):
        ran.append(trial.seed)
        if ran == [0, 1, 2]:
            raise KeyboardInterrupt
        rows = pd.DataFrame({"data": ["a"], "method": ["ours"], "value": [trial.seed / 3], "low": [None]})
        return Findings(rows, {"first": new_figure(1.0)})

    commits = iter(["abc", "abc", "abd", "abd with uncommitted changes", "abd with uncommitted changes"])
    monkeypatch.setattr("krepes.reproduce.base.commit_of_code", lambda: next(commits))
    with pytest.raises(KeyboardInterrupt):
        reproduce(toy(run), "quick", None, tmp_path)
    table = reproduce(toy(run), "quick", None, tmp_path)
    assert ran == [0, 1, 2, 2] and table["mean"].tolist() == [1 / 3] and (tmp_path / "toy-quick-first.png").exists()
    for count in (7, 10, 13):
        reproduce(toy(run), "quick", None, tmp_path)
        assert len(ran) == count, "another commit, and changes that no commit has, start again"


def test_hours_are_those_of_the_paper_s_targets_and_of_every_seed(tmp_path, three_seeds, monkeypatch):
    clock = iter(range(0, 60_000, 1200))
    monkeypatch.setattr("krepes.reproduce.parts.time.process_time", lambda: next(clock))
    monkeypatch.setattr("krepes.reproduce.base.commit_of_code", lambda: "abc")
    targets = [toy(found), replace(toy(found), name="own", beyond=True)]
    for target in (*targets, targets[0]):
        reproduce(target, "quick", None, tmp_path)
    page = write_page(tmp_path, "quick", tmp_path / "all.md", targets).read_text()
    assert (
        "The targets of the paper (1) took 1.0 core hours in all" in page
        and page.count("3 seeds, 60.0 core minutes.") == 2
    )


def test_all_runs_the_paper_s_targets_and_names_the_others(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr("krepes.reproduce.begin", lambda target, *_, **__: lambda: ran.append(target.name) or PAPER)
    shown = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path)])
    assert shown.exit_code == 0 and "intervention, planted, outliers" in " ".join(shown.output.split())
    assert ran == [name for name in TARGETS if name not in {"intervention", "planted", "outliers"}]


def test_several_names_are_begun_together_and_a_wrong_one_begins_nothing(tmp_path, monkeypatch):
    begun, ended = [], []

    def begin(target, *_, crew, **__):
        begun.append((target.name, crew))
        return lambda: ended.append(len(begun)) or PAPER

    monkeypatch.setattr("krepes.reproduce.begin", begin)
    call = ["reproduce", "--out", str(tmp_path), "--jobs", "2"]
    shown = CliRunner().invoke(app, [*call, "init", "groups", "init"])
    assert shown.exit_code == 0 and "2 tables in 0 minutes by 2 processes." in shown.output
    assert [name for name, _ in begun] == ["init", "groups"] and ended == [2, 2]
    assert begun[0][1] is begun[1][1] is not None, "they share the processes"
    for wrong, says in ((["init", "grups"], "'grups' cannot be reproduced"), (["init", "all"], "all stands by itself")):
        shown = CliRunner().invoke(app, [*call, *wrong])
        assert shown.exit_code != 0 and says in " ".join(str(shown.exception).split()) and len(begun) == 2


def of_a_process(trial):
    rows = {"data": ["a"], "method": ["ours"], "value": [float(trial.seed)], "low": [float(torch.get_num_threads())]}
    return Findings(pd.DataFrame(rows).assign(high=float(os.getpid())), {"first": new_figure(1.0)})


def threads():
    """Threads of torch and of every library below NumPy and SciPy."""
    return {torch.get_num_threads(), *(one["num_threads"] for one in threadpool_info())}


def warning():
    return warnings.formatwarning("stopped early", ConvergenceWarning, "/somewhere/file.py", 3)


def test_processes_say_warnings_without_places_in_the_code():
    with crew(2) as processes:
        assert processes.submit(warning).result() == "ConvergenceWarning stopped early\n"


def test_processes_that_share_a_machine_have_one_thread_each():
    with crew(2) as processes:
        assert processes.submit(threads).result() == {1}


CREW = """
import os, signal, sys, time
from pathlib import Path
from krepes.reproduce import crew
def work(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(120)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # of a shell in the background, Ctrl-C is ignored
    with crew(2) as processes:
        for one in [processes.submit(work, sys.argv[1]) for _ in range(6)]:
            one.result()
"""


def alive(pid):
    """Whether a process runs; one that ended and that nobody asked about yet does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks the system's folder of processes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_crew_ends_with_the_process_that_began_it(how, tmp_path):
    (tmp_path / "begin.py").write_text(CREW)
    (tmp_path / "began").mkdir()
    one = subprocess.Popen([sys.executable, tmp_path / "begin.py", tmp_path / "began"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(list((tmp_path / "began").iterdir())) == 2, 60)
        began = [int(path.name) for path in (tmp_path / "began").iterdir()]
        one.send_signal(how)
        until(lambda: one.poll() is not None and not any(alive(pid) for pid in began), 20)
    finally:
        one.kill()
    assert len(list((tmp_path / "began").iterdir())) == 2, "no more parts are begun"


def until(holds, seconds):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


def test_seeds_that_processes_share_give_the_same_result(tmp_path, three_seeds, capsys):
    targets = [toy(of_a_process), replace(toy(of_a_process), name="other")]
    with crew(2) as processes:
        ends = [begin(target, "quick", None, tmp_path / "two", crew=processes) for target in targets]
        shared = [end() for end in ends]
    said = [line.rpartition(" done")[0] for line in capsys.readouterr().err.splitlines() if " done, " in line]
    assert said == [f"{name}: seed {seed} of 3" for name in ("toy", "other") for seed in (1, 2, 3)]
    alone = [reproduce(target, "quick", None, tmp_path / "one") for target in targets]
    for one, other in zip(shared, alone, strict=True):
        assert one["mean"].tolist() == other["mean"].tolist() == [1.0] and one["seeds"].tolist() == [3]
        assert one["low"].tolist() == [1.0] and one["high"].tolist() != other["high"].tolist()
    assert (tmp_path / "two" / "other-quick-first.png").exists()


def above(limit):
    return lambda table: (table["mean"][0] > limit, f"mean {table['mean'][0]:g} against {limit}")


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ((1.0, 1.5), "holds"),
        ((5.0, 1.0), "holds under 1 of 2 readings: reading 1"),
        ((5.0, 6.0), "does not hold"),
        ((1.0,), "holds"),
    ],
)
def test_a_claim_is_judged_under_each_of_its_readings(limits, verdict, tmp_path, three_seeds):
    readings = tuple(Reading(f"reading {place}", above(limit)) for place, limit in enumerate(limits))
    claim = Claim("the mean is large", readings, "because it was made up")
    reproduce(toy(found, claims=(claim,)), "quick", None, tmp_path)
    page = (tmp_path / "toy-quick.md").read_text()
    assert f"| the mean is large | **{verdict}** |" in page and "| because it was made up |" in page
    assert all(f"mean 2 against {limit}" in page for limit in limits)


def test_a_page_judges_and_words_a_stored_table_anew(tmp_path, three_seeds):
    reproduce(toy(found), "quick", None, tmp_path)
    sharper = replace(toy(found, judge=lambda table: [("the mean is two", table["mean"][0] == 2.0)]), note="reworded")
    page = write_page(tmp_path, "quick", tmp_path / "all.md", [sharper]).read_text()
    assert "| the mean is two | yes |" in page and "reworded" in page and "made up" not in page


def test_unknown_names_and_scales_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be reproduced: choose one of encoders"):
        find_target("everything")
    with pytest.raises(InvalidInputError, match="scale='huge' is unknown"):
        reproduce(TARGETS["spectral"], "huge", None, tmp_path)
    with pytest.raises(InvalidInputError, match="there is no recipe for 'imagenet'"):
        recipe("imagenet", loss="simclr", scale="quick", seed=0)


def test_every_target_of_the_paper_is_there():
    wanted = "coverage init landmarks consistency alignment groups concept faithfulness scalability spectral samples"
    assert {*wanted.split(), "repulsive", "intervention"} <= TARGETS.keys()
    for target in TARGETS.values():
        assert target.paper is None or set(target.paper.columns) == {*target.keys, "paper"}


@pytest.mark.parametrize("scale", SCALES)
def test_recipes_are_settings_that_a_file_can_hold(scale, tmp_path):
    settings = recipe("mnist", loss="vicreg", scale=scale, seed=3)
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(settings.to_dict()))
    assert Settings.gather(path, {}) == settings and settings.loss == "vicreg" and settings.seed == 3


def test_an_encoder_is_trained_once_and_read_afterwards(tmp_path, monkeypatch):
    settings = Settings(data="digits", max_rows=100, epochs=1, encoder="mlp", encoder_options={"width": 8, "out": 4})
    monkeypatch.setattr("krepes.reproduce.trial.recipe", lambda data, **_: settings)
    scale = Scale(
        "quick", seeds=1, m=10, h=4, wide=5, test=15, rows=60, images=50, streamed=30, halves=2, retrainings=2
    )
    trial = Trial(scale, 0, None, tmp_path)
    first = trial.experiment("digits")
    monkeypatch.setattr("krepes.reproduce.trial.train_encoder", None)
    again = trial.experiment("digits")
    assert len(first.test) == 15 and len(first.labels[0]) == 80
    assert first.rows[1].tolist() != sorted(first.rows[1].tolist()), "the first rows of an ordered file are no sample"
    assert bool((first.encoder(first.test) == again.encoder(first.test)).all())
    other = replace(trial, seed=1).experiment("digits")
    assert sorted(other.rows[0].tolist()) == sorted(first.rows[0].tolist()), "the encoder saw the same rows"
    assert other.rows[0].tolist() != first.rows[0].tolist(), "another repetition is fitted on others of them"
    details = json.loads((tmp_path / "digits-barlow_twins-quick.json").read_text())
    assert details["settings"]["max_rows"] == 100 and len(list(tmp_path.iterdir())) == 2, "no checkpoint is left"
    weights = tmp_path / "digits-barlow_twins-quick.safetensors"
    assert {x.dtype for x in read_tensors(weights)[0].values()} == {torch.float16}
    weights.write_bytes(weights.read_bytes()[:-2] + b"ab")
    with pytest.raises(InvalidInputError, match="changed or damaged"):
        trial.experiment("digits")
    assert trial.fit(first).n_samples_ == 60 and trial.fit(first, rows=20).n_samples_ == 20
    assert trial.fit(first, objective="simclr").n_samples_ == 30


@pytest.fixture
def trainings(monkeypatch):
    """How often an encoder was trained; the third training is interrupted."""
    settings = Settings(data="digits", max_rows=60, epochs=1, encoder="mlp", encoder_options={"width": 8, "out": 4})
    monkeypatch.setattr("krepes.reproduce.trial.recipe", lambda data, loss, **_: replace(settings, loss=loss))
    monkeypatch.setattr("krepes.reproduce.base.commit_of_code", lambda: "abc")
    begun, train = [], trial_module.train_encoder

    def watched(settings, *rest, **options):
        begun.append(settings.training_loss)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return train(settings, *rest, **options)

    monkeypatch.setattr(trial_module, "train_encoder", watched)
    return begun


def of_an_encoder(loss):
    def run(trial):
        made = trial.experiment("digits", loss)
        return Findings(pd.DataFrame({"data": ["a"], "method": ["ours"], "value": [float(len(made.test))]}))

    return run


def test_a_call_with_retrain_trains_once_for_all_that_it_runs_and_anew_in_the_next(tmp_path, three_seeds, trainings):
    first, other = toy(of_an_encoder("barlow_twins")), replace(toy(of_an_encoder("vicreg")), name="other")
    reproduce(first, "quick", None, tmp_path)
    reproduce(first, "quick", None, tmp_path, retrain=True)
    assert trainings == ["barlow_twins"] * 2, "once for three seeds, though an earlier call had trained it"
    ends = [begin(target, "quick", None, tmp_path, retrain=True) for target in (first, other)]
    with pytest.raises(KeyboardInterrupt):
        ends[0]()
    ends = [begin(target, "quick", None, tmp_path, retrain=True) for target in (first, other)]
    for end in ends:
        end()
    assert trainings[2:] == ["barlow_twins", "barlow_twins", "vicreg"], "the third was interrupted, and is done again"
    begin(other, "quick", None, tmp_path, retrain=True)()
    assert len(trainings) == 5, "the call has not ended: it shares what it has trained"
    folders = {path.name: path for path in (tmp_path / "encoders-retrained").iterdir()}
    assert set(folders) == {"1", "2"} and (folders["2"] / "unfinished").read_text() == "abc"
    end_retraining(tmp_path)
    reproduce(other, "quick", None, tmp_path, retrain=True)
    assert trainings[5:] == ["vicreg"] and not list(tmp_path.rglob("unfinished"))


def test_retrain_helps_where_a_file_is_damaged(tmp_path, three_seeds, trainings):
    scale = SCALES["quick"]
    for folder, retrain in ((tmp_path / "encoders", False), (tmp_path / "own", True)):
        trial = Trial(scale, 0, None, folder, retrain=retrain)
        trainings.clear()
        trial.experiment("digits", "vicreg")
        weights = folder / "digits-vicreg-quick.safetensors"
        weights.write_bytes(weights.read_bytes()[:-2] + b"ab")
        if not retrain:
            with pytest.raises(InvalidInputError, match="or pass --retrain"):
                trial.experiment("digits", "vicreg")
            continue
        trial.experiment("digits", "vicreg")
        trial.experiment("digits", "vicreg")
        assert trainings == ["vicreg"] * 2


def test_models_that_share_a_kernel_are_probed_over_the_same_rows(tmp_path, monkeypatch):
    settings = Settings(data="digits", max_rows=200, epochs=1, encoder="mlp", encoder_options={"width": 8, "out": 4})
    monkeypatch.setattr("krepes.reproduce.trial.recipe", lambda data, **_: settings)
    scale = Scale("quick", seeds=1, test=30, streamed=30, **SIZES)
    trial = Trial(scale, 0, None, tmp_path)
    made = trial.experiment("digits")
    first, other = trial.fit(made), trial.fit(made, landmarks="uniform")
    again = trial.fit(made, objective="vicreg")  # another pass over the same landmarks
    models, asked = [first, other, first.refit(objective="vicreg"), again, first.refit(h=2)], []
    rows = Krepes.model_rows
    monkeypatch.setattr(Krepes, "model_rows", lambda self, X: asked.append(len(X)) or rows(self, X))
    accuracy = ModelProbe(made, 100)
    found = [accuracy(model) for model in models]
    assert asked == [100, 30, 100, 30], "once for each of two kernels"
    train, test = made.train(100), made.test
    expected = [probe(m.embed(train), made.labels[0][:100], m.embed(test), made.labels[1]) for m in models]
    assert found == expected and len(set(found)) > 1


def test_markdown_keeps_rows_apart():
    assert markdown(pd.DataFrame({"x": [1.23456], "y": ["|b|"]})) == "| x | y |\n| --- | --- |\n| 1.23 | \\|b\\| |\n"


def test_one_seed_has_no_spread(tmp_path, monkeypatch):
    scale = Scale(
        "quick", seeds=1, m=10, h=4, wide=5, test=20, rows=60, images=50, streamed=50, halves=2, retrainings=2
    )
    monkeypatch.setitem(SCALES, "quick", scale)
    reproduce(toy(found), "quick", None, tmp_path)
    assert "| a | 1 (0.5) | 0.25 |" in (tmp_path / "toy-quick.md").read_text()


def test_a_wide_table_keeps_order_and_marks_what_is_missing():
    rows = [("b", "y", 1.0), ("b", "x", 2.0), ("a", "y", 3.0)]
    table = pd.DataFrame(rows, columns=["data", "method", "mean"]).assign(spread=float("nan"))
    found = wide(table, ["data", "method"], "method")
    assert found.columns.tolist() == ["data", "y", "x"]
    assert found.to_numpy().tolist() == [["b", "1", "2"], ["a", "3", "–"]]


@pytest.mark.realdata
@pytest.mark.skipif("KREPES_DATA" not in os.environ, reason="KREPES_DATA names no data folder")
@pytest.mark.parametrize("name", TARGETS)
def test_quick_reproductions_run_and_carry_their_baselines(name, tmp_path):
    table = reproduce(TARGETS[name], "quick", None, tmp_path)
    print("\n" + table.to_string(index=False))
    assert table["mean"].notna().all()
    if name == "consistency":
        assert {"influence", "latent cosine", "kernel", "random", "input distance"} <= set(table["method"])


def test_fewer_seeds_and_some_data_are_said_over_the_table(tmp_path, three_seeds):
    def run(trial):
        values = {"value": [0.5], "low": [0.4], "high": [0.6]}
        return Findings(pd.DataFrame({"data": [trial.only[0]], "method": ["ours"], **values}))

    studies = replace(toy(run), data=("a", "b"), studies=True)
    reproduce(studies, "quick", None, tmp_path, seeds=1, only=["b"])
    page = (tmp_path / "toy-quick.md").read_text()
    assert "`krepes reproduce toy --scale quick --seeds 1 --only b`" in page and "| b | 0.5 [0.40, 0.60] |" in page
    reproduce(studies, "quick", None, tmp_path, seeds=1, only=["a"])
    page = (tmp_path / "toy-quick.md").read_text()
    assert "--only a`" in page and "--only b`" in page and page.count("0.5 [0.40, 0.60]") == 2, "studies add up"
    other = replace(studies, run=lambda trial: Findings(run(trial).rows.assign(value=0.7)))
    reproduce(other, "quick", None, tmp_path, seeds=2, only=["b"])
    page = (tmp_path / "toy-quick.md").read_text()
    assert "| a | 0.5 [0.40, 0.60] (0.5) |\n| b | 0.7 ± 0 |" in page, "a study that runs again replaces itself"
    assert page.count("--only b`") == 1 and "--seeds 2 --only b`" in page
    helped = replace(studies, run=lambda trial: replace(run(trial), kept=True))
    reproduce(helped, "quick", None, tmp_path / "other", seeds=1, only=["b"])  # where no part of the commit is kept
    assert "core minutes beside what an earlier call had kept" in (tmp_path / "other" / "toy-quick.md").read_text()
    with pytest.raises(InvalidInputError, match="--only c: toy takes a, b there"):
        reproduce(studies, "quick", None, tmp_path, only=["c"])
    with pytest.raises(InvalidInputError, match="--only a: toy takes none there"):
        reproduce(replace(studies, studies=False), "quick", None, tmp_path, only=["a"])
    with pytest.raises(InvalidInputError, match="--without slow: toy takes quick there"):
        reproduce(replace(studies, optional=("quick",)), "quick", None, tmp_path, only=["a"], without=["slow"])
    with pytest.raises(InvalidInputError, match="seeds=0"):
        reproduce(studies, "quick", None, tmp_path, seeds=0)


def test_the_page_in_the_documents_is_what_its_results_say():
    """No figure or verdict of it was written by hand: what was measured lies beside it, and the code tells it."""
    page = REPOSITORY.parent / "docs" / "reproduction.md"
    beside = page.with_suffix("")
    results = {name: measured.read(beside / f"{name}-standard.json") for name in TARGETS}
    found = {name: result for name, result in results.items() if result is not None}
    text = page.read_text()
    assert text == told(found, list(TARGETS.values()), beside.name), "krepes reproduce page --scale standard"
    assert {path.name for path in beside.glob("*-standard*.png")} == set(
        re.findall(r"\(reproduction/(.*\.png)\)", text)
    )


def test_stored_encoders_are_small_whole_and_made_by_the_recipes_of_today():
    weights = sorted(REPOSITORY.glob("*.safetensors"))
    assert sum(path.stat().st_size for path in weights) < 10 * 2**20
    assert {path.stem for path in REPOSITORY.glob("*.json")} == {path.stem for path in weights}
    for path in weights:
        details = json.loads(path.with_suffix(".json").read_text())
        assert hashlib.sha256(path.read_bytes()).hexdigest() == details["sha256"], path.name
        data, loss, scale = path.stem.split("-")
        assert Settings.from_dict(details["settings"]) == recipe(data, loss=loss, scale=scale, seed=0), path.name
