"""`krepes prove`: the intervention test on a run, kept beside it, resumed after a kill, and read by later answers."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cosine_similarity
from typer.testing import CliRunner

import krepes
from krepes.attribution import attribute
from krepes.cli.app import app
from krepes.encoders import MLP, save_weights
from krepes.errors import InvalidInputError, RunFolderError
from krepes.influence import influence_of, similarity
from krepes.proof import judging
from krepes.proof.result import UNREPEATABLE
from krepes.proof.scores import RUNGS, Scored
from krepes.proof.subject import MARGIN, NEIGHBOURS, PAIR, nearest
from krepes.report.front import _steps
from krepes.runs import proving, subject
from krepes.runs.answers import study
from krepes.runs.fitting import fit
from krepes.runs.opening import open_run
from krepes.runs.proving import best_rung, proof_folder, proof_of, prove
from krepes.runs.retraining import how_to_replay
from krepes.runs.settings import Settings

BASELINES = {
    "gradient dot product",
    "gradient dot product, projector",
    "TRAK",
    "TRAK, projector",
    "latent cosine",
    "kernel similarity",
    "influence score IS",
    "random",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    kind = rng.choice(["a", "b"], 64)
    frame = pd.DataFrame({f"x{k}": rng.normal(size=64) + (kind == "a") for k in range(4)}).assign(kind=kind)
    path = tmp_path_factory.mktemp("prove") / "rows.csv"
    frame.round(4).to_csv(path, index=False)
    return path


def chosen(table, **changes):
    small = {"encoder": "mlp", "encoder_options": {"width": 6, "depth": 1, "out": 3}, "projector": (4,), "epochs": 3}
    sizes = {"holdout": 0.4, "batch_size": 19, "m": 8, "h": 3}
    return Settings(**{"data": str(table), "exclude": ("kind",), **small, **sizes, **changes})


@pytest.fixture(scope="module")
def proved(table):
    """A run and its proof with labels, three halves."""
    folder = table.with_name("run")
    fit(chosen(table), folder, progress=False)
    return folder, krepes.prove(folder, label="kind", halves=3, members=2, progress=False)


def test_proof_of_a_run_holds_every_rung_and_every_baseline(proved):
    folder, found = proved
    of = found.table[found.table["outcome"] == MARGIN].set_index("score")
    assert set(RUNGS) | BASELINES | {"same-class count (uses labels)", "noise ceiling"} <= set(of.index)
    assert found.outcomes == [MARGIN, PAIR] and not found.left_out
    assert found.retrained.member.sum(1).tolist() == [19, 19, 19]
    assert list(found.costs()["score"]) == [*RUNGS, "one training"] and (found.costs()["seconds"] > 0).all()
    assert found.scores["replay"].details["members"] == 2


def test_what_is_judged_is_what_influence_answers(proved):
    folder, found = proved
    space = open_run(folder)
    about = subject.run_subject(space, "sha", "kind", seed=0)
    first, second = about.test[:1], about.test[about.t : about.t + 1]
    outcome = similarity(space.model, first, second, reference=about.reference)
    for method in ("surrogate", "lazy"):
        how, stream = how_to_replay(space, method, members=1, seconds=0.0)
        asked = influence_of(space.model, outcome, method=method, how=how, stream=stream, progress=False).values[:, 0]
        judged = found.scores[method].scores[PAIR][:, 0]
        expected = torch.tensor(asked) / len(space.train)
        torch.testing.assert_close(judged, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


def test_similarities_of_all_rows(proved):
    folder, found = proved
    space = open_run(folder)
    about = subject.run_subject(space, "sha", "kind", seed=0)
    rows = space.stream.plain(torch.arange(len(space.train)))
    K = space.model.kernel_(rows, about.test[: about.t]).double()
    torch.testing.assert_close(found.scores["kernel similarity"].scores[MARGIN], K, rtol=1e-4, atol=1e-4)
    of_landmarks = found.scores["influence score IS"].scores[MARGIN]
    assert of_landmarks.abs().sum(1).nonzero().flatten().tolist() == sorted(space.model.landmarks_.tolist())
    made_of = attribute(space.model, about.test[: about.t]).scores.T.double()
    torch.testing.assert_close(of_landmarks[space.model.landmarks_], made_of, rtol=1e-4, atol=1e-6)


def test_what_was_measured_is_said_by_influence_and_report_until_the_run_is_fitted_anew(proved, monkeypatch):
    folder, found = proved
    assert found.verdict(PAIR) in proof_of(folder) and found.verdict(MARGIN, "warm") in proof_of(folder, "warm")
    space = open_run(folder)
    assert study(space).trust["surrogate"] == proof_of(folder, "surrogate")
    rows = [flag for id in space.test_ids[:2] for flag in ("--row", str(id))]
    rows += ["--method", "surrogate"]
    said = CliRunner().invoke(app, ["influence", str(folder), *rows, "--top", "1", "--quiet", "--json"])
    assert json.loads(said.stdout)["trust"] == proof_of(folder, "surrogate")
    monkeypatch.setattr(proving, "read_manifest", lambda run: {"run_sha256": "that of another fit"})
    assert proof_of(folder) is None
    said = CliRunner().invoke(app, ["influence", str(folder), *rows, "--top", "1", "--quiet"])
    assert "not measured: run krepes prove" in " ".join(said.stdout.split())


def test_weights_from_elsewhere_are_never_sent_to_a_proof_that_refuses_them(table, tmp_path):
    save_weights(MLP(4, 6, 1, 3), tmp_path / "own.safetensors")
    fit(chosen(table, weights=str(tmp_path / "own.safetensors")), tmp_path / "run", progress=False)
    about = study(open_run(tmp_path / "run"), groups=["kind"])
    assert set(about.trust.values()) == {UNREPEATABLE} and about.hidden
    steps = [step.command for step in _steps(about, {"proxy": SimpleNamespace(verdict="bad")}, (), {})]
    assert any("curate" in command for command in steps)
    assert not any("prove" in command or "--verify" in command for command in steps)
    rows = [flag for id in about.ids[1][:2] for flag in ("--row", str(id))]
    said = CliRunner().invoke(app, ["influence", str(tmp_path / "run"), *rows, "--method", "surrogate", "--quiet"])
    assert f"whether to trust it {UNREPEATABLE}" in " ".join(said.stdout.split()) and "krepes prove" not in said.stdout


def test_killed_proof_goes_on_and_ends_with_the_same_table(proved, monkeypatch):
    folder, found = proved
    (kept,) = proof_folder(folder).glob("*/halves.safetensors")
    kept.unlink()
    (kept.parent / "scores" / "lazy" / "whole.safetensors").unlink()  # as if it had been killed there
    trained, asked = subject.retrained, []

    def killed(space, places, seed, **options):
        asked.append(seed)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return trained(space, places, seed, **options)

    monkeypatch.setattr(subject, "retrained", killed)
    options = {"label": "kind", "halves": 3, "members": 2, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        prove(folder, **options)
    again = prove(folder, **options)
    assert len(asked) == 8 and len(set(asked)) == 6  # the half that was under way is made again
    pd.testing.assert_frame_equal(again.table.drop(columns="seconds"), found.table.drop(columns="seconds"))


def test_minutes_end_the_retraining_and_a_later_call_goes_on(proved):
    folder, _ = proved
    assert prove(folder, label="kind", minutes=0, halves=5, progress=False).halves == 3


def test_scores_whose_turn_comes_too_late_are_left_for_a_later_call(proved, monkeypatch):
    made = []
    monkeypatch.setattr(judging, "score_warm", lambda subject: made.append("warm"))
    monkeypatch.setattr(judging, "score_surrogate", lambda subject: made.append("surrogate"))
    clock = iter([0.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    monkeypatch.setattr(judging.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(judging, "kept", lambda folder, name, subject, make: {name: make()})
    monkeypatch.setattr(judging, "score_rest", lambda subject: Scored({}, 0.0, {}))
    folder = Path("nowhere")
    found, left = judging.all_scores(None, folder, members=1, methods=("warm",), seconds=4.0)
    assert made == ["surrogate"] and set(found) == {"rest", "surrogate"}
    assert set(left) == {"warm", "gradients", "projected gradients"} and set(left.values()) == {judging.LATER}


def test_scores_that_would_not_be_done_in_time_are_not_begun(monkeypatch):
    made = []
    for name in ("score_warm", "score_surrogate", "score_rest"):
        monkeypatch.setattr(judging, name, lambda subject, name=name: made.append(name) or Scored({}, 0.0, {}))
    monkeypatch.setattr(
        judging, "score_replay", lambda subject, member: made.append(f"replay {member}") or Scored({}, 0.0, {})
    )
    monkeypatch.setattr(
        judging, "score_gradients", lambda subject, projector: (_ for _ in ()).throw(RuntimeError("dtype"))
    )
    monkeypatch.setattr(judging, "kept", lambda folder, name, subject, make: {name: make()})
    asked = {"members": 2, "methods": ("warm", "replay"), "seconds": 60.0, "costs": {"warm": 100.0, "replay": 80.0}}
    _, left = judging.all_scores(None, Path("nowhere"), **asked)
    assert made == ["score_rest", "score_surrogate", "replay 0", "replay 1"]
    assert left["warm"].startswith("it would take about 1e+02 s, and 60 s are left") and "more time" in left["warm"]
    assert left["gradients"] == "dtype"  # one method that fails does not end the test of the others
    made.clear()
    _, left = judging.all_scores(None, Path("nowhere"), **asked | {"seconds": 0.0})
    assert made == ["score_rest"] and left["surrogate"] == judging.LATER


def test_without_a_label_the_neighbours_pull(proved, table, monkeypatch):
    folder, _ = proved
    space = open_run(folder)
    found = subject.run_subject(space, "sha", None, seed=0)
    assert found.names == (NEIGHBOURS, PAIR) and found.same_class is None
    encoder = space.model.kernel
    Z, R = encoder(found.test), encoder(found.reference)
    for i, chosen_ones in enumerate(found.group):
        cosines = cosine_similarity(Z[i] - R.mean(0), R - R.mean(0))
        k = int(chosen_ones.sum())
        assert set(cosines.topk(k).indices.tolist()) == set(chosen_ones.nonzero().flatten().tolist())
        torch.testing.assert_close(
            found.outcomes(encoder)[NEIGHBOURS][i], cosines[chosen_ones].mean() - cosines[~chosen_ones].mean()
        )
    assert nearest(Z, R, 2).sum(1).tolist() == [2] * found.t


def test_what_cannot_be_proved_is_refused_before_any_work(table, tmp_path, monkeypatch):
    monkeypatch.setattr(proving, "put_to_the_test", lambda *_, **__: pytest.fail("work was begun"))
    save_weights(MLP(4, 6, 1, 3), tmp_path / "own.safetensors")
    cases = {
        "few": ({"holdout": 0.1}, "6 samples were held out"),
        "weights": ({"weights": str(tmp_path / "own.safetensors")}, "do not say how they were trained"),
    }
    for name, (changes, words) in cases.items():
        fit(chosen(table, **changes), tmp_path / name, progress=False)
        with pytest.raises(InvalidInputError, match=words):
            prove(tmp_path / name, progress=False)
        assert not proof_folder(tmp_path / name).exists()
    with pytest.raises(InvalidInputError, match="no column 'sort'"):
        prove(tmp_path / "few", label="sort")
    with pytest.raises(InvalidInputError, match="halves"):
        prove(tmp_path / "few", halves=1)


def test_report_takes_the_rung_that_a_proof_found_best(proved, monkeypatch):
    folder, found = proved
    space, rungs = open_run(folder), found.table[found.table["kind"] == "rung"]
    assert best_rung(folder, 2, 1e9) is None and study(space, by_proof=True).proved is None  # three halves say nothing
    monkeypatch.setattr(proving, "FEWEST", 3)
    monkeypatch.setattr(proving, "MEMBERS", 2)
    best = str(rungs.groupby("score")["value"].mean().idxmax())
    assert best_rung(folder, 2, 1e9) == best == study(space, by_proof=True).proved
    assert study(space).proved is None  # audits and comparisons take no such time
    assert study(space, by_proof=True, method="surrogate").proved is None
    assert study(space, by_proof=True, counterfactual=False).proved is None
    quick = found.costs().set_index("score")["seconds"][list(RUNGS)].sort_values()
    assert best_rung(folder, 2, 1.0001 * quick.iloc[0]) == quick.index[0] and best_rung(folder, 2, 0.0) is None
    monkeypatch.setattr(proving, "MEMBERS", 4)  # answers average more trainings than the proof did
    assert best_rung(folder, 2, 1e9) == str(rungs[rungs["score"] != "replay"].groupby("score")["value"].mean().idxmax())


def test_a_proved_rung_that_cannot_answer_gives_way_to_the_quick_one(proved, monkeypatch, caplog):
    folder, _ = proved
    monkeypatch.setattr("krepes.runs.answers.best_rung", lambda *_: "replay")
    assert study(open_run(folder), by_proof=True, shown=2).influence.method == "replay"
    built = open_run(folder).model.kernel  # a training of it cannot be repeated
    assert study(open_run(folder, encoder=built), by_proof=True, shown=2).proved is None
    monkeypatch.setattr("krepes.runs.answers.best_rung", lambda *_: "warm")
    asked = study(open_run(folder), by_proof=True, shown=2)
    monkeypatch.setattr("krepes.influence.ladder.warm", lambda *_, **__: (_ for _ in ()).throw(InvalidInputError("no")))
    assert asked.influence.method == "lazy" and "warm, which a proof found best, cannot answer here" in caplog.text


def test_one_proof_at_a_time_and_a_damaged_one_is_none(proved, caplog):
    folder, _ = proved
    with proving._alone(proof_folder(folder)), pytest.raises(RunFolderError, match="another process"):
        prove(folder, label="kind", halves=3, progress=False)
    path = proof_folder(folder) / proving.PROOF
    content = path.read_text()
    for damaged in ("{", "[]", '{"format": 1, "subject": 3}', content.replace('"best"', '"worst"')):
        path.write_text(damaged)
        assert proof_of(folder) is None
    path.write_text(content)
    assert proof_of(folder) is not None


def test_command_prints_tables_costs_and_verdicts(proved):
    folder, found = proved
    command = ["prove", str(folder), "--label", "kind", "--halves", "3", "--minutes", "0", "--members", "2", "--quiet"]
    said = " ".join(CliRunner().invoke(app, command).stdout.split())
    assert "noise ceiling" in said and "one training" in said and "too few halves" in said
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told["verdicts"] == {outcome: found.verdict(outcome) for outcome in found.outcomes}
