"""The intervention: its measures, the scores of every method, and a proof that goes on where it was killed."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.nn.functional import cosine_similarity

from krepes import influence as inf
from krepes.attribution import attribute
from krepes.encoders import MLP, pretrain
from krepes.errors import InvalidInputError
from krepes.influence.members import mean_of_members
from krepes.influence.warm import warm_steps
from krepes.proof import judging, kept, lds, scores
from krepes.proof.halves import retrain
from krepes.proof.result import CEILING, TRAINING, in_words
from krepes.proof.scores import RUNGS, Scored
from krepes.proof.subject import MARGIN, PAIR
from krepes.reproduce import intervention
from krepes.reproduce.ladder import SECONDS, ladder
from krepes.reproduce.retraining import Study
from krepes.reproduce.scale import find_scale
from krepes.reproduce.trial import Trial
from studies import small_study


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def halves(draw):
    """Eighty halves of forty rows."""
    return torch.stack([torch.randperm(40, generator=draw) < 20 for _ in range(80)]).double()


@pytest.fixture
def study(draw):
    return small_study((24, 8, 30), draw)


def test_lds_of_a_planted_linear_outcome(halves, draw):
    planted = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    outcomes = (halves @ planted)[:, None] + 0.01 * torch.randn(80, 2, 6, generator=draw)
    assert lds.lds(planted, halves, outcomes) > 0.99
    assert lds.lds(-planted, halves, outcomes) < -0.99
    unrelated = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    assert abs(lds.lds(unrelated, halves, outcomes)) < 0.2


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_noise_ceiling_is_what_the_truth_itself_reaches(k, noise, draw):
    truth = torch.randn(2_000, 1, 20, generator=draw, dtype=torch.float64)
    outcomes = truth + noise * torch.randn(2_000, k, 20, generator=draw, dtype=torch.float64)
    reached = float(lds.spearman(truth[:, 0], outcomes.mean(1)).mean())
    assert lds.noise_ceiling(outcomes) == pytest.approx(reached, abs=0.02)


def test_noise_ceiling_of_mere_noise_is_near_zero(draw):
    assert lds.noise_ceiling(torch.randn(2_000, 2, 50, generator=draw)) < 0.15


def test_outcomes_by_hand(study, draw):
    Z, R = torch.randn(8, 4, generator=draw), torch.randn(30, 4, generator=draw)
    found = study.measured(Z, R)
    mean = R.mean(0)
    for i in range(4):
        cosines = cosine_similarity(Z[i] - mean, R - mean)
        same = study.y_reference == study.y_test[i]
        torch.testing.assert_close(found[MARGIN][i], cosines[same].mean() - cosines[~same].mean())
        torch.testing.assert_close(found[PAIR][i], cosine_similarity(Z[i] - mean, Z[4 + i] - mean, dim=0))


def test_retraining_holds_half_the_rows_and_depends_on_the_seed_alone(study):
    found, again = (retrain(study, halves=3, retrainings=2) for _ in range(2))
    assert found.member.sum(1).tolist() == [12, 12, 12]
    for name in (MARGIN, PAIR):
        assert found.outcomes[name].shape == (3, 2, 4)
        assert torch.equal(found.outcomes[name], again.outcomes[name])
        assert not torch.equal(found.outcomes[name][:, 0], found.outcomes[name][:, 1])


def test_retraining_goes_on_where_it_was_and_refuses_another_study(study, tmp_path):
    path = tmp_path / "h.safetensors"
    whole = retrain(study, halves=3, retrainings=2)
    assert len(retrain(study, halves=3, retrainings=2, path=path, seconds=-1).member) == 1
    found = retrain(study, halves=3, retrainings=2, path=path)
    assert torch.equal(found.member, whole.member) and torch.equal(found.outcomes[PAIR], whole.outcomes[PAIR])
    with pytest.raises(InvalidInputError, match="halves of another study"):
        retrain(replace(study, loss="vicreg"), halves=3, retrainings=2, path=path)


def test_interval_and_slope_of_a_planted_outcome(halves, draw):
    planted = torch.randn(40, 6, generator=draw, dtype=torch.float64)
    outcomes = 3 * (halves @ planted)[:, None] + 2 * torch.randn(80, 2, 6, generator=draw)
    found = lds.lds_interval(planted, halves, outcomes)
    assert found.low < found.value < found.high and found.low > 0.9
    assert lds.slope(planted, halves, outcomes) == pytest.approx(3, abs=0.1)


def test_influence_of_a_row_is_the_mean_over_its_copies(study, monkeypatch):
    monkeypatch.setattr(scores, "H", 4)
    monkeypatch.setattr(scores, "DRAWS", 3)
    torch.manual_seed(0)
    encoder = MLP(5, width=12, depth=1, out=4).eval()
    model = study.model(encoder)
    assert model.landmarks_.tolist() == list(range(24)) and model.n_samples_ == 72
    found = scores.counterfactual(study, model)
    x, partner, same = study.test[2:3], study.test[6:7], study.y_reference == study.y_test[2]
    outcomes = [
        inf.pull(model, x, study.reference[same], study.reference[~same], reference=study.reference),
        inf.similarity(model, x, partner, reference=study.reference),
    ]
    values = torch.from_numpy(inf.influence_of(model, outcomes, progress=False).values) / 72
    for k, name in enumerate((MARGIN, PAIR)):
        expected = torch.stack([values[i, k] + values[24 + i, k] + values[48 + i, k] for i in range(24)])
        size = float(expected.abs().max())  # kernel rows in float32 differ in the last bits with the batch
        torch.testing.assert_close(found[name][:, 2], expected, rtol=0, atol=1e-5 * size)


def test_proof_holds_every_method_and_is_not_made_twice(study, tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "H", 4)
    monkeypatch.setattr(scores, "LANDMARKS", 16)
    found = judging.prove(study, tmp_path, halves=4, members=2)
    assert found.halves == 4
    of = found.table[found.table["outcome"] == MARGIN].set_index("score")
    assert set(RUNGS) | {"TRAK", "TRAK, projector", "gradient dot product", "random", CEILING} <= set(of.index)
    assert of.loc[list(RUNGS), "slope"].notna().all()
    assert all(one.scores[MARGIN].shape == (24, 4) for one in found.scores.values())
    for name in ("score_warm", "score_lazy", "score_replay", "score_surrogate", "score_gradients", "score_rest"):
        monkeypatch.setattr(judging, name, lambda *arguments, **settings: pytest.fail("made twice"))
    again = judging.prove(study, tmp_path, halves=4, members=2)
    pd.testing.assert_frame_equal(again.table, found.table)
    pd.testing.assert_frame_equal(again.costs(), found.costs())
    for outcome in (MARGIN, PAIR):
        assert "too few halves" in found.verdict(outcome)
    costs = found.costs().set_index("score")
    assert list(costs.index) == [*(name for name in RUNGS), "one training"]
    assert costs.loc["warm", "per outcome"] == pytest.approx(costs.loc["warm", "seconds"] / 8)
    assert costs.loc["warm", "per outcome and 1,000 rows"] == pytest.approx(costs.loc["warm", "per outcome"] / 0.024)
    told = pd.DataFrame(intervention.lines(found), columns=["outcome", "score", "value", "low", "high"])
    told = told.set_index(["outcome", "score"])
    assert told.loc[(MARGIN, "warm"), "low"] == of.loc["warm", "low"]
    assert told.loc[(f"{MARGIN}{intervention.SLOPE}", "lazy"), "value"] == of.loc["lazy", "slope"]
    assert told.loc[(SECONDS, "one training"), "value"] == found.training
    assert costs.loc["warm", "trainings"] == pytest.approx(costs.loc["warm", "seconds"] / found.training)


def test_scores_of_other_code_or_of_another_study_are_made_anew(study, tmp_path, monkeypatch, caplog):
    made = []

    def make():
        made.append(1)
        return {name: Scored({MARGIN: torch.full((24, 4), float(len(made)))}, 1.0, {}) for name in ("a", "b")}

    def value(of):
        return {
            float(scored.scores[MARGIN][0, 0]) for scored in kept.kept(tmp_path / "rest", "rest", of, make).values()
        }

    assert value(study) == value(study) == {1.0} and not caplog.records
    monkeypatch.setattr(kept, "code_of_scores", lambda: "mended")
    assert not kept.is_kept(tmp_path / "rest", study)
    assert value(study) == value(study) == {2.0}
    assert "rest" in caplog.text and "made anew" in caplog.text
    assert value(replace(study, seed=study.seed + 1)) == {3.0}
    (tmp_path / "rest" / "whole.safetensors").unlink()  # killed before the end: what lies there is not believed
    assert value(study) == {4.0} and len(list((tmp_path / "rest").iterdir())) == 3


def test_the_code_of_scores_is_that_of_rooms_that_make_them():
    assert re.fullmatch("[0-9a-f]{16}", kept.code_of_scores())
    root = Path(kept.__file__).parents[1]
    assert all((root / room).is_dir() for room in kept.SHOWING)
    assert not {"encoders", "influence", "objectives", "proof"} & set(kept.SHOWING)


@pytest.mark.parametrize("projector", [False, True])
def test_gradients_of_an_encoder_in_float64_are_taken(study, projector):
    double = replace(study, **{name: getattr(study, name).double() for name in ("X", "test", "reference")})
    object.__setattr__(double, "record", lambda member: recorded_in_float64(double, member))
    found = scores.score_gradients(double, projector=projector)
    assert all(one.scores[MARGIN].isfinite().all() for one in found.values())


def recorded_in_float64(study, member):
    torch.manual_seed(0)
    stream = study.stream(member)
    return pretrain(study.recipe.fresh(study.X).double(), stream, projector=(4,), epochs=2, record=True, progress=False)


def test_gradients_of_many_rows_see_each_once_a_draw_in_batches(study):
    steps = warm_steps(MLP(5, width=12, depth=1, out=4), study.views(), study.loss, lr=1.0, batch=24)
    views, draws = scores._in_batches(steps, 10)
    assert len(draws) == 3 * scores.GRADIENT_DRAWS
    for draw in range(scores.GRADIENT_DRAWS):
        parts = [views(3 * draw + part) for part in range(3)]
        order = torch.cat([chosen for chosen, _ in parts])
        assert order.sort().values.tolist() == list(range(24)) and {len(chosen) for chosen, _ in parts} == {8}
        assert torch.equal(torch.cat([X for _, X in parts], 1)[:, order.argsort()], steps.views(draw)[1])
    whole, draws = scores._in_batches(steps, 24)
    assert len(draws) == scores.GRADIENT_DRAWS and torch.equal(whole(2)[1], steps.views(2)[1])


def test_whole_trainings_are_replayed_in_the_first_seed_alone(tmp_path):
    trials = [Trial(find_scale("standard"), seed, None, tmp_path) for seed in range(2)]
    assert [("replay" in intervention.methods_of(one)) for one in trials] == [True, False]
    assert intervention.methods_of(replace(trials[0], without=("replay",))) == ["surrogate", "lazy", "warm"]


@pytest.mark.parametrize(
    ("value", "low", "other", "words"),
    [
        (0.5, 0.4, 0.2, "trust row-level causes here"),
        (0.5, 0.4, 0.55, "trust only the sign"),
        (0.25, 0.1, 0.2, "trust only the sign"),
        (0.1, 0.05, 0.0, "do not trust"),
        (0.5, -0.1, 0.2, "do not trust"),
    ],
)
def test_verdict_in_words(value, low, other, words):
    assert in_words("warm", value, low, 0.6, "TRAK", other, 60).startswith(words)


def test_too_few_halves_say_nothing():
    assert in_words("warm", 0.5, 0.4, 0.6, "TRAK", 0.2, 9).startswith("too few halves")


def test_a_method_that_refuses_is_left_out_and_named(study, tmp_path, monkeypatch):
    monkeypatch.setattr(scores, "GRADIENT_BYTES", 0)
    monkeypatch.setattr(scores, "H", 4)
    found = judging.prove(study, tmp_path, halves=2, methods=("surrogate",))
    assert set(found.left_out) == {"gradients", "projected gradients"}
    assert "GiB" in found.left_out["gradients"] and "TRAK" not in set(found.table["score"])


def test_members_of_a_replay_are_averaged():
    one, two = ({MARGIN: torch.tensor([[x], [y]])} for x, y in ((3.0, 4.0), (-4.0, 3.0)))
    found = judging.averaged({
        "replay 0": Scored(one, 1.0, {}),
        "replay 1": Scored(two, 2.0, {}),
        "lazy": Scored(one, 1, {}),
    })
    assert set(found) == {"lazy", "replay"}
    assert found["replay"].scores[MARGIN].tolist() == [[-0.5], [3.5]] and found["replay"].seconds == 3.0


def test_a_member_that_magnifies_is_one_voice_among_several(draw):
    truth = torch.randn(50, 3, generator=draw, dtype=torch.float64)
    members = [truth + 0.3 * torch.randn(50, 3, generator=draw, dtype=torch.float64) for _ in range(3)]
    members.append(1000 * torch.randn(50, 3, generator=draw, dtype=torch.float64))
    (found, shares), plain = mean_of_members(members), torch.stack(members).mean(0)
    assert shares[3] < 0.01 and min(shares[:3]) > 0.7
    assert cosine_similarity(found, truth, dim=0).min() > 0.85 > 0.4 > cosine_similarity(plain, truth, dim=0).max()
    three, _ = mean_of_members(members[:3])
    torch.testing.assert_close(three, torch.stack(members[:3]).mean(0), rtol=0.2, atol=0.2)  # nobody is silenced
    assert torch.equal(mean_of_members(members[:1])[0], members[0])
    assert torch.equal(mean_of_members([torch.zeros(4, 2)] * 3)[0], torch.zeros(4, 2))
    lost, shares = mean_of_members([members[0], members[0] / 0.0, members[0]])
    assert torch.equal(lost, members[0]) and shares == [1.0, 0.0, 1.0]


def test_rows_beyond_the_landmarks_have_a_kernel_too(study, draw):
    larger = replace(study, X=torch.randn(304, 5, generator=draw))
    model = larger.model(larger.recipe.fresh(larger.X))
    attribution = attribute(model, larger.test)
    assert len(model.landmarks_) == 300
    found = larger.kernel(model, attribution)
    assert found.shape == (len(larger.test), 304)
    expected = Study.__mro__[1].kernel(larger, model, attribution)
    assert (found[:, :300] - expected).abs().mean() < 0.2 * expected.abs().mean()  # landmarks are means of views


def test_larger_studies_are_not_counted():
    lines = [
        (data, "vicreg", outcome, score, value)
        for data in ("adult", "adult-3000")
        for outcome in (MARGIN, PAIR)
        for score, value in (("warm", 0.6), ("lazy", 0.5), ("TRAK", 0.1), (CEILING, 0.7))
    ]
    table = pd.DataFrame(lines, columns=[*intervention.KEYS, "mean"])
    assert all("of 1 studies" in check for check, _ in intervention.judge(table))
    assert intervention.judge(table[table["data"] == "adult-3000"]) == []
    assert intervention.losses_of("adult-3000") == ("barlow_twins", "vicreg")


def test_judge_counts_studies():
    lines = [
        (data, loss, outcome, score, value)
        for data in intervention.DATA
        for loss in intervention.LOSSES
        for outcome in (MARGIN, PAIR)
        for score, value in (("warm", 0.45), ("replay", 0.5), ("lazy", 0.3), ("TRAK", -0.2), (CEILING, 0.7))
    ]
    table = pd.DataFrame(lines, columns=[*intervention.KEYS, "mean"]).assign(spread=0.0)
    assert all(holds for _, holds in intervention.judge(table))
    assert len(intervention.draw(table).axes) == 2
    table.loc[(table["score"] == "TRAK") & table["data"].isin(["adult", "digits"]), "mean"] = -0.5
    assert [holds for _, holds in intervention.judge(table)] == [False, True, True] * 2
    nothing = table.assign(mean=table["mean"].where(table["score"] != CEILING, 0.0))
    assert not any(holds for _, holds in intervention.judge(nothing))
    of_one_seed = table[table["score"] == "replay"].assign(mean=0.8)
    of_one_seed["outcome"] = of_one_seed["outcome"] + intervention.POSSIBLE
    told = pd.concat([table, of_one_seed], ignore_index=True)
    assert [holds for _, holds in intervention.judge(told)] == [False, False, True] * 2, "of its own seed's ceiling"
    table.loc[table["score"] == "replay", "mean"] = 0.4
    assert [holds for _, holds in intervention.judge(table)] == [False, False, True] * 2
    assert [holds for _, holds in intervention.judge(table[table["score"] != "replay"])] == [False, True] * 2


def test_the_ladder_is_drawn_at_the_cost_and_the_part_of_each_rung():
    values = {"warm": 0.4, "lazy": 0.3, "TRAK": -0.2, CEILING: 0.5}
    lines = [
        ("digits", loss, outcome, *line)
        for loss in intervention.LOSSES
        for outcome in (MARGIN, PAIR)
        for line in values.items()
    ]
    costs = {"warm": 4.0, "lazy": 0.2, TRAINING: 2.0}
    lines += [("digits", loss, SECONDS, *line) for loss in intervention.LOSSES for line in costs.items()]
    lines += [("mnist", "byol", MARGIN, CEILING, 0.0), ("mnist", "byol", MARGIN, "warm", 0.1)]  # no part of nothing
    figure = ladder(pd.DataFrame(lines, columns=[*intervention.KEYS, "mean"]))
    ax = figure.axes[0]
    points = {(line.get_xdata()[0], round(line.get_ydata()[0], 3)) for line in ax.lines if line.get_marker() == "o"}
    assert points == {(2.0, 0.8), (0.1, 0.6)}
    assert {"warm", "lazy", "best baseline"} == {text.get_text() for text in ax.texts}
