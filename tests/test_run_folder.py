"""A run folder is data: written whole or not at all, by one writer, over nothing that is not ours; it runs nothing."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from krepes.errors import InvalidInputError, RunFolderError
from krepes.runs import store
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.place import claimed
from krepes.runs.settings import Settings
from krepes.runs.signing import sign_run, verify_run
from krepes.runs.training import pretrain_run

SMALL = {"m": 15, "h": 4, "epochs": 1, "kernel": "rbf"}


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame({
        "who": [f"p{i}" for i in range(n)],
        "sex": rng.choice(["F", "M"], n),
        "age": rng.integers(18, 80, n),
        "pay": rng.normal(size=n).round(3),
        "rich": rng.choice(["yes", "no"], n),
    })
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def chosen(table, **changes):
    return Settings(**{"data": str(table), "id_column": "who", "label": "rich", **SMALL, **changes})


@pytest.fixture
def run(table, tmp_path):
    fit(chosen(table), tmp_path / "run", progress=False)
    return tmp_path / "run"


def content(folder):
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file() and path.name != ".lock"
    }


# Where it may be written


def test_a_folder_that_is_not_ours_is_never_touched(table, tmp_path):
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "manifest.json").write_text("{}")
    (precious / "chapter1.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match="not a run folder of ours"):
        fit(chosen(table), precious, progress=False)
    assert content(precious) == {"manifest.json": b"{}", "chapter1.tex": b"years of work"}


def test_foreign_files_in_a_run_survive_its_replacement(run, table):
    (run / "notes.txt").write_text("mine")
    before = set(content(run))
    fit(chosen(table, seed=1), run, progress=False)
    after = content(run)
    assert after["notes.txt"] == b"mine"
    stale = {name for name in before if "-" in name and name != store.MARKER} - set(after)
    assert stale, "files of the run before are removed"
    assert open_run(run).settings.seed == 1


def test_a_link_to_a_folder_is_followed(table, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fit(chosen(table), tmp_path / "link", progress=False)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / store.MANIFEST).is_file()


def test_a_place_that_cannot_be_written_is_refused_before_the_data_are_read(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file|cannot be written"):
        fit(Settings(data="nowhere.csv"), tmp_path / "file" / "run", progress=False)


def test_two_writers_are_kept_apart(table, tmp_path):
    with claimed(tmp_path / "run", {}), pytest.raises(RunFolderError, match="another process is writing"):
        fit(chosen(table), tmp_path / "run", progress=False)


def test_the_same_fit_gives_the_same_bytes(table, tmp_path):
    for name in ("a", "b"):
        fit(chosen(table), tmp_path / name, progress=False)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_pretrain_refuses_a_file_that_it_did_not_write(table, tmp_path):
    out = tmp_path / "thesis.pdf"
    out.write_bytes(b"years of work")
    with pytest.raises(RunFolderError, match="was not written by krepes"):
        pretrain_run(chosen(table, kernel="auto"), out, progress=False)
    assert out.read_bytes() == b"years of work"


def test_a_finished_training_is_not_trained_again(table, tmp_path):
    out = tmp_path / "mlp.safetensors"
    assert pretrain_run(chosen(table, kernel="auto"), out, progress=False)[1] is False
    before = out.read_bytes()
    assert pretrain_run(chosen(table, kernel="auto"), out, progress=False)[1] is True
    assert out.read_bytes() == before


# What opening it does not do


CANARY = """
import pathlib
pathlib.Path("canary").write_text("executed")
from torch import nn
def net():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A run with an encoder of the user's, whose module leaves a canary when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynets.py").write_text(CANARY)
    sys.modules.pop("mynets", None)  # a test before this one may have imported its own
    np.save("x.npy", np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32))
    fit(Settings(data="x.npy", encoder="mynets:net", m=10, h=3, epochs=1), "own", progress=False)
    (tmp_path / "canary").unlink()
    sys.modules.pop("mynets")
    return tmp_path / "own"


def test_opening_a_run_imports_nothing_that_it_names(own, tmp_path):
    with pytest.raises(InvalidInputError, match=r"'mynets:net'.* --trust-code"):
        open_run(own)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("named", [{"encoder": "mynets:net"}, {"trust_code": True}])
def test_code_runs_once_the_caller_names_it(own, tmp_path, named):
    assert open_run(own, **named).model.transform(torch.zeros(2, 5)).shape == (2, 3)
    assert (tmp_path / "canary").exists()


def test_an_encoder_can_be_handed_over_instead(own, tmp_path):
    module = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
    assert open_run(own, encoder=module).model.transform(torch.zeros(2, 5)).shape == (2, 3)
    assert not (tmp_path / "canary").exists()


def forge(run, change):
    """Change a manifest and make its hash right again, as somebody who wants to be believed would."""
    manifest = json.loads((run / store.MANIFEST).read_text())
    manifest.pop("run_sha256")
    change(manifest)
    (run / store.MANIFEST).write_text(json.dumps({**manifest, "run_sha256": store._digest(manifest)}))


def test_a_forged_run_that_names_a_shell_command_runs_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = json.loads(next(run.glob("settings-*.json")).read_text()) | {
        "encoder": "os:system",
        "encoder_options": {"command": "touch canary"},
    }
    data = json.dumps(settings).encode()
    weights = store._write(run, "encoder.safetensors", b"nothing")
    forge(run, lambda m: m["files"].update({"settings.json": store._write(run, "settings.json", data)}))
    forge(run, lambda m: m["files"].update({"encoder.safetensors": weights}))
    with pytest.raises(InvalidInputError, match="'os:system'"):
        open_run(run)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("path", ["../people.csv", "/etc/passwd", "a/../../people.csv", "", "x/y/z", 7, None])
def test_paths_of_a_manifest_stay_inside(run, path):
    forge(run, lambda m: m["files"].update({"settings.json": {"file": path, "sha256": "0" * 64}}))
    with pytest.raises(RunFolderError, match="no file of a run"):
        open_run(run)


def test_a_link_out_of_the_folder_is_refused(run, tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (run / "settings-000000000000.json").symlink_to(tmp_path / "secret.json")
    entry = {"file": "settings-000000000000.json", "sha256": "0" * 64}
    forge(run, lambda m: m["files"].update({"settings.json": entry}))
    with pytest.raises(RunFolderError, match="leads outside"):
        open_run(run)


def test_any_changed_byte_is_noticed(run):
    for path in sorted(run.iterdir()):
        if path.name in {".lock", store.MARKER}:
            continue
        before = path.read_bytes()
        path.write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
        with pytest.raises(RunFolderError):
            open_run(run)
        path.write_bytes(before)
    open_run(run)


def test_a_manifest_that_was_edited_by_hand_is_refused(run):
    manifest = json.loads((run / store.MANIFEST).read_text())
    manifest["landmark_ids"][0] = "somebody else"
    (run / store.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match="was altered"):
        open_run(run)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": 2}', '{"format": 99, "files": {}}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(run, text):
    (run / store.MANIFEST).write_text(text)
    with pytest.raises(RunFolderError):
        open_run(run)


def test_a_signature_names_its_maker_and_breaks_with_the_run(run, tmp_path):
    pytest.importorskip("cryptography")
    public = sign_run(run, tmp_path / "mine.pem")
    assert os.stat(tmp_path / "mine.pem").st_mode & 0o077 == 0
    assert "signed it" in verify_run(run, public)
    sign_run(run, tmp_path / "other.pem")
    with pytest.raises(RunFolderError, match="was not signed by the owner"):
        verify_run(run, public)
    forge(run, lambda m: m.update(seed=3))
    with pytest.raises(RunFolderError, match="was not signed by the owner"):
        verify_run(run, tmp_path / "other.pem.pub")


# Bound to its data


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda f: f.sample(frac=1, random_state=0), "another order"),
        (lambda f: f.assign(pay=f["pay"].where(f.index != 7, 9.0)), r"1 samples differ in pay; .* sample 7, id p7"),
        (lambda f: f.assign(rich=f["rich"].where(f.index != 9, "maybe")), "differ in rich; .* id p9"),
        (lambda f: f.assign(who=f["who"].where(f.index != 3, "px")), r"differ in \(ids\), who"),
        (lambda f: f.iloc[:-1], "119 samples, the run was fitted with 120"),
        (lambda f: f.assign(extra=1), "columns extra are new"),
        (lambda f: f.drop(columns="pay"), "columns pay are gone"),
    ],
)
def test_changed_data_are_refused_with_the_first_difference(run, table, edit, words):
    edit(pd.read_csv(table)).to_csv(table, index=False)
    with pytest.raises(InvalidInputError, match=words):
        open_run(run)


def test_changed_data_are_answered_when_asked_for_and_every_output_says_so(run, table):
    frame = pd.read_csv(table)
    frame.assign(pay=frame["pay"].where(frame.index != 7, 9.0)).to_csv(table, index=False)
    space = open_run(run, allow_changed_data=True)
    assert len(space.notes) == 1 and "THE DATA WERE CHANGED" in space.notes[0]


def test_samples_of_a_new_file_are_explained_beside_the_data_of_the_fit(run, table, tmp_path):
    new = pd.DataFrame({"who": ["n1", "n2"], "sex": ["F", "X"], "age": [30, 40], "pay": [0.1, 0.2]})
    new.to_csv(tmp_path / "new.csv", index=False)
    space = open_run(run, data=str(tmp_path / "new.csv"))
    assert list(space.test_ids) == ["n1", "n2"] and len(space.train) == 96
    assert space.model.transform(space.samples(["n2"])).shape == (1, 4)
    assert "not the data of the fit" in space.notes[0]


def test_a_moved_file_is_the_same_data(run, table, tmp_path):
    table.rename(tmp_path / "moved.csv")
    space = open_run(run, data=str(tmp_path / "moved.csv"))
    assert space.notes == () and len(space.test) == 24


def test_the_split_is_read_from_the_run(run):
    """Another seed in the settings would draw another split: the stored one counts."""
    first = open_run(run)
    settings = json.loads(next(run.glob("settings-*.json")).read_text()) | {"seed": 5}
    entry = store._write(run, "settings.json", json.dumps(settings).encode())
    forge(run, lambda m: m["files"].update({"settings.json": entry}))
    again = open_run(run)
    assert torch.equal(first.train, again.train) and torch.equal(first.test, again.test)


def test_a_run_is_opened_without_encoding_the_whole_table(run, monkeypatch):
    from krepes.data.tabular import TabularEncoder

    encoded = []
    plain = TabularEncoder.transform
    monkeypatch.setattr(
        TabularEncoder, "transform", lambda self, frame: encoded.append(len(frame)) or plain(self, frame)
    )
    read = []
    monkeypatch.setattr("krepes.runs.dataset.read_table", lambda *a, **k: read.append(1) or pd.read_csv(a[0]))
    space = open_run(run)
    before = sum(encoded)
    space.samples(["p3"])
    assert len(read) == 1 and sum(encoded) - before in {0, 1}


# Killed and called again


def test_a_killed_fit_goes_on_and_ends_with_the_same_bytes(table, tmp_path):
    """The process dies in the middle of training on the spot, and again in the middle of the pass."""
    script = textwrap.dedent("""
        import os, sys
        from krepes.runs import fitting
        from krepes.runs.settings import Settings
        from krepes.encoders import training
        import torch
        torch.set_num_threads(1)
        settings = Settings(data=sys.argv[1], id_column="who", m=15, h=4, epochs=4, save_every=1, batch_size=16)
        if sys.argv[3] == "train":
            save, times = training.Training.save, []
            def dying(self, path):
                save(self, path); times.append(1)
                if len(times) == 2: os._exit(9)
            training.Training.save = dying
        else:
            fitting.Krepes.save = lambda *a, **k: os._exit(9)
        fitting.fit(settings, sys.argv[2], progress=False)
    """)
    run_it = [sys.executable, "-c", script, str(table)]
    for when in ("train", "commit"):
        assert subprocess.run([*run_it, str(tmp_path / "killed"), when]).returncode == 9
        assert not (tmp_path / "killed" / store.MANIFEST).exists()
        with pytest.raises(RunFolderError, match="unfinished run"):
            open_run(tmp_path / "killed")
    settings = Settings(data=str(table), id_column="who", m=15, h=4, epochs=4, save_every=1, batch_size=16)
    for name in ("killed", "calm"):
        fit(settings, tmp_path / name, progress=False)
    assert content(tmp_path / "killed") == content(tmp_path / "calm")


# A disk that fails


@pytest.mark.parametrize(
    "call", ["os.fsync", "os.replace", "pathlib.Path.replace", "pathlib.Path.write_bytes", "os.open"]
)
@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_write_that_fails_leaves_the_old_run_or_the_new_one(run, table, monkeypatch, call, after):
    """Whatever call of the system fails, and whenever: the folder opens, and holds one run whole."""
    module, _, name = call.rpartition(".")
    owner = {"os": os, "pathlib.Path": Path}[module]
    real, calls = getattr(owner, name), []

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) > after:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    space = open_run(run)
    before = space.settings.seed
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        try:
            fit(chosen(table, seed=1), run, progress=False)
        except (RunFolderError, InvalidInputError, OSError):
            pass
    assert open_run(run).settings.seed in {before, 1}
    assert not [path for path in run.rglob("*.tmp")] or call in {"os.open"}
