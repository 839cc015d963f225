"""Planted causes: what is planted, how it is judged, and that a known effect is found."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from krepes.encoders.call import call
from krepes.proof.result import CEILING
from krepes.proof.subject import MARGIN, mixed
from krepes.reproduce import planted
from krepes.reproduce.scale import find_scale
from krepes.reproduce.trial import Trial
from studies import small_study


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setattr(planted, "SIZE", 3)
    monkeypatch.setattr(planted, "AGAIN", 2)
    monkeypatch.setattr(planted, "RANKING", 4)
    return small_study((30, 16, 20), torch.Generator().manual_seed(0))


def test_a_batch_holds_near_copies_and_the_other_rows_are_as_they_were(study):
    found = planted.planted(study, {2: 5})
    assert (found.X[6:9] - study.test[5]).abs().max() < 6 * planted.NOISE
    kept = torch.arange(30) // 3 != 2
    assert torch.equal(found.X[kept], study.X[kept]) and not torch.equal(found.X[6:9], study.X[6:9])


def margins_after(study, places, batch):
    """Margins of the first two test samples by hand, over two trainings, ``(2, 2)``."""
    encoders = [study.train(places, mixed(study.seed, 12, batch + 1, again)) for again in range(2)]
    with torch.no_grad():
        return torch.stack([study.outcomes(encoder)[MARGIN][:2] for encoder in encoders]).double()


def test_effects_are_differences_to_all_rows_and_predictions_sums_over_a_batch(study):
    outcomes = planted.retrained(study, partial(planted.margins, study, [0, 1]), 2)
    assert outcomes.shape == (9, 2, 2)
    effect, error = planted.changes(outcomes)
    assert effect.shape == error.shape == (8, 2) and (error > 0).all()
    whole = margins_after(study, torch.arange(30), -1)
    less = margins_after(study, torch.tensor([row for row in range(30) if row not in {3, 4, 5}]), 1)
    torch.testing.assert_close(effect[1], less.mean(0) - whole.mean(0))
    torch.testing.assert_close(error[1], ((less.var(0) + whole.var(0)) / 2).sqrt())
    encoder = study.record(0).encoder
    cosine = torch.cosine_similarity(
        *(call(encoder, X) - call(encoder, study.reference).mean(0) for X in (study.X[3:6], study.test[:1]))
    )
    found = planted._predicted(study, [0, 1])
    torch.testing.assert_close(found["latent cosine"][1, 0], -cosine.sum().detach().double())
    assert set(found) == {"warm", "lazy", "gradient dot product", "latent cosine"}
    assert all(values.shape == (8, 2) and values.isfinite().all() for values in found.values())


def test_a_prediction_is_judged_by_name_sign_and_size():
    effect = torch.tensor([0.0, 0.2, -0.1])
    assert planted.judged(torch.tensor([0.0, 0.1, -0.05]), effect, 1) == {
        planted.FIRST: 1.0, planted.SIGN: 1.0, planted.SIZED: 1.0, planted.RATIO: pytest.approx(0.5),
    }  # fmt: skip
    assert list(planted.judged(torch.tensor([0.0, -0.1, -0.2]), effect, 1).values())[:3] == [0.0, 0.0, 0.0]
    assert planted.judged(torch.tensor([0.0, 0.7, 0.2]), effect, 1)[planted.SIZED] == 0.0


def test_ranks_stand_beside_those_that_retraining_itself_could_give(study, monkeypatch):
    known = torch.arange(8.0)[:, None, None].expand(8, 4, 8)  # every training ranks the batches alike
    monkeypatch.setattr(planted, "open_study", lambda *_: study)
    monkeypatch.setattr(planted, "retrained", lambda study, outcomes, again: torch.cat([
        torch.zeros(1, again, 8), known[:, :again]]).double())  # fmt: skip
    monkeypatch.setattr(planted, "_predicted", lambda study, samples: {"warm": -known.double()[:, 0, : len(samples)]})
    trial = Trial(find_scale("quick"), seed=7, data_dir=None, encoders=Path())
    ranks = planted.run(trial).rows.set_index(["measure", "score"])["value"][planted.RANKED]
    assert ranks[CEILING] == pytest.approx(1.0) and ranks["warm"] == pytest.approx(-1.0)


def test_a_large_effect_that_all_trainings_show_is_no_evidence_for_the_rest():
    outcomes = torch.randn(8, 40, 200, generator=torch.Generator().manual_seed(0)).double()
    outcomes[3] += 100  # one batch is last in every training, the order of the others is noise
    own = 14 / 42  # the rank correlation of two orders that share their last of eight and nothing else
    assert planted.ceiling(outcomes) == pytest.approx((2 * own / (1 + own)) ** 0.5, abs=0.03)


def test_claims_count_confirmed_seeds():
    lines = [(planted.STUCK, name, "warm", part, 10) for name, part in (
        (planted.FIRST, 1.0), (planted.SIGN, 0.9), (planted.SIZED, 0.8))]  # fmt: skip
    lines.append((planted.COPIES, planted.RANKED, "warm", 0.7, 10))
    found = planted.judge(pd.DataFrame(lines, columns=[*planted.KEYS, "mean", "seeds"]))
    assert [holds for _, holds in found] == [True, True, False, True]
    assert "8 of 10 confirmed seeds" in found[2][0]
    lines.append((planted.COPIES, planted.RANKED, CEILING, 0.8, 10))
    found = planted.judge(pd.DataFrame(lines, columns=[*planted.KEYS, "mean", "seeds"]))
    assert "0.70 (0.6 wanted, 0.80 can be known)" in found[-1][0]
