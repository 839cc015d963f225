"""A fit shared by several processes is the fit of one: same landmarks, coefficients to 1e-9, whoever looks at it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.sharing import FITS, TRAININGS, answered, fitted, trained

from krepes.cli.app import main
from krepes.engine.together import Span
from krepes.errors import InvalidInputError, RunFolderError
from krepes.processes import Processes, current, started_by_torchrun
from krepes.runs.fitting import fit
from krepes.runs.queue import fit_part, merge_parts, shard_of
from krepes.runs.settings import Settings
from krepes.runs.training import pretrain_run
from krepes.storage.tensorfile import read_tensors
from krepes.views import GaussianNoise, ViewStream

HERE = Path(__file__).parent


def torchrun(count, *program, timeout=120):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--", *map(str, program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE.parent)


def _require_same(alone, files):
    found = [read_tensors(file)[0] for file in files]
    for name, x in alone.items():
        for tensors in found:
            assert torch.equal(tensors[name], found[0][name]), f"{name}: every process has the same bytes"
            gap = (tensors[name] - x).abs().max()
            # Sums of squares leave out directions of rounding size, and rounding decides which.
            assert gap <= (1e-6 if name == "many" else 1e-9) * max(1.0, float(x.abs().max())), f"{name}: {gap}"


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_find_what_one_finds(count, tmp_path):
    done = torchrun(count, HERE / "sharing.py", tmp_path)
    assert done.returncode == 0, done.stderr
    for objective, kind in FITS:
        alone = fitted(objective, kind)
        if objective == "barlow_twins":
            _require_same(answered(alone), [tmp_path / f"answered-{rank}.safetensors" for rank in range(count)])
        found = [read_tensors(tmp_path / f"{objective}-{rank}.safetensors") for rank in range(count)]
        for tensors, details in found:
            assert details["n"] == count and torch.equal(tensors["landmarks"], alone.landmarks_)
            assert torch.equal(tensors["theta"], found[0][0]["theta"]), "every process has the same bytes"
            gap = (tensors["theta"] - alone.solution_.theta).abs().max() / alone.solution_.theta.abs().max()
            # Rows of a row objective are kept in float32 by one process as by several: its sums alone differ.
            assert gap < 1e-9
            for phase in ("reference", "selection", "pass"):
                looks, all_of_them = details["looks"][phase], alone.work_[phase].samples
                # Beside its part, a process prepares proposed landmarks, and batches of 64 do not divide evenly.
                assert looks <= all_of_them / count + 200, (objective, phase, looks, all_of_them)
    for loss in TRAININGS:
        alone = trained(loss, tmp_path / f"{loss}.alone")
        _require_same(alone, [tmp_path / f"trained-{loss}-{rank}.safetensors" for rank in range(count)])
        # AdamW does not see the size of a gradient, its moments do.
        _require_same(read_tensors(tmp_path / f"{loss}.alone")[0], [tmp_path / f"{loss}.checkpoint"])


def test_the_command_shares_a_fit_and_the_first_process_writes(tmp_path):
    krepes = shutil.which("krepes", path=str(Path(sys.executable).parent))
    if krepes is None:
        pytest.skip("the command is not installed beside this Python")
    options = ["applicants", "--label", "group", "--max-rows", "600", "--epochs", "1", "--m", "20", "--quiet"]
    done = torchrun(2, krepes, "fit", *options, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the fit") == 1
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["processes"] == 2


def test_other_commands_say_that_they_run_in_one_process(monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["krepes", "audit", "run"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "krepes audit runs in one process, and torchrun started 2" in " ".join(capsys.readouterr().err.split())


LATE = """
import os, signal, sys, time
from krepes.processes import connected
start, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
if (start, rank) == ("1", "1"):
    time.sleep(3)
with connected() as us:
    if (start, rank) == ("0", "1"):
        os.kill(os.getpid(), signal.SIGKILL)
    us.wait()
"""


@pytest.mark.slow
def test_a_process_that_starts_again_does_not_wait_for_the_lost_one(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--"]
    done = subprocess.run([*command, tmp_path / "late.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


APPLICANTS = ["fit", "applicants", "--label", "group", "--epochs", "2", "--m", "60", "--quiet", "--out"]


def _files(run):
    return json.loads((run / "manifest.json").read_text())["files"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run that nobody killed, and the seconds it took."""
    krepes, run = (
        shutil.which("krepes", path=str(Path(sys.executable).parent)),
        tmp_path_factory.mktemp("whole") / "run",
    )
    begun = time.perf_counter()
    done = torchrun(2, krepes, *APPLICANTS, run, timeout=600)
    assert done.returncode == 0, done.stderr
    return _files(run), time.perf_counter() - begun


def _workers(launcher):
    return subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True).stdout.split()


def _killed(command, wait, which):
    """Start a run, kill one of its two processes when they are so old, and return it; nothing if it was over."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(workers := _workers(running)) < 2 and running.poll() is None:
        time.sleep(0.1)
    time.sleep(wait)
    if not set(workers[which:][:1]) & set(_workers(running)):
        running.communicate(timeout=600)
        return None
    os.kill(int(workers[which]), signal.SIGKILL)
    return running


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_process_is_started_again_and_changes_nothing(seed, undisturbed, tmp_path):
    files, seconds = undisturbed
    krepes = str(shutil.which("krepes", path=str(Path(sys.executable).parent)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3", "--"]
    wait, running, run = 0.7 * seconds * random.Random(seed).random(), None, tmp_path / "run"
    while running is None:  # a machine that has become faster is over too soon: again, with less patience
        shutil.rmtree(run, ignore_errors=True)
        running, wait = _killed([*command, krepes, *APPLICANTS, str(run)], wait, seed % 2), 0.7 * wait
    _, said = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert _files(run) == files, "the same names and hashes"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_spans_cover_every_sample_once(count):
    stream = ViewStream(torch.zeros(50, 2), GaussianNoise(0.1), seed=0, batch_size=4)
    spans = [Span.of(stream, Processes(rank, count)) for rank in range(count)]
    seen = [index for span in spans for indices, _ in span for index in indices.tolist()]
    assert seen == list(range(50)) and [span.n for span in spans] == [
        sum(len(indices) for indices, _ in span) for span in spans
    ]
    whole = torch.cat([views for _, views in stream], dim=1)
    assert torch.equal(torch.cat([views for span in spans for _, views in span], dim=1), whole)


def test_a_process_is_alone_unless_torch_connects_it(monkeypatch):
    assert current() == Processes(0, 1) and current().first and current().share("x") == "x"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert started_by_torchrun() == 1, "another launcher's variable says nothing about us"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    assert started_by_torchrun() == 4


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "encoder.safetensors"
    pretrain_run(Settings(**DATA), path, progress=False)
    return str(path)


DATA = {
    "data": "applicants",
    "label": "group",
    "max_rows": 300,
    "epochs": 1,
    "m": 10,
    "h": 3,
    "encoder": "mlp",
    "damping": 0.1,
    "batch_size": 32,
}


@pytest.mark.parametrize("objective", ["barlow_twins", "simclr"])
def test_parts_of_a_queue_add_up_to_the_fit(objective, weights, tmp_path):
    settings = Settings(**DATA, objective=objective, weights=weights)
    places = [tmp_path / f"part{number}" for number in (1, 2, 3)]
    for number, place in enumerate(places, 1):
        fit_part(settings, place, shard_of(f"{number}/3"), progress=False)
    with pytest.raises(RunFolderError, match="1 of 3 parts are missing: 2/3"):
        merge_parts([places[0], places[2]], tmp_path / "run", progress=False)
    merged = merge_parts(places[::-1], tmp_path / "run", progress=False).model
    alone = fit(settings, tmp_path / "alone", progress=False).model
    assert torch.equal(merged.landmarks_, alone.landmarks_) and merged.processes_ == 3
    gap = (merged.solution_.theta - alone.solution_.theta).abs().max() / alone.solution_.theta.abs().max()
    assert gap < 1e-9
    if objective == "simclr":
        rows, own = (torch.cat(list(model.data_.batches(100)), 1) for model in (merged, alone))
        assert torch.equal(rows, own), "the rows of every part, in the order of the stream"
    assert merge_parts(places, tmp_path / "again", progress=False).model.n_samples_ == alone.n_samples_, "parts stay"


def test_parts_of_other_fits_and_trainings_in_every_job_are_refused(weights, tmp_path):
    settings = Settings(**DATA, weights=weights)
    fit_part(settings, tmp_path / "a", shard_of("1/2"), progress=False)
    fit_part(replace(settings, h=2), tmp_path / "b", shard_of("2/2"), progress=False)
    with pytest.raises(RunFolderError, match="parts of different fits: their settings differ"):
        merge_parts([tmp_path / "a", tmp_path / "b"], tmp_path / "run", progress=False)
    with pytest.raises(RunFolderError, match="no finished part of a fit"):
        merge_parts([tmp_path], tmp_path / "run", progress=False)
    with pytest.raises(InvalidInputError, match="every job would train one"):
        fit_part(Settings(**DATA), tmp_path / "c", shard_of("1/2"), progress=False)


@pytest.mark.parametrize("text", ["", "2", "0/2", "3/2", "a/b", "1/2/3", "-1/2"])
def test_a_shard_is_two_numbers(text):
    with pytest.raises(InvalidInputError, match="two numbers are wanted, such as 2/8"):
        shard_of(text)
