"""``krepes curate``: outcomes by name, proposals that keep to their direction, and retraining that judges them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from krepes.cli.app import app
from krepes.encoders import MLP, save_weights
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import InvalidInputError
from krepes.influence import influence_of
from krepes.influence.measures import class_margin, relative_group_distance
from krepes.runs import verification
from krepes.runs.answers import study
from krepes.runs.curation import direction_of, drop_count, propose
from krepes.runs.opening import open_run
from krepes.runs.outcomes import named_outcome
from krepes.runs.removal import chosen_rows
from krepes.runs.retraining import how_to_replay, retrained
from krepes.runs.verification import (
    ALL,
    ASKED,
    FRESH,
    PROPOSED,
    RANDOM,
    summed_up,
    verify_removal,
)

SMALL = ["--encoder", "mlp", *(f"--encoder-options={text}" for text in ("width=16", "depth=1", "out=8"))]
FIT = [
    "--id-column",
    "who",
    "--label",
    "rich",
    "-m",
    "15",
    "-h",
    "4",
    "--epochs",
    "1",
    "--quiet",
    *SMALL,
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 120
    sex = rng.choice(["F", "M"], n)
    frame = pd.DataFrame({
        "who": [f"=p {i}" for i in range(n)],
        "sex": sex,
        "height": np.where(sex == "F", 165, 178) + 8 * rng.standard_normal(n),
        "age": rng.integers(18, 80, n),
        "rich": rng.choice(["yes", "no"], n),
    })
    path = tmp_path_factory.mktemp("data") / "people.csv"
    frame.to_csv(path, index=False)
    return path


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def run(table):
    folder = table.parent / "run"
    assert call("fit", table, "--out", folder, *FIT).exit_code == 0
    return folder


@pytest.fixture
def space(run):
    return open_run(run)


def test_a_report_can_follow_rows_through_the_replayed_training(space):
    found = study(space, shown=1, method="replay")
    assert found.influence.method == "replay" and found.influence.details["members"] == 4
    how, stream = how_to_replay(space, "replay", members=4, seconds=1.0)
    alone = influence_of(space.model, found.bonds, method="replay", how=how, stream=stream, progress=False)
    np.testing.assert_allclose(found.influence.values, alone.values)
    assert study(space, shown=1).influence.method != "replay"


def test_measures_against_loops(generator):
    Z = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    codes = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 3])
    means = [Z[codes == g].mean(0) for g in range(4)]
    gaps = [float((means[i] - means[j]).norm()) for i in range(4) for j in range(i)]
    size = float(sum(((z - Z.mean(0)) ** 2).sum() for z in Z) / len(Z)) ** 0.5
    assert float(relative_group_distance(Z, codes)) == pytest.approx(sum(gaps) / len(gaps) / size)
    assert float(relative_group_distance(5 * Z + 3, codes)) == pytest.approx(sum(gaps) / len(gaps) / size)
    U = [(z - Z.mean(0)) / (z - Z.mean(0)).norm() for z in Z]
    margins = []
    for i in range(8):  # the last is alone in its class
        own = [float(U[i] @ U[j]) for j in range(9) if j != i and codes[j] == codes[i]]
        rest = [float(U[i] @ U[j]) for j in range(9) if codes[j] != codes[i]]
        margins.append(np.mean(own) - np.mean(rest))
    assert float(class_margin(Z, codes)) == pytest.approx(np.mean(margins))
    with pytest.raises(InvalidInputError, match="1 groups among 9"):
        relative_group_distance(Z, torch.zeros(9, dtype=torch.int64))


def test_outcomes_are_measured_on_every_other_held_out_sample(space):
    asked = named_outcome(space, "group_distance sex")
    codes = torch.from_numpy((space.of_test("sex") == "M").astype(np.int64))
    for half, outcome in ((slice(0, None, 2), asked.outcome), (slice(1, None, 2), asked.fresh)):
        Z = space.model.embed(space.test_samples[half])
        expected = float(relative_group_distance(Z, codes[half]))
        assert float(outcome.of(space.model.embed)) == pytest.approx(expected)
        assert float(outcome.value(space.model.solution_.theta)) == pytest.approx(expected)
    assert asked.wanted == "lower" and named_outcome(space, "label_consistency").wanted == "raise"
    first, second = space.test_ids[:2]
    pair = named_outcome(space, f"pair {first!r} {second!r}")
    assert pair.wanted is None and pair.outcome.name == f"similarity of {first} and {second}" and pair.fresh is None
    assert named_outcome(space, f"margin '{first}'").outcome.name.startswith(f"margin of {first} to rich=")
    assert named_outcome(space, f"pull '{first}' sex=F").outcome.name == f"pull of {first} towards sex=F"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty. Outcomes are group_distance COLUMN; label_consistency"),
        ("group_distanc sex", "Did you mean 'group_distance'"),
        ("group_distance", "takes COLUMN, and 0 words"),
        ("group_distance sex age", "takes COLUMN, and 2 words"),
        ("group_distance 'sex", "cannot be read"),
        ("group_distance sexx", "no column 'sexx'"),
        ("group_distance rich; rm -rf /", "takes COLUMN"),
        ("pair a b", "there is no row 'a'"),
        ("pull '=p 1' sex", "is not COLUMN=VALUE"),
        ("__import__('os')", "there is no outcome"),
        ("\x1b[31m", "there is no outcome '.*x1b"),
    ],
)
def test_outcomes_that_are_none_are_refused(text, message, space):
    with pytest.raises(InvalidInputError, match=message) as refused:
        named_outcome(space, text)
    assert "\x1b" not in str(refused.value)


def test_how_many_rows_and_which_way(space):
    assert drop_count("5%", 1000) == 50 and drop_count("2.5 %", 1000) == 25 and drop_count("7", 1000) == 7
    for text, message in (("5 per cent", "neither a share"), ("0%", "0 of 1000"), ("100%", "1000 of 1000")):
        with pytest.raises(InvalidInputError, match=message):
            drop_count(text, 1000)
    pair = named_outcome(space, "pair '=p 1' '=p 2'")
    assert direction_of(pair, True) == "lower" and direction_of(pair, False) == "raise"
    with pytest.raises(InvalidInputError, match="--lower or --raise"):
        direction_of(pair, None)


@pytest.mark.parametrize("direction", ["lower", "raise"])
def test_a_proposal_is_the_rows_of_largest_influence_and_the_surrogate_agrees(direction, space):
    asked = named_outcome(space, "group_distance sex")
    found = propose(space, asked, 5, direction, method="surrogate", sets=6, progress=False)
    values = influence_of(space.model, asked.outcome, stream=space.stream, progress=False).values[:, 0]
    change = -values / len(values)
    expected = np.argsort(change if direction == "lower" else -change, kind="stable")[:5]
    assert found.places.tolist() == expected.tolist()
    np.testing.assert_allclose(found.rows["score"], change[expected])
    assert found.rows["id"].tolist() == [space.train_ids[i] for i in expected]
    sign = -1 if direction == "lower" else 1
    first, exact = found.prediction["change"]
    assert first == pytest.approx(change[expected].sum()) and sign * first > 0 and sign * exact > 0
    assert exact == pytest.approx(
        float(asked.outcome.value(space.model.without(found.places).solution_.theta))
        - float(asked.outcome.value(space.model.solution_.theta))
    )
    half = propose(space, asked, 5, direction, method="surrogate", weight=0.5, sets=6, progress=False)
    assert len(half.prediction) == 1 and half.prediction["change"][0] == pytest.approx(first / 2)
    few = propose(space, asked, len(values) - 2, direction, method="surrogate", sets=2, progress=False)
    assert len(few.rows) == (sign * change > 0).sum() and "are predicted to help" in few.notes[0]


def test_the_command_writes_what_whatif_reads(run, tmp_path):
    out = tmp_path / "curated.csv"
    asked = ["--outcome", "group_distance sex", "--drop", "4", "--method", "lazy", "--sets", "3", "--out", out]
    found = json.loads(call("curate", run, *asked, "--verify", "--seeds", "2", "--quiet", "--json").stdout)
    assert found["direction"] == "lower" and len(found["rows"]) == 4 and len(found["prediction"]) == 2
    assert {row["by"] for row in found["prediction"]} == {"lazy, first order", "linearised encoder without them"}
    assert (
        len(found["trainings"]) == 2 * 3 * 2
        and [row["samples"] for row in found["times"]] == [ASKED, FRESH]
        and found["verdict"]
    )
    written = pd.read_csv(out)
    assert written.columns.tolist() == ["rank", "id", "score", "weight"] and written["id"][0].startswith("'=p ")
    places = chosen_rows(open_run(run), remove=str(out)).places
    assert [open_run(run).train_ids[i] for i in places] == sorted(
        (row["id"] for row in found["rows"]), key=open_run(run).train_ids.index
    )
    shown = call("curate", run, *asked, "--raise", "--quiet")
    assert shown.exit_code == 0 and "4 rows are proposed to raise group_distance sex" in " ".join(shown.output.split())
    influence = call("influence", run, "--outcome", "group_distance sex", "--quiet", "--json")
    assert json.loads(influence.stdout)["outcome"] == "group_distance sex"


def test_verification_trains_what_it_says(space):
    asked = named_outcome(space, "group_distance sex")
    rows = torch.tensor([3, 8, 9])
    found = verify_removal(space, asked, rows, seeds=2, progress=False)
    stay = torch.tensor([i for i in range(len(space.train)) if i not in rows.tolist()])
    encoder = FrozenEncoder(retrained(space, stay, space.settings.seed + 1))
    values = found.values.set_index(["samples", "arm", "seed"])["value"]
    assert values[ASKED, PROPOSED, 0] == pytest.approx(float(asked.outcome.of(encoder.encode)), rel=1e-6)
    assert len({values[ASKED, arm, seed] for arm in (ALL, PROPOSED, RANDOM) for seed in (0, 1)}) == 6


def test_verification_that_was_cut_goes_on_and_a_damaged_file_is_trained_again(space, tmp_path, monkeypatch):
    asked = named_outcome(space, "group_distance sex")
    other = replace(asked, outcome=asked.fresh, fresh=None)
    trained = []

    def counted(space, stay, seed):
        trained.append((len(stay), seed))
        if len(trained) == 4:
            raise KeyboardInterrupt
        return retrained(space, stay, seed)

    monkeypatch.setattr(verification, "retrained", counted)
    monkeypatch.setattr(verification, "verified_folder", lambda run: tmp_path)
    rows = torch.tensor([1, 4])
    with pytest.raises(KeyboardInterrupt):
        verify_removal(space, asked, rows, seeds=2, progress=False)
    found = verify_removal(space, asked, rows, seeds=2, progress=False)
    assert len(trained) == 4 + 3, "three were finished, three were left"
    again = verify_removal(space, asked, rows, seeds=2, progress=False)
    assert len(trained) == 7 and again.values.equals(found.values)
    verify_removal(space, asked, torch.tensor([7]), seeds=2, progress=False)
    assert len(trained) == 7 + 4, "the trainings on all rows are known"
    verify_removal(space, other, torch.tensor([7]), seeds=2, progress=False)
    assert len(trained) == 11 + 6, "the same name, but of other samples"
    for path in tmp_path.iterdir():
        path.write_text("{")
    assert verify_removal(space, asked, rows, seeds=2, progress=False).values.equals(found.values)


def test_differences_are_taken_seed_by_seed():
    base = np.array([1.0, 5.0, 3.0])
    arms = {ALL: base, PROPOSED: base - [0.9, 1.0, 1.1], RANDOM: base + [0.1, -0.1, 0.1]}
    lines = [(ASKED, arm, seed, x) for arm, values in arms.items() for seed, x in enumerate(values)]
    found = summed_up(pd.DataFrame(lines, columns=["samples", "arm", "seed", "value"]))
    row = found.summary.set_index("difference").loc[f"{PROPOSED} - {ALL}"]
    low, high = stats.t.interval(0.95, 2, loc=-1.0, scale=0.1 / np.sqrt(3))
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((-1.0, low, high))
    assert found.times.iloc[0].tolist() == [ASKED, pytest.approx(30.0), pytest.approx(10.0)]
    said = found.sentence()
    assert "moved by -1 on average, random rows +0.0333 [-0.254, +0.32], and 10.0 times as far as a single" in said
    assert "beyond random rows by -1.03 [" in said and "which is more than chance" in said
    arms[RANDOM] = base - [0.3, 0.25, 0.35]
    lines = [(ASKED, arm, seed, x) for arm, values in arms.items() for seed, x in enumerate(values)]
    found = summed_up(pd.DataFrame(lines, columns=["samples", "arm", "seed", "value"]))
    assert "3.3 times as far as random rows on average, and" in found.sentence()
    arms[PROPOSED] = base - [0.9, -1.0, 0.1]
    lines = [(ASKED, arm, seed, x) for arm, values in arms.items() for seed, x in enumerate(values)]
    assert (
        "which may be chance" in summed_up(pd.DataFrame(lines, columns=["samples", "arm", "seed", "value"])).sentence()
    )


def test_verify_is_refused_before_any_work(table, run, tmp_path, monkeypatch):
    weights = tmp_path / "own.safetensors"
    d = open_run(run).data.samples.shape[1]
    save_weights(MLP(d, width=16, depth=1, out=8), weights)
    assert call("fit", table, "--weights", weights, "--out", tmp_path / "own", *FIT).exit_code == 0
    monkeypatch.setattr("krepes.runs.curation.influence_of", lambda *_, **__: pytest.fail("work was begun"))
    asked = ["--outcome", "group_distance sex", "--out", tmp_path / "x.csv"]
    for arguments, message in (
        (["curate", tmp_path / "own", *asked, "--verify"], "do not say how they were trained.*krepes pretrain"),
        (["curate", run, *asked, "--verify", "--weight", "0.5"], "pass one"),
        (["curate", run, *asked, "--drop", "half"], "--drop 'half'"),
        (["curate", run, *asked[:3], table], "is what the answer is made from"),
        (["curate", run, *asked, "--weight", "1"], "leaves every row"),
    ):
        result = call(*arguments)
        with pytest.raises(Exception, match=message):
            raise result.exception
    assert not (tmp_path / "x.csv").exists()
