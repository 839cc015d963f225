"""A fit shared by several processes is the fit of one: same landmarks, coefficients to 1e-9, whoever looks at it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.sharing import fitted

from krepes.cli.app import main
from krepes.engine.together import Span
from krepes.processes import Processes, current, started_by_torchrun
from krepes.storage.tensorfile import read_tensors
from krepes.views import GaussianNoise, ViewStream

HERE = Path(__file__).parent


def torchrun(count, *program, timeout=120):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--", *map(str, program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE.parent)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_processes_find_what_one_finds(count, tmp_path):
    done = torchrun(count, HERE / "sharing.py", tmp_path)
    assert done.returncode == 0, done.stderr
    for objective, kind in (("barlow_twins", "exact"), ("simclr", "sketch"), ("kae", "exact")):
        alone = fitted(objective, kind)
        found = [read_tensors(tmp_path / f"{objective}-{rank}.safetensors") for rank in range(count)]
        for tensors, details in found:
            assert details["n"] == count and torch.equal(tensors["landmarks"], alone.landmarks_)
            assert torch.equal(tensors["theta"], found[0][0]["theta"]), "every process has the same bytes"
            gap = (tensors["theta"] - alone.solution_.theta).abs().max() / alone.solution_.theta.abs().max()
            # Rows of a row objective are kept in float32 by one process as by several: its sums alone differ.
            assert gap < 1e-9


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
    monkeypatch.setattr(sys, "argv", ["krepes", "explain", "run"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "krepes explain runs in one process, and torchrun started 2" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_killed_process_is_started_again_and_changes_nothing(seed, tmp_path):
    krepes = str(shutil.which("krepes", path=str(Path(sys.executable).parent)))
    fit = [
        "fit",
        "applicants",
        "--label",
        "group",
        "--epochs",
        "2",
        "--m",
        "60",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3", "--"]
    running = subprocess.Popen([*command, krepes, *fit], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(8 + 12 * random.Random(seed).random())
    found = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True).stdout.split()
    if found:
        os.kill(int(found[seed % len(found)]), signal.SIGKILL)
    _, said = running.communicate(timeout=600)
    assert running.returncode == 0, said
    again = torchrun(2, krepes, *fit[:-1], tmp_path / "whole", timeout=600)
    assert again.returncode == 0, again.stderr
    files = [json.loads((tmp_path / name / "manifest.json").read_text())["files"] for name in ("run", "whole")]
    assert files[0] == files[1], "the same names and hashes"


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
