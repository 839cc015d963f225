"""The measures of the intervention: LDS, noise ceiling, outcomes and projected gradients, without real data."""

import pandas as pd
import pytest
import torch
from torch.nn.functional import cosine_similarity

from krepes import influence as inf
from krepes.encoders import MLP
from krepes.encoders.losses import barlow_twins
from krepes.reproduce import intervention, lds, retraining
from krepes.reproduce.retraining import MARGIN, PAIR, Recipe, Study
from krepes.views import GaussianNoise


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def halves(draw):
    """Eighty halves of forty rows."""
    return torch.stack([torch.randperm(40, generator=draw) < 20 for _ in range(80)]).double()


@pytest.fixture
def study(draw):
    X, test, reference = (torch.randn(size, 5, generator=draw) for size in (24, 8, 30))
    y, y_test, y_reference = (torch.arange(size) % 3 for size in (24, 8, 30))
    recipe = Recipe("noise", width=12, out=4, epochs=3)
    return Study(X, test, reference, y, y_test, y_reference, GaussianNoise(0.1), recipe, seed=0)


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
    found = retraining.measure(Z, R, study.y_test, study.y_reference)
    mean = R.mean(0)
    for i in range(4):
        cosines = cosine_similarity(Z[i] - mean, R - mean)
        same = study.y_reference == study.y_test[i]
        torch.testing.assert_close(found[MARGIN][i], cosines[same].mean() - cosines[~same].mean())
        torch.testing.assert_close(found[PAIR][i], cosine_similarity(Z[i] - mean, Z[4 + i] - mean, dim=0))


def test_retraining_holds_half_the_rows_and_depends_on_the_seed_alone(study):
    found, again = (retraining.retrain(study, halves=3, retrainings=2) for _ in range(2))
    assert found.member.sum(1).tolist() == [12, 12, 12]
    for name in (MARGIN, PAIR):
        assert found.outcomes[name].shape == (3, 2, 4)
        assert torch.equal(found.outcomes[name], again.outcomes[name])
        assert not torch.equal(found.outcomes[name][:, 0], found.outcomes[name][:, 1])


def test_row_losses_have_the_gradient_of_the_loss_where_its_moments_stand_still(draw):
    Y = torch.randn(50, 4, generator=draw, dtype=torch.float64)
    Y_a, Y_b = ((Y + 0.3 * torch.randn(50, 4, generator=draw, dtype=torch.float64)) for _ in range(2))
    Z_a, Z_b = ((Y - Y.mean(0)) / Y.std(0, correction=0) for Y in (Y_a, Y_b))

    def loss(A, B):
        C = A.T @ B / len(A)
        return (1 - C.diagonal()).square().sum() + 0.0051 * (C.square().sum() - C.diagonal().square().sum())

    torch.testing.assert_close(loss(Z_a, Z_b), barlow_twins(Y_a, Y_b), rtol=1e-3, atol=0)  # batch norm adds 1e-5
    contribution = lds.RowLoss.of(Z_a, Z_b)
    Z_a.requires_grad_()
    (expected,) = torch.autograd.grad(loss(Z_a, Z_b), Z_a)
    (found,) = torch.autograd.grad(contribution(Z_a, Z_b).mean(), Z_a)
    torch.testing.assert_close(found, expected)


def test_projected_gradients_against_explicit_gradients(study, monkeypatch):
    """An identity in place of the projection: the scores are those of whole gradients, one backward pass each."""
    torch.manual_seed(0)
    encoder = MLP(5, width=6, depth=1, out=3)
    size = sum(parameter.numel() for parameter in encoder.parameters())
    monkeypatch.setattr(lds, "PROJECTED", size)
    monkeypatch.setattr(lds, "DRAWS", 3)
    monkeypatch.setattr(lds.torch, "randn", lambda *shape, **_: torch.eye(size) * size**0.5)
    found = lds.projected_gradients(study, encoder)

    def gradient(value):
        parts = torch.autograd.grad(value, list(encoder.parameters()), retain_graph=True)
        return torch.cat([part.reshape(-1) for part in parts]).double()

    Y_a, Y_b = (encoder(V) for V in study.copies(3).views_of(torch.arange(3 * 24)))
    losses = lds.RowLoss.of(Y_a.detach(), Y_b.detach())(Y_a, Y_b)
    Phi = torch.stack([gradient((losses[i] + losses[24 + i] + losses[48 + i]) / 3) for i in range(24)])
    S = Phi.T @ Phi
    inverse = torch.linalg.inv(S + lds.RIDGE * S.trace() / size * torch.eye(size, dtype=torch.float64))
    for name, values in study.outcomes(encoder).items():
        for j in range(4):
            expected = torch.stack([-(gradient(values[j]) @ inverse @ phi) for phi in Phi])
            torch.testing.assert_close(found[name][:, j], expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_influence_of_a_row_is_the_sum_over_its_copies(study, monkeypatch):
    monkeypatch.setattr(lds, "H", 4)
    monkeypatch.setattr(lds, "DRAWS", 3)
    torch.manual_seed(0)
    encoder = MLP(5, width=12, depth=1, out=4).eval()
    found = lds.explain(study, encoder)
    for scores in found.values():
        assert {name: tuple(of.shape) for name, of in scores.items()} == {MARGIN: (24, 4), PAIR: (24, 4)}
    model = lds.fit(study, encoder)
    assert model.landmarks_.tolist() == list(range(24)) and model.n_samples_ == 72
    x, partner, same = study.test[2:3], study.test[6:7], study.y_reference == study.y_test[2]
    outcomes = [
        inf.pull(model, x, study.reference[same], study.reference[~same], reference=study.reference),
        inf.similarity(model, x, partner, reference=study.reference),
    ]
    values = torch.from_numpy(inf.influence_of(model, outcomes, progress=False).values)
    for k, name in enumerate((MARGIN, PAIR)):
        expected = torch.stack([values[i, k] + values[24 + i, k] + values[48 + i, k] for i in range(24)])
        size = float(expected.abs().max())  # kernel rows in float32 differ in the last bits with the batch
        torch.testing.assert_close(found[lds.OURS][name][:, 2], expected, rtol=0, atol=1e-5 * size)


def test_judge_asks_for_more_than_every_baseline():
    rows = [
        (data, outcome, score, value)
        for data in intervention.DATA
        for outcome in (MARGIN, PAIR)
        for score, value in ((intervention.OURS, 0.3), ("latent cosine", -0.2), (intervention.CEILING, 0.7))
    ]
    table = pd.DataFrame(rows, columns=[*intervention.KEYS, "mean"]).assign(spread=0.0)
    assert all(holds for _, holds in intervention.judge(table))
    table.loc[table["score"] == "latent cosine", "mean"] = -0.4
    assert [holds for _, holds in intervention.judge(table)] == [False] * 6 + [True]
    assert len(intervention.draw(table).axes) == 6
