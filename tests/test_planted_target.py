"""Planted causes: what is planted, how it is judged, and that a known effect is found."""

import pandas as pd
import pytest
import torch

from krepes.reproduce import planted
from krepes.reproduce.retraining import Recipe, Study
from krepes.views import GaussianNoise


@pytest.fixture
def study(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    monkeypatch.setattr(planted, "SIZE", 3)
    monkeypatch.setattr(planted, "AGAIN", 2)
    X, test, reference = (torch.randn(size, 5, generator=draw) for size in (30, 16, 20))
    y, y_test, y_reference = (torch.arange(size) % 3 for size in (30, 16, 20))
    recipe = Recipe("noise", width=12, out=4, epochs=3)
    return Study(X, test, reference, y, y_test, y_reference, GaussianNoise(0.1), recipe, "barlow_twins", seed=0)


def test_a_batch_holds_near_copies_and_the_other_rows_are_as_they_were(study):
    found = planted.planted(study, {2: 5})
    assert (found.X[6:9] - study.test[5]).abs().max() < 6 * planted.NOISE
    kept = torch.arange(30) // 3 != 2
    assert torch.equal(found.X[kept], study.X[kept]) and not torch.equal(found.X[6:9], study.X[6:9])


def test_effects_are_differences_to_all_rows_and_predictions_sums_over_a_batch(study, monkeypatch):
    effect, error = planted.retrained(study, [0, 1])
    assert effect.shape == error.shape == (8, 2) and (error > 0).all()
    found = planted.predicted(study, [0, 1])
    assert set(found) == {"warm", "lazy", "gradient dot product", "latent cosine"}
    assert all(values.shape == (8, 2) and values.isfinite().all() for values in found.values())


def test_a_prediction_is_judged_by_name_sign_and_size():
    effect = torch.tensor([0.0, 0.2, -0.1])
    assert planted.judged(torch.tensor([0.0, 0.1, -0.05]), effect, 1) == {
        planted.FIRST: 1.0, planted.SIGN: 1.0, planted.SIZED: 1.0, planted.RATIO: pytest.approx(0.5),
    }  # fmt: skip
    assert list(planted.judged(torch.tensor([0.0, -0.1, -0.2]), effect, 1).values())[:3] == [0.0, 0.0, 0.0]
    assert planted.judged(torch.tensor([0.0, 0.7, 0.2]), effect, 1)[planted.SIZED] == 0.0


def test_claims_count_confirmed_seeds():
    lines = [(planted.STUCK, name, "warm", part, 10) for name, part in (
        (planted.FIRST, 1.0), (planted.SIGN, 0.9), (planted.SIZED, 0.8))]  # fmt: skip
    lines.append((planted.COPIES, planted.RANKED, "warm", 0.7, 10))
    found = planted.judge(pd.DataFrame(lines, columns=[*planted.KEYS, "mean", "seeds"]))
    assert [holds for _, holds in found] == [True, True, False, True]
    assert "8 of 10 confirmed seeds" in found[2][0]
