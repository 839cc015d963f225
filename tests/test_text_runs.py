"""Runs of texts from the command line: fitted, asked, changed behind their back, and refused before any work."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.data.reviews import reviews
from krepes.data.sentences import read_sentences
from krepes.encoders import training
from krepes.errors import InvalidInputError
from krepes.report.blocks import Quotes
from krepes.report.desk import Desk
from krepes.report.sections.counterfactual import counterfactual
from krepes.runs.answers import study
from krepes.runs.dataset import open_dataset
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.settings import Settings

SMALL = {"epochs": 1, "m": 16, "h": 4, "encoder_options": {"width": 16, "out": 8}, "projector": (16,)}


def asked(*words):
    found = CliRunner().invoke(app, list(map(str, words)))
    return found.exit_code, found.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    table = reviews(90)
    table.loc[3, "review"] = "<script>alert(1)</script> *starred* \x1b[31mred\x1b[0m"
    table.to_csv(folder / "reviews.csv", index=False)
    settings = Settings(data=str(folder / "reviews.csv"), text_column="review", label="stars", **SMALL)
    fit(settings, folder / "run", progress=False)
    return folder


def test_explain_shows_sentences_and_marks_words(run):
    code, said = asked("explain", run / "run", "--row", 3, "--row", 5, "--top", 2)
    assert code == 0 and "agree" in said and "*" in said and "\x1b[31m" not in said and "\\x1b[31m" in said
    code, said = asked("explain", run / "run", "--row", 5, "--top", 1, "--json")
    found = json.loads(said)
    table = pd.read_csv(run / "reviews.csv")
    landmark = found["landmarks"][0]
    assert found["samples"]["5"].replace("*", "") == table["review"][5]
    assert landmark["text"].replace("*", "").rstrip("…") in table["review"][landmark["landmark"]]


def test_influence_by_every_rung_answers_in_sentences(run, monkeypatch):
    monkeypatch.setattr("krepes.influence.rewind.REWINDS", 1)
    for method in ("surrogate", "warm"):
        code, said = asked(
            "influence", run / "run", "--row", 5, "--row", 6, "--top", 1, "--method", method, "--json", "--quiet"
        )
        assert code == 0, said
        found = json.loads(said)
        first = found["raises"][0]
        texts = pd.read_csv(run / "reviews.csv")["review"]
        assert first["text"].replace("*", "").strip("…") in texts[first["id"]]
        assert list(found["samples"]) == ["5", "6"] and "training rows agree" in found["marks"]
        asked_about = f"{texts[5]} {texts[6]}".lower()
        marks = [word for part in ("raises", "lowers") for row in found[part] for word in row["text"].split("*")[1::2]]
        assert marks and all(word in asked_about for mark in marks for word in mark.lower().split())
    code, said = asked("influence", run / "run", "--outcome", "margin 5", "--top", 1, "--quiet")
    assert code == 0 and "5: " in said and "*" in said
    code, said = asked("influence", run / "run", "--outcome", "group_distance paid", "--top", 1, "--quiet", "--json")
    assert code == 0 and "samples" not in json.loads(said) and "*" not in json.loads(said)["raises"][0]["text"]


def test_the_report_shows_the_rows_of_a_removal_in_words(run):
    removal = counterfactual(Desk(study(open_run(run / "run"), shown=4, k=2, method="surrogate")))
    quotes = [block for block in removal.blocks if isinstance(block, Quotes)]
    assert len(quotes) == 3 and {len(block.quotes) for block in quotes} == {4}
    assert [quote.lines[0] for quote in quotes[0].quotes[1:2]] == ["the landmark that attracts it most"]
    assert all("if removed" in quote.lines[0] for block in quotes for quote in block.quotes[2:])
    assert any(quote.text.words for block in quotes for quote in block.quotes[2:])


def test_columns_beside_the_texts_judge_and_choose(run):
    code, said = asked("whatif", run / "run", "--where", "paid == 'yes'", "--sets", 2, "--quiet")
    assert code == 0, said
    code, said = asked("audit", run / "run", "--group", "paid", "--only", "proxy", "--json")
    assert code == 0 and "paid was hidden" in said
    code, said = asked("explain", run / "run", "--row", 5, "--decision", "--top", 1)
    assert code == 0 and "text" in said


def test_changed_texts_are_noticed_and_new_ones_explained(run, tmp_path):
    table = pd.read_csv(run / "reviews.csv")
    table.head(4).to_csv(tmp_path / "new.csv", index=False)
    space = open_run(run / "run", data=str(tmp_path / "new.csv"))
    assert space.texts[1] == table["review"].head(4).tolist() and "not the data of the fit" in space.notes[0]
    settings = Settings(data=str(tmp_path / "t.csv"), text_column="review", **SMALL)
    table.to_csv(tmp_path / "t.csv", index=False)
    fit(settings, tmp_path / "run", progress=False)
    table.loc[7, "review"] += " Edited."
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InvalidInputError, match="1 samples differ in .samples.*id 7"):
        open_run(tmp_path / "run")


def test_files_of_texts_become_tables(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\r\n\r\n  \nzwei ü\n".encode())
    assert read_sentences(tmp_path / "a.txt")["text"].tolist() == ["one", "zwei ü"]
    lines = ['"one"', '{"text": "two", "tags": [1]}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert read_sentences(tmp_path / "a.jsonl")["text"].tolist() == ["one", "two"]
    dataset = open_dataset(Settings(data=str(tmp_path / "a.jsonl")))
    assert dataset.kind == "text" and dataset.names == ["tags"] and dataset.texts == ["one", "two"]
    for name, content, reason in (
        ("b.jsonl", "{oops", "line 1 is no JSON"),
        ("c.jsonl", "3", "line 1 holds '3'"),
        ("d.txt", " \n", "all its lines are blank"),
        ("e.txt", "a\0b", "NUL bytes"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidInputError, match=reason):
            read_sentences(tmp_path / name)
    (tmp_path / "f.txt").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(InvalidInputError, match="cannot be read as text|no text"):
        read_sentences(tmp_path / "f.txt")


WRONG = {
    "column": ({"text_column": "reviw"}, r"--text-column: .* Did you mean 'review'"),
    "numbers": ({"text_column": "stars"}, r"--text-column: column 'stars' .* not texts"),
    "kernel": ({"kernel": "rbf"}, r"--kernel: rbf compares numbers of the input"),
    "landmarks": ({"landmarks": "kmeans++"}, r"--landmarks: kmeans\+\+ compares"),
    "encoder": ({"encoder": "mlp"}, r"--encoder: mlp takes numbers or pixels"),
    "images' encoder": ({"encoder": "timm:resnet18"}, r"--encoder: timm:resnet18 takes images|not installed"),
    "noise": ({"augment": "noise"}, r"augment 'noise' takes numbers or pixels"),
    "crops": ({"augment": "crops"}, r"--augment crops"),
    "drop": ({"augment": "drop"}, r"--augment drop"),
    "option": ({"augment_options": {"drp": 0.1}}, r"Did you mean 'drop'"),
    "tokenizer": ({"tokenizer": "nowhere"}, r"--tokenizer: nowhere is no local folder"),
    "module": ({"tokenizer": "no_such_module:make"}, r"--tokenizer: no module"),
    "label": ({"label": "starz"}, r"--label: .* Did you mean 'stars'"),
    "exclude": ({"exclude": ("paid",)}, r"--exclude has no meaning for texts"),
    "dropout": (
        {"augment": "dropout", "encoder": "hf:folder"},
        r"--augment: dropout needs an encoder|not a local folder",
    ),
    "mean": ({"mean": (0.5,), "std": (0.5,)}, r"--mean has no meaning for texts"),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_go_with_texts_is_refused_before_any_work(run, tmp_path, monkeypatch, changed, message):
    monkeypatch.setattr(training.Training, "advance", lambda *_: pytest.fail("work was begun"))
    given = {"data": str(run / "reviews.csv"), "text_column": "review", **changed}
    with pytest.raises(InvalidInputError, match=message):
        fit(Settings(**given), tmp_path / "run", progress=False)


def test_other_data_refuse_what_is_for_texts(tmp_path, run):
    for given, message in (
        ({"data": "digits", "text_column": "review"}, r"--text-column: digits is no file"),
        ({"data": "digits", "augment": "words"}, r"augment 'words' takes texts"),
        ({"data": str(run / "reviews.csv"), "encoder": "text"}, r"--encoder: text takes texts"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fit(Settings(**given), tmp_path / "run", progress=False)


def test_a_run_does_not_import_the_tokenizer_that_it_names(run, tmp_path, monkeypatch):
    (tmp_path / "mytokens.py").write_text("from krepes.data import HashedTokenizer as make\nprint('imported')\n")
    monkeypatch.chdir(tmp_path)
    settings = {"data": str(run / "reviews.csv"), "text_column": "review", "tokenizer": "mytokens:make", **SMALL}
    fit(Settings(**settings), tmp_path / "run", progress=False)
    with pytest.raises(InvalidInputError, match="a tokenizer of its user's own, 'mytokens:make'"):
        open_run(tmp_path / "run")
    assert open_run(tmp_path / "run", trust_code=True).asked.kind == "text"
