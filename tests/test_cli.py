"""The command line as a new user meets it: a mixed table, images, two questions, exit codes, clear errors."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from krepes.cli.app import app, main
from krepes.encoders import MLP, save_weights
from krepes.errors import InvalidInputError, RunFolderError
from krepes.runs import answers
from krepes.runs.augment import open_stream
from krepes.runs.dataset import open_dataset, split
from krepes.runs.opening import open_run
from krepes.runs.settings import Settings

SMALL = ["-m", "25", "-h", "6", "--epochs", "1", "--quiet"]


@pytest.fixture
def table(tmp_path):
    """A mixed schema with missing values, a constant column, ids and a label."""
    rng = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame({
        "who": [f"p{i}" for i in range(n)],
        "sex": rng.choice(["F", "M"], n),
        "school": rng.choice(["none", "some", None], n),
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 80, n)),
        "constant": 1,
        "rich": rng.choice(["yes", "no"], n),
    })
    path = tmp_path / "people.csv"
    frame.to_csv(path, index=False)
    return path


def invoke(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def run(table, tmp_path):
    folder = tmp_path / "run"
    invoke("fit", table, "--id-column", "who", "--label", "rich", "--out", folder, *SMALL)
    return folder


def test_fit_shows_the_schema_and_the_solve(table, tmp_path):
    output = invoke("fit", table, "--id-column", "who", "--label", "rich", "--out", tmp_path / "run", *SMALL)
    assert "categorical" in output and "constant" in output and "loss after" in output and "seconds" in output
    assert output.strip().splitlines()[-1].endswith("run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv", "run"]  # no work folder is left


def test_label_and_id_never_reach_the_encoder(run):
    columns = set(open_run(run).data.encoding.groups)
    assert columns == {"sex", "school", "age"}


def test_explain_names_the_users_own_rows(run):
    rows = json.loads(invoke("explain", run, "--row", "p17", "--top", "3", "--json"))["landmarks"]
    assert {row["sample"] for row in rows} == {"p17"} and all(row["landmark"].startswith("p") for row in rows)
    assert rows[0]["score"] >= rows[1]["score"] and rows[-1]["score"] < 0
    assert "attracts" in invoke("explain", run, "--row", "p17", "--top", "3")


def test_influence_answers_for_a_file_of_outcomes(run, tmp_path):
    file = tmp_path / "asked.txt"
    file.write_text("# two of them\npair p17 p42\n\npull p17 sex=F\n")
    asked = ("influence", run, "--outcomes", file, "--method", "lazy", "--draws", "1", "--quiet", "--top", "3")
    found = json.loads(invoke(*asked, "--json"))
    assert found["outcome"] == "each of 2 outcomes" and len(found["raises"]) == len(found["lowers"]) == 6
    names = ["similarity of p17 and p42", "pull of p17 towards sex=F"]
    assert [line["outcome"] for line in found["raises"]] == [name for name in names for _ in range(3)]
    file.write_text("pair p17 p42\npair p17\n")
    with pytest.raises(InvalidInputError, match="line 2: pair takes ID ID"):
        invoke(*asked)
    file.write_bytes(b"pair p17 \xff\n")
    with pytest.raises(InvalidInputError, match="cannot be read as text"):
        invoke(*asked)
    file.write_text("# nothing\n")
    with pytest.raises(InvalidInputError, match="names no outcome"):
        invoke(*asked)


def test_influence_answers_for_a_pair_and_for_a_group(run):
    pair = json.loads(invoke("influence", run, "--row", "p17", "--row", "p42", "--quiet", "--json"))
    assert pair["outcome"] == "similarity of p17 and p42"
    assert pair["raises"][0]["influence"] > 0 > pair["lowers"][0]["influence"]
    group = json.loads(invoke("influence", run, "--row", "p17", "--toward", "sex=F", "--quiet", "--json"))
    assert group["outcome"] == "pull of p17 towards sex=F"
    concept = json.loads(invoke("influence", run, "--row", "p17", "--toward", "concept:sex=F", "--quiet", "--json"))
    assert concept["outcome"] == "place of p17 along concept:sex=F" and concept["raises"][0]["influence"] > 0


def test_audit_carries_its_baselines(run):
    found = json.loads(invoke("audit", run, "--group", "sex", "--json"))
    for name in ("features", "groups", "consistency", "deletion"):
        methods = {row["method"] for row in found["audits"][name]["table"]}
        assert {"influence", "kernel", "random", "latent cosine"} <= methods, name
    assert set(found["missing"]) == {"proxy", "concepts"} and "--sensitive" in found["missing"]["proxy"]


def test_audits_look_at_a_part_of_very_many_samples_and_say_so(run, tmp_path, monkeypatch):
    whole = json.loads(invoke("audit", run, "--json"))
    assert whole["test samples"] == "48"
    monkeypatch.setattr(answers, "LOOKED_AT", 20)
    found = json.loads(invoke("audit", run, "--json"))
    assert found["test samples"] == "20 of 48, evenly spaced"
    figures = {row["measure"]: row["value"] for row in found["audits"]["trust"]["table"]}
    assert figures["test samples"] == 20
    assert "looked at: 20 of 48" in invoke("audit", run)
    invoke("report", run, "--out", tmp_path / "r.html", "--no-counterfactual")
    assert "20 of 48, evenly spaced" in (tmp_path / "r.html").read_text()


def test_report_from_data_in_one_command_with_other_seeds_and_all_of_it_as_json(table, tmp_path):
    out = tmp_path / "report.html"
    data = ["report", table, "--label", "rich", "--group", "sex", "--out", out, *SMALL, "--no-counterfactual"]
    output = invoke(*data, "--seeds", "2", "--json")
    told = json.loads(output[output.index("{") : output.rindex("}") + 1])["parts"][0]
    assert told["light"] in {"green", "amber", "red"} and len(told["findings"]) == 3
    assert "krepes explore" in str(told["next"]) and "--label" not in str(told["rules"])
    uses = {row["column"]: row["use"] for row in told["sections"][0]["said"][0]["rows"]}
    assert uses == {
        "who": "dropped",
        "sex": "seen",
        "school": "seen",
        "age": "seen",
        "constant": "dropped",
        "rich": "judging only",
    }
    page = out.read_text()
    assert page.startswith("<!") and "people.csv" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "findings stand in both runs" in page and "stable:" in page
    runs = tmp_path / "report" / "run", tmp_path / "report" / "seed-1"
    found = json.loads(invoke("diff", *runs, "--group", "sex", "--json"))
    assert found["runs"] == ["run", "seed-1"] and {row["stands"] for row in found["findings"]} <= {True, False}
    assert re.match(r"\d+ of \d+ findings? stand", invoke("diff", *runs, "--group", "sex"))


def test_runs_of_other_data_are_not_compared(run, table, tmp_path):
    other = tmp_path / "other.csv"
    pd.read_csv(table).rename(columns={"age": "years"}).to_csv(other, index=False)
    invoke("fit", other, "--id-column", "who", "--label", "rich", "--out", tmp_path / "second", *SMALL)
    with pytest.raises(InvalidInputError, match="Compare two runs of the same data"):
        invoke("diff", run, tmp_path / "second")


def test_audit_prints_the_light_then_one_line_each_and_the_rest_on_demand(run):
    lines = invoke("audit", run, "--group", "sex").splitlines()
    assert lines[0].startswith(("Green:", "Amber:", "Red:"))
    found = [line for line in lines if line[:4] in {"good", "look", "note"}]
    assert len(found) == 8 and all(line.endswith(".") for line in found)
    assert [line[:4] for line in found] == sorted((line[:4] for line in found), key=["look", "note", "good"].index)
    assert "shuffled" not in " ".join(found) and "shuffled" in invoke("audit", run, "--group", "sex", "--all")


def test_a_run_that_starts_at_the_encoder_is_explained_audited_and_reported(table, tmp_path):
    run, page, config = tmp_path / "run", tmp_path / "run.html", tmp_path / "start.toml"
    config.write_text('init = "encoder"\nobjective = "vicreg"\nid_column = "who"\nlabel = "rich"\n')
    invoke("fit", table, "--config", config, "--out", run, "-m", "25", "--epochs", "1", "--quiet")
    assert "attracts" in invoke("explain", run, "--row", "p17")
    assert "the encoder itself" in " ".join(invoke("audit", run, "--all").split())
    invoke("report", run, "--out", page, "--quiet", "--no-counterfactual")
    assert "start: encoder" in page.read_text()
    refused = CliRunner().invoke(app, ["influence", str(run), "--row", "p17", "--row", "p18", "--method", "surrogate"])
    assert isinstance(refused.exception, InvalidInputError)
    assert "--method surrogate: the influence of rows on VICReg" in str(refused.exception)


@pytest.mark.parametrize("flags", [["-h", "6"], ["--kernel", "rbf"], ["--objective", "kpca"]])
def test_a_start_at_the_encoder_that_cannot_be_is_refused_by_its_flag(flags, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["krepes", "fit", str(table), "--init", "encoder", *flags])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err
    assert (
        stopped.value.code == 2 and "--init" in error and flags[0].replace("-h", "--h").replace("----h", "--h") in error
    )


def test_settings_file_and_flags(table, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('id_column = "who"\nlabel = "rich"\nm = 20\nh = 5\nepochs = 1\nexclude = ["sex"]\n')
    invoke("fit", table, "--config", config, "--out", tmp_path / "run", "-h", "4", "--quiet")
    run = open_run(tmp_path / "run")
    assert run.model.A_.shape == (40, 4) and set(run.data.encoding.groups) == {"school", "age"}
    config.write_text("landmark = 3\n")
    with pytest.raises(InvalidInputError, match=r"run.toml, key 'landmark': .* Did you mean 'landmarks'"):
        Settings.gather(config, {"data": str(table)})


def test_select_names_the_winner(table, tmp_path):
    arguments = ["--over", "lam=0.001,0.1", "--kernel", "rbf", "-m", "20", "-h", "5", "--quiet", "--json"]
    result = json.loads(invoke("select", table, "--out", tmp_path / "grid", *arguments))
    assert result["winner"] in {0.001, 0.1} and len(result["curve"]) == 2


def test_pretrain_then_fit_with_the_weights(table, tmp_path):
    weights = tmp_path / "mlp.safetensors"
    invoke("pretrain", table, "--label", "rich", "--epochs", "1", "--out", weights, "--quiet")
    invoke("fit", table, "--label", "rich", "--encoder", "mlp", "--weights", weights, "--out", tmp_path / "run", *SMALL)
    assert list((tmp_path / "run").glob("encoder-*.safetensors"))


def test_row_objectives_keep_their_rows_for_influence(table, tmp_path):
    run = tmp_path / "run"
    invoke("fit", table, "--objective", "byol", "--kernel", "rbf", "--label", "rich", "--out", run, *SMALL)
    pair = json.loads(invoke("influence", run, "--row", "3", "--row", "4", "--quiet", "--json"))
    assert pair["raises"][0]["influence"] > 0


def test_a_folder_of_images_and_a_strip(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("dark", "light"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 100, (8, 8, 3)) + (120 if name == "light" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pictures" / name / f"{i}.png")
    run = tmp_path / "run"
    small = ["-m", "10", "-h", "3", "--epochs", "1", "--size", "8", "--quiet"]
    invoke("fit", tmp_path / "pictures", "--out", run, *small)
    row = open_run(run).data.ids[0]
    invoke("explain", run, "--row", row, "--top", "3", "--strip", tmp_path / "strip.png")
    assert Image.open(tmp_path / "strip.png").size[0] > 300


def test_arrays_and_a_users_own_encoder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynets.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))\n"
    )
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.normal(size=(200, 5)).astype(np.float32))
    invoke("fit", "x.npy", "--encoder", "mynets:net", "--out", "run", *SMALL)
    assert json.loads(invoke("explain", "run", "--row", "7", "--top", "2", "--encoder", "mynets:net", "--json"))


ERRORS = {
    "no such data": (["fit", "nowhere.csv"], "is no file, no folder and no data set"),
    "a file that is not read": (["fit", "ARCHIVE"], "its ending .npz is not read. What is read: tables .csv"),
    "no such row": (["explain", "RUN", "--row", "p999"], "there is no row 'p999' among the 240"),
    "one row": (["influence", "RUN", "--row", "p1"], "--row was given 1 times: pass it twice"),
    "no file of outcomes": (["influence", "RUN", "--outcomes", "none.txt"], "there is no file of this name"),
    "two kinds of outcomes": (
        ["influence", "RUN", "--outcomes", "a.txt", "--row", "p1"],
        "pass no --outcome, no --row",
    ),
    "no such group": (["influence", "RUN", "--row", "p1", "--toward", "sex=X"], "names 0 of 192 training samples"),
    "no such column": (["audit", "RUN", "--group", "race"], "has no column 'race'"),
    "not a run": (["explain", "nowhere", "--row", "1"], "there is no folder of this name"),
    "bad option": (["fit", "TABLE", "--objective-option", "lam"], "is not name=value"),
    "bad augmentation": (["fit", "TABLE", "--augment", "magic"], "--augment: 'magic' is unknown"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_leave_with_code_two_and_say_what_to_do(name, run, table, tmp_path, monkeypatch, capsys):
    arguments, words = ERRORS[name]
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 3)))
    named = {"RUN": str(run), "TABLE": str(table), "ARCHIVE": str(tmp_path / "x.npz")}
    monkeypatch.setattr("sys.argv", ["krepes", *[named.get(argument, argument) for argument in arguments]])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_moved_table_can_be_named_again(run, table, tmp_path):
    table.rename(tmp_path / "moved.csv")
    with pytest.raises(InvalidInputError, match="is no file"):
        open_run(run)
    assert json.loads(invoke("explain", run, "--row", "p3", "--data", tmp_path / "moved.csv", "--json"))


def test_a_run_with_other_weights_inside_is_refused(run):
    save_weights(MLP(6, out=8), next(run.glob("encoder-*.safetensors")))
    with pytest.raises(RunFolderError, match="the manifest says"):
        open_run(run)


def test_info_is_plain():
    values = json.loads(invoke("info", "--json"))
    assert values["torch"] == torch.__version__.split("+")[0] or values["torch"] == torch.__version__
    assert "barlow_twins" in values["objectives"]


def test_scales_and_categories_come_from_training_rows_alone(tmp_path):
    frame = pd.DataFrame({"x": np.arange(50.0), "c": ["a", "b"] * 25})
    settings = Settings(data=str(tmp_path / "t.csv"), holdout=0.2)
    train, test = split(50, Settings(data="x", holdout=0.2, seed=0))
    frame.loc[test.tolist(), "x"] += 1e6
    frame.loc[int(test[0]), "c"] = "only held out"
    frame.to_csv(settings.data, index=False)
    source = open_dataset(settings)
    assert float(source.samples[train, source.encoding.groups["x"][0]].mean().abs()) < 1e-5
    assert source.encoding.feature_names[-1] == "c=(unknown)" and float(source.samples[int(test[0]), -1]) == 1.0


def test_audits_compare_neither_ids_nor_labels(run):
    assert list(open_run(run).tables[0]) == ["sex", "school", "age", "constant"]


def test_a_corrupt_image_is_refused_by_name_or_skipped(tmp_path):
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(30):
        Image.fromarray(rng.integers(0, 255, (8, 8, 3)).astype(np.uint8)).save(tmp_path / "pictures" / f"{i}.png")
    (tmp_path / "pictures" / "broken.png").write_bytes(b"not a picture")
    settings = Settings(data=str(tmp_path / "pictures"), size=8)
    with pytest.raises(InvalidInputError, match=r"broken\.png"):
        open_dataset(settings)
    assert open_dataset(replace(settings, skip_broken=True)).n == 30


def test_training_rows_are_shuffled_so_that_batches_mix_classes():
    train, test = split(1000, Settings(data="x", holdout=0.2, seed=0))
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(1000))
    first = (train[:256] < 500).float().mean()
    assert 0.35 < float(first) < 0.65  # sorted data would give 1.0


def test_options_of_an_augmentation_reach_it_and_unknown_ones_are_refused():
    settings = Settings(data="digits", augment="crops", augment_options={"crop": 0.7})
    source = open_dataset(settings)
    assert "0.7" in str(open_stream(settings, source, torch.arange(20)).describe())
    with pytest.raises(InvalidInputError, match=r"\['blur'\] do not fit augment='crops', which takes \['crop'\]"):
        open_stream(replace(settings, augment_options={"blur": 1.0}), source, torch.arange(20))


def test_max_rows_limits_training_and_held_out_rows_together():
    train, test = split(1000, Settings(data="x", max_rows=50, holdout=0.2, seed=0))
    assert len(train) == 40 and len(test) == 10 and not set(train.tolist()) & set(test.tolist())
    with pytest.raises(InvalidInputError, match="max_rows"):
        Settings(data="x", max_rows=1)
