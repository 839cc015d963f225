"""Planted outliers: what is planted, what is measured, and that only what retraining confirms is counted."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from krepes.encoders.call import call
from krepes.proof.subject import MARGIN
from krepes.reproduce import outliers, planted
from krepes.reproduce.scale import find_scale
from krepes.reproduce.trial import Trial
from studies import small_study


@pytest.fixture
def study(monkeypatch):
    for module in (planted, outliers):
        monkeypatch.setattr(module, "SIZE", 3)
        monkeypatch.setattr(module, "AGAIN", 2)
    return small_study((30, 16, 20), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", outliers.OUTLIERS)
def test_one_batch_holds_outliers_and_the_other_rows_are_as_they_were(study, kind):
    found = outliers.planted(study, 2, kind)
    kept = torch.arange(30) // 3 != 2
    assert torch.equal(found.X[kept], study.X[kept]) and not torch.equal(found.X[6:9], study.X[6:9])
    assert torch.equal(found.X, outliers.planted(study, 2, kind).X)  # the same noise again


def test_the_outcome_is_the_mean_margin_by_hand(study):
    encoder = study.record(0).encoder
    Z = call(encoder, study.reference).detach()
    U = torch.nn.functional.normalize(Z - Z.mean(0), dim=1)
    cosines, same = U @ U.T, study.y_reference[:, None] == study.y_reference
    by_hand = [row[own].mean() - row[~own].mean() for row, own in zip(cosines, same, strict=True)]
    found = outliers.mean_margin(study, partial(call, encoder))
    torch.testing.assert_close(found, torch.stack(by_hand).mean()[None], atol=1e-5, rtol=1e-4)
    assert study.first == MARGIN


def test_a_batch_far_from_all_others_is_the_farthest(study):
    bright = outliers.planted(study, 4, "over-exposed")
    far = outliers.distances(bright, bright.record(0).encoder)
    assert far.shape == (8,) and (far > 0).all() and int(far.argmax()) == 4


def found_by(study, monkeypatch, effect):
    """Rows of a run whose retrainings show ``effect`` for the planted batch."""
    outcomes = torch.zeros(9, 2, 1).double() + 0.001 * torch.tensor([1.0, -1.0])[:, None]
    outcomes[1] += effect  # of seed 0 batch 0 is planted
    monkeypatch.setattr(outliers, "open_study", lambda *_: study)
    monkeypatch.setattr(outliers, "retrained", lambda *_: outcomes)
    said = torch.tensor([0.1, 0, 0, 0, 0, 0, 0, -0.2])[:, None].double()
    monkeypatch.setattr(outliers, "predicted", lambda *_: {"warm": said})
    rows = outliers.run(Trial(find_scale("quick"), seed=0, data_dir=None, encoders=Path())).rows
    return rows[rows["planted"] == "noise"].set_index(["score", "measure"])["value"]


def test_a_score_is_judged_where_retraining_confirms_the_batch_alone(study, monkeypatch):
    found = found_by(study, monkeypatch, 0.1)
    assert found["retraining", planted.CONFIRMED] == 1
    assert found["warm", planted.FIRST] == 0 and found["warm", planted.SIGN] == found["warm", planted.SIZED] == 1
    unconfirmed = found_by(study, monkeypatch, 0.001)
    assert unconfirmed["retraining", planted.CONFIRMED] == 0 and "warm" not in unconfirmed.index.get_level_values(0)


def test_claims_count_confirmed_seeds():
    lines = []
    for kind in outliers.OUTLIERS:
        lines.append((kind, planted.CONFIRMED, "retraining", 0.8, 10))
        shares = ((planted.FIRST, 1.0), (planted.SIGN, 0.875), (planted.SIZED, 1.0))
        lines += [(kind, name, "warm", share, 8) for name, share in shares]
    lines = [line for line in lines if line[0] != "blank" or line[2] != "warm"]
    lines[-1] = (*lines[-1][:3], 0.0, 10)
    found = outliers.judge(pd.DataFrame(lines, columns=[*planted.KEYS, "mean", "seeds"]))
    assert [holds for _, holds in found] == [True, False, True] * 2 + [False] * 3
    assert "7 of 8 confirmed seeds" in found[1][0] and "0 of 0 confirmed seeds" in found[-1][0]
