"""A loss of the user's own on the command line: trained by, replayed, proved, and never imported without a word."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import krepes
from krepes.cli.app import app
from krepes.encoders.pretrain import chosen_loss
from krepes.errors import InvalidInputError, KrepesError
from krepes.runs import grid
from krepes.runs.fitting import fit
from krepes.runs.losses import code_named_by, code_of_loss, named_loss, require_loss
from krepes.runs.opening import open_run
from krepes.runs.queue import fit_part, merge_parts, shard_of
from krepes.runs.recipe import recipe_of
from krepes.runs.retraining import training_loss
from krepes.runs.settings import Settings
from krepes.runs.subject import run_subject
from krepes.runs.training import pretrain_run

CODE = """
import torch
from krepes.encoders.losses import barlow_twins

def twins(Z_a, Z_b, w=None, *, lam=0.0051):
    return barlow_twins(Z_a, Z_b, w, lam=lam)

def plain(Z_a, Z_b):
    return barlow_twins(Z_a, Z_b)

def alone(Z):
    return Z.sum()

def rows(Z_a, Z_b):
    return (Z_a - Z_b).square().sum(1)

def hot(Z_a, Z_b, w=None, *, temperature):
    return barlow_twins(Z_a, Z_b, w) / temperature

def broken(Z_a, Z_b):
    raise KeyError("inside")

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of losses and a table."""
    (tmp_path / "my_losses.py").write_text(CODE)
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b"], 64)
    frame = pd.DataFrame({f"x{k}": rng.normal(size=64) + (kind == "a") for k in range(4)}).assign(kind=kind)
    frame.round(4).to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    yield tmp_path
    sys.modules.pop("my_losses", None)


def chosen(**changes):
    small = {"encoder": "mlp", "encoder_options": {"width": 6, "depth": 1, "out": 3}, "projector": (4,), "epochs": 3}
    sizes = {"holdout": 0.4, "batch_size": 19, "m": 8, "h": 3, "exclude": ("kind",)}
    return Settings(**{"data": "rows.csv", "loss": "my_losses:twins", **small, **sizes, **changes})


def weights_of(folder):
    return open_run(folder, trust_code=True).model.kernel.state_dict()


def test_a_run_is_trained_by_the_function_that_was_named(own):
    fit(chosen(), own / "mine", progress=False)
    fit(chosen(loss="barlow_twins"), own / "theirs", progress=False)
    mine, theirs = (weights_of(own / name) for name in ("mine", "theirs"))
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    fit(chosen(loss_options={"lam": 0.5}), own / "other", progress=False)
    assert not all(torch.equal(value, theirs[name]) for name, value in weights_of(own / "other").items())


def test_opening_imports_nothing_without_trust(own):
    fit(chosen(), own / "run", progress=False)
    del sys.modules["my_losses"]
    with pytest.raises(InvalidInputError, match="loss of its user's own.*trust-code"):
        open_run(own / "run")
    assert "my_losses" not in sys.modules
    assert training_loss(open_run(own / "run", trust_code=True)).__name__ == "twins"


def test_every_rung_is_proved_as_with_the_named_loss(own):
    for name, loss in (("mine", "my_losses:twins"), ("theirs", "barlow_twins")):
        fit(chosen(loss=loss), own / name, progress=False)
    sizes = {"label": "kind", "halves": 3, "members": 2, "progress": False}
    mine = krepes.prove(own / "mine", trust_code=True, **sizes)
    theirs = krepes.prove(own / "theirs", **sizes)
    assert not mine.left_out
    for rung in ("warm", "replay", "surrogate"):
        for outcome in mine.outcomes:
            torch.testing.assert_close(mine.scores[rung].scores[outcome], theirs.scores[rung].scores[outcome])


def test_a_loss_without_weights_trains_and_says_why_nothing_can_be_replayed(own):
    fit(chosen(loss="my_losses:plain"), own / "run", progress=False)
    found = krepes.prove(own / "run", trust_code=True, label="kind", halves=3, members=2, progress=False)
    assert {"warm", "lazy", "replay 0"} <= set(found.left_out) and "takes no row weights" in found.left_out["warm"]
    assert "surrogate" in found.scores


def test_weights_name_no_code_to_a_fit_that_does_not(own, caplog):
    pretrain_run(chosen(), own / "weights.safetensors", progress=False)
    del sys.modules["my_losses"]
    given = {"weights": str(own / "weights.safetensors")}
    with pytest.raises(InvalidInputError, match="loss of its user's own, 'my_losses:twins'.*name the loss by --loss"):
        recipe_of(chosen(loss=None, **given))
    assert recipe_of(chosen(loss="vicreg", **given)) is None and "may not import" in caplog.text
    assert "my_losses" not in sys.modules
    assert recipe_of(chosen(**given)).settings.loss == "my_losses:twins"


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ("my_losses:alone", "cannot be called with two projections"),
        ("my_losses:number", "is a int"),
        ("my_losses:rows", r"returned a tensor of shape \(8,\)"),
        ("my_losses:broken", "failed on two projections of 8 rows and 4 columns"),
        ("my_losses:hot", "cannot be called with two projections.*temperature"),
        ("my_losses:none", "has no 'none'"),
        ("nowhere:twins", "no module 'nowhere'"),
        ("my losses:twins", "does not read 'module:name'"),
    ],
)
def test_what_is_no_loss_is_refused_in_words(own, loss, says):
    with pytest.raises(InvalidInputError, match=says):
        require_loss(chosen(loss=loss))


def test_an_option_that_a_loss_requires_is_passed(own):
    Z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    hot, twins = (require_loss(chosen(loss=f"my_losses:{name}", loss_options=options)) for name, options in (
        ("hot", {"temperature": 0.5}), ("twins", {})))  # fmt: skip
    torch.testing.assert_close(hot(Z, Z + 1), 2 * twins(Z, Z + 1))


def test_trainings_by_functions_of_one_name_are_told_apart(own):
    (own / "others.py").write_text(
        "from my_losses import *\n\ndef twins(Z_a, Z_b):\n    return (Z_a - Z_b).square().sum()"
    )
    pretrain_run(chosen(), own / "weights.safetensors", progress=False)
    with pytest.raises(KrepesError, match=r"my_losses:twins"):
        pretrain_run(chosen(loss="others:twins"), own / "weights.safetensors", progress=False)


def test_select_varies_an_option_of_an_own_loss(own):
    assert "lam" in grid._loss_options(chosen()) and "temperature" in grid._loss_options(chosen(loss="my_losses:hot"))


def test_a_changed_loss_is_another_subject(own):
    def details():
        sys.modules.pop("my_losses", None)
        return run_subject(open_run(own / "run", trust_code=True), "sha", "kind", seed=0).details()

    fit(chosen(), own / "run", progress=False)
    before = details()
    assert details() == before
    (own / "my_losses.py").write_text(CODE + "\nmore = 1\n")
    assert details() != before and len(code_of_loss(chosen())) == 64


def test_parts_of_a_queue_import_nothing_without_trust(own):
    pretrain_run(chosen(), own / "weights.safetensors", progress=False)
    settings = chosen(weights=str(own / "weights.safetensors"))
    for rank in (1, 2):
        fit_part(settings, own / f"part{rank}", shard_of(f"{rank}/2"), progress=False)
    del sys.modules["my_losses"]
    parts = [own / "part1", own / "part2"]
    with pytest.raises(InvalidInputError, match="code of their user's own, 'my_losses:twins'"):
        merge_parts(parts, own / "run", progress=False)
    assert "my_losses" not in sys.modules
    assert merge_parts(parts, own / "run", trust_code=True, progress=False).settings.loss == "my_losses:twins"


def test_code_is_named_by_encoder_and_loss():
    assert code_named_by(chosen()) == ["my_losses:twins"]
    both = chosen(loss="simclr", encoder="mine:net", encoder_options={})
    assert code_named_by(both) == ["mine:net"] and code_named_by(chosen(loss=None)) == []


def test_options_of_an_own_loss_are_those_it_takes_by_keyword(own):
    Z = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    loss = named_loss(chosen())
    assert chosen_loss(loss, {"lam": 1.0})(Z, Z + 1) != chosen_loss(loss, {})(Z, Z + 1)
    with pytest.raises(InvalidInputError, match=r"\['size'\] do not fit loss='my_losses:twins', which takes \['lam'\]"):
        chosen_loss(loss, {"size": 1})


def test_commands_take_it(own):
    flags = ["--loss", "my_losses:twins", "--epochs", "2", "--m", "8", "--h", "3", "--out", "run", "--quiet"]
    done = CliRunner().invoke(app, ["fit", "rows.csv", "--exclude", "kind", *flags])
    assert done.exit_code == 0, done.output
    ids = [str(id) for id in open_run(own / "run", trust_code=True).test_ids[:2]]
    asked = ["influence", "run", "--row", ids[0], "--row", ids[1], "--method", "lazy", "--json", "--quiet"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code != 0
    said = CliRunner().invoke(app, [*asked, "--trust-code"])
    assert json.loads(said.stdout)["method"] == "lazy"
