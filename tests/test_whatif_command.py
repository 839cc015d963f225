"""``krepes whatif`` as a user meets it: which rows go, what moved, and everything that is refused before any work."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.errors import InvalidInputError
from krepes.influence import movement
from krepes.runs.opening import open_run
from krepes.runs.removal import chosen_rows

SMALL = ["--encoder", "mlp", *(f"--encoder-options={text}" for text in ("width=16", "depth=1", "out=8"))]
FIT = [
    "--id-column",
    "who",
    "--label",
    "rich",
    "-m",
    "20",
    "-h",
    "5",
    "--epochs",
    "1",
    "--quiet",
    *SMALL,
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 160
    frame = pd.DataFrame({
        "who": [f"p{i}" for i in range(n)],
        "sex": rng.choice(["F", "M"], n),
        "home country": rng.choice(["X", "Y", "Z"], n, p=[0.1, 0.6, 0.3]),
        "age": rng.integers(18, 80, n),
        "rich": rng.choice(["yes", "no"], n),
    })
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    return path


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def asked(*args):
    result = call(*args, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def run(table):
    folder = table.parent / "run"
    assert call("fit", table, "--out", folder, *FIT).exit_code == 0
    return folder


def test_a_condition_moves_samples_pairs_groups_and_audits(run, table, tmp_path):
    out = tmp_path / "moved.csv"
    condition = ["--where", "`home country` == 'X' and age >= 20", "--sets", "4", "--top", "3", "--out", out]
    found = asked("whatif", run, "--group", "sex", *condition)
    frame, space = pd.read_csv(table), open_run(run)
    meant = set(frame["who"][(frame["home country"] == "X") & (frame["age"] >= 20)])
    assert found["removed"] == len(meant & set(space.train_ids)) and found["trained"] == len(space.train)
    assert len(found["samples"]) == len(found["pairs"]) == 3 and found["groups"][0]["what"] == "sex: F from M"
    kinds = {row["what"].split(":")[0] for row in found["audits"]}
    assert kinds == {"features", "groups", "consistency", "spectrum"} and not found["missing"]
    assert all(0 <= row["random below"] <= 1 and row["random deviation"] >= 0 for row in found["audits"])
    model = space.model
    less = model.without(chosen_rows(space, where="`home country` == 'X' and age >= 20").places)
    before, after = model.embed(space.test_samples), less.embed(space.test_samples)
    moved = (after - before).norm(dim=1) / (before - before.mean(0)).square().sum(1).mean().sqrt()
    assert found["samples"][0]["what"] == str(space.test_ids[int(moved.argmax())])
    assert found["samples"][0]["change"] == pytest.approx(float(moved.max()), rel=1e-6)
    assert set(pd.read_csv(out)["table"]) == {"overall", "samples", "pairs", "groups", "audits"}


def test_ids_of_a_file_and_what_it_exported_before(run, tmp_path):
    space, ids = open_run(run), tmp_path / "ids.csv"
    some = [space.train_ids[i] for i in (3, 5, 9)]
    for frame in (
        pd.DataFrame({"who": some}),
        pd.DataFrame({"score": [1, 2, 3], "id": some}),
        pd.DataFrame({"first": [f"'{one}" for one in some], "b": 1}),
    ):
        frame.to_csv(ids, index=False)
        assert chosen_rows(space, remove=str(ids)).places.tolist() == [3, 5, 9]
    pd.DataFrame({"who": [*some, space.test_ids[0]]}).to_csv(ids, index=False)
    found = asked("whatif", run, "--remove", ids, "--method", "lazy", "--sets", "2")
    assert found["removed"] == 3 and "1 of the 4 rows are no training rows" in found["notes"][0]
    assert "surrogate" in found["missing"]["spectrum"] and "audits" not in found
    shown = call("whatif", run, "--remove", ids, "--sets", "2", "--quiet")
    assert shown.exit_code == 0 and "Without 3 of 128 training rows" in " ".join(shown.output.split())


def test_ids_are_what_is_written(run, tmp_path):
    ids = tmp_path / "ids.csv"
    ids.write_text("who,score\n007,1\nNA,2\n1.10,3\n12.0,4\n,5\n")
    data = SimpleNamespace(
        places={"007": 3, "NA": 5, "1.10": 7, "12": 9, "7": 11, "1.1": 13}, n=20, ids=["007"], name="x"
    )
    space = SimpleNamespace(settings=SimpleNamespace(id_column="who"), data=data, train=torch.arange(20))
    assert chosen_rows(space, remove=str(ids)).places.tolist() == [3, 5, 7, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of --remove"),
        (["--where", "age > 1", "--remove", "x.csv"], "exactly one of --remove"),
        (["--where", "__import__('os').system('touch owned')"], "--where: .* at character 11"),
        (["--where", "age > 1 or"], "at character 11"),
        (["--where", "aeg > 1"], "no column 'aeg'. Did you mean 'age'"),
        (["--where", "age > 100"], "holds for none of 160 rows"),
        (["--where", "age > 0"], "128 of 128 training rows would be removed"),
        (["--where", "age == 'old'"], "holds numbers"),
        (["--where", "age < 30", "--group", "sexx"], "--group: .* no column 'sexx'"),
        (["--where", "age < 30", "--method", "warm"], "--method: 'warm' is unknown"),
        (["--where", "age < 30", "--out", "/proc/nowhere/x.csv"], "--out"),
    ],
)
def test_refusals_come_before_any_work(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("krepes.model.Krepes.without_each", lambda *_, **__: pytest.fail("work was begun"))
    result = call("whatif", run, *arguments)
    assert isinstance(result.exception, Exception) and not list(tmp_path.iterdir())
    with pytest.raises(Exception, match=message):
        raise result.exception


def test_unknown_ids_are_named(run, tmp_path):
    ids = tmp_path / "ids.csv"
    pd.DataFrame({"who": ["p1", "nobody", "=cmd"]}).to_csv(ids, index=False)
    with pytest.raises(InvalidInputError, match="2 of 3 ids in column 'who' .* such as nobody, =cmd; ids look like p0"):
        chosen_rows(open_run(run), remove=str(ids))
    held = open_run(run).test_ids[:2]
    pd.DataFrame({"who": held}).to_csv(ids, index=False)
    with pytest.raises(InvalidInputError, match="none of them is one of the 128 training rows"):
        chosen_rows(open_run(run), remove=str(ids))


def test_objectives_of_kernel_rows_say_what_works(table, tmp_path):
    folder = tmp_path / "rows"
    assert call("fit", table, "--objective", "simclr", "--damping", "1", "--out", folder, *FIT).exit_code == 0
    result = call("whatif", folder, "--where", "age < 30")
    assert "'simclr' of this run is a function of kernel rows" in str(result.exception)
    assert "lazy cannot either" in str(result.exception)
    assert "'simclr' is no function" in str(call("whatif", folder, "--where", "age < 30", "--method", "lazy").exception)


def test_one_sample_has_no_spread(run, table, tmp_path):
    one = tmp_path / "one.csv"
    pd.read_csv(table).head(1).to_csv(one, index=False)
    result = call("whatif", run, "--where", "age < 30", "--data", one)
    assert "1 sample can be looked at" in str(result.exception)


def test_movement_of_planted_versions():
    whole = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = whole.clone()
    one[2] += 3.0
    noise = 1e-3 * torch.randn(5, 6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    Z = torch.stack([whole, one, *(whole + noise)])
    found = movement.samples(Z, list("abcdef"), 2)
    assert found["what"][0] == "c" and found["random below"][0] == 1 and found["change"][1] == 0
    assert "c" in movement.pairs(Z, list("abcdef"), 1)["what"][0]
    groups = movement.groups(Z, {"side": ["l", "l", "l", "r", "r", "r"], "all": ["x"] * 6, "own": list("abcdef")})
    assert groups["what"].tolist()[:2] == ["side: l from r", "own: a from others"]
    gap = (whole[:3].mean(0) - whole[3:].mean(0)).norm() / (whole - whole.mean(0)).square().sum(1).mean().sqrt()
    assert groups["before"][0] == pytest.approx(float(gap))
