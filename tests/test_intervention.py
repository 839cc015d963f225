"""Influence by intervention: does the predicted effect of rows agree with encoders retrained without them?

Protocol: an encoder is trained with Barlow Twins on every row, explained once, and retrained on random halves of the
rows. A score of rows predicts the outcome of a half by its sum over the half; the linear datamodelling score (LDS) is
the Spearman correlation of prediction and retrained outcome over halves, averaged over test samples.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

from krepes import influence as inf
from krepes.attribution import attribute, kernel_similarity
from krepes.encoders import MLP, pretrain
from krepes.model import Krepes
from krepes.views import GaussianNoise, ViewStream

pytestmark = pytest.mark.slow

TRAIN, TEST = 500, 100  # digits; the remaining 1,197 are the reference that outcomes are measured against
HALVES, SEEDS, EPOCHS = 80, 2, 60
H, DRAWS = 64, 8
AUGMENT = GaussianNoise(0.15)


@dataclass(frozen=True)
class Digits:
    """Training rows, test samples and the reference; labels serve the outcome alone."""

    X: torch.Tensor
    test: torch.Tensor
    reference: torch.Tensor
    y: torch.Tensor
    y_test: torch.Tensor
    y_reference: torch.Tensor


@dataclass(frozen=True)
class Retrained:
    """Which rows each half held, ``(halves, n)``, and its retrained embeddings of test and reference samples."""

    member: torch.Tensor
    Z_test: torch.Tensor  # (halves, seeds, t, d)
    Z_reference: torch.Tensor  # (halves, seeds, r, d)


@pytest.fixture(scope="module")
def digits():
    raw = load_digits()
    order = torch.randperm(len(raw.target), generator=torch.Generator().manual_seed(0))
    X, y = torch.tensor(raw.data / 16, dtype=torch.float32)[order], torch.tensor(raw.target)[order]
    sizes = [TRAIN, TEST, len(y) - TRAIN - TEST]
    return Digits(*X.split(sizes), *y.split(sizes))


def train(X, seed):
    torch.manual_seed(seed)
    encoder = MLP(64, width=256, depth=2, out=64)
    stream = ViewStream(X, AUGMENT, seed=seed, batch_size=125)
    pretrain(encoder, stream, epochs=EPOCHS, projector=(128,), lr=2e-3, seed=seed, progress=False)
    return encoder.eval()


@pytest.fixture(scope="module")
def retrained(digits):
    draw = torch.Generator().manual_seed(1)
    halves = [torch.randperm(TRAIN, generator=draw)[: TRAIN // 2].sort().values for _ in range(HALVES)]
    member = torch.stack([torch.zeros(TRAIN).index_fill(0, half, 1.0) for half in halves]).double()
    found = [[], []]
    for number, half in enumerate(halves):
        encoders = [train(digits.X[half], 100 + SEEDS * number + k) for k in range(SEEDS)]
        for kept, X in zip(found, (digits.test, digits.reference), strict=True):
            kept.append(torch.stack([encoder(X).detach() for encoder in encoders]))
    return Retrained(member, *(torch.stack(kept) for kept in found))


@pytest.fixture(scope="module")
def explained(digits):
    encoder = train(digits.X, seed=0)
    stream = ViewStream(digits.X, AUGMENT, seed=7)
    return encoder, Krepes(encoder, m=TRAIN, h=H, progress=False).fit(stream)


def centred_directions(Z, mean):
    return torch.nn.functional.normalize(Z - mean, dim=-1)


def margins(Z_test, Z_reference, same):
    """Mean centred cosine to the reference samples of the own class minus that to the others, ``(..., t)``."""
    mean = Z_reference.mean(-2, keepdim=True)
    S = centred_directions(Z_test, mean) @ centred_directions(Z_reference, mean).mT
    return (S * same).sum(-1) / same.sum(-1) - (S * ~same).sum(-1) / (~same).sum(-1)


def lds(scores, member, outcomes):
    """Mean and standard error over test samples, for scores ``(n, t)`` and outcomes ``(halves, t)``."""
    predicted = (member @ scores.double()).numpy()
    found = [spearmanr(p, o).statistic for p, o in zip(predicted.T, outcomes.numpy().T, strict=True)]
    return float(np.mean(found)), float(np.std(found) / len(found) ** 0.5)


def ceiling(outcomes):
    """What a perfect prediction would reach, from the agreement of two retrainings of a half (Spearman-Brown)."""
    pairs = zip(*(outcomes[:, k].numpy().T for k in range(2)), strict=True)
    agreement = float(np.mean([spearmanr(a, b).statistic for a, b in pairs]))
    return (2 * agreement / (1 + agreement)) ** 0.5


def margin_outcomes(model, digits):
    """The margins of the surrogate; rows of each class and of the rest are shared by the samples of that class."""
    reference = inf.rows(model, digits.reference)

    def rows(X):
        return inf.rows(model, X, reference=reference)

    classes = digits.y_reference.unique().tolist()
    groups = {c: rows(digits.reference[digits.y_reference == c]) for c in classes}
    others = {c: rows(digits.reference[digits.y_reference != c]) for c in classes}
    return [
        inf.pull(model, rows(digits.test[i : i + 1]), groups[c], others[c], name=f"margin {i}")
        for i, c in enumerate(digits.y_test.tolist())
    ]


def baseline_scores(encoder, model, digits):
    """Similarity-type scores of every row for every test sample, ``(n, t)`` each; every row is a landmark."""
    with torch.no_grad():
        mean = encoder(digits.reference).mean(0)
        cosine = centred_directions(encoder(digits.X), mean) @ centred_directions(encoder(digits.test), mean).T
    assert torch.equal(model.landmarks_, torch.arange(TRAIN))
    attribution = attribute(model, digits.test)
    return {
        "latent cosine": cosine,
        "kernel similarity": kernel_similarity(attribution).T,
        "influence score IS": attribution.scores.T,
        "directional decomposition": attribution.directional.T,
        "same-group count": (digits.y[:, None] == digits.y_test).double(),
        "random": torch.randn(TRAIN, TEST, generator=torch.Generator().manual_seed(2)),
    }


def test_influence_predicts_retraining_better_than_every_similarity(digits, retrained, explained):
    encoder, model = explained
    same = digits.y_test[:, None] == digits.y_reference
    outcomes = margins(retrained.Z_test, retrained.Z_reference, same).double()
    scores = baseline_scores(encoder, model, digits)
    wanted = margin_outcomes(model, digits)
    for name, draws in (("influence, realised views", 0), (f"influence, {DRAWS} draws", DRAWS)):
        scores[name] = torch.from_numpy(inf.influence_of(model, wanted, draws=draws, progress=False).values)
    found = {name: lds(score, retrained.member, outcomes.mean(1)) for name, score in scores.items()}
    table = pd.DataFrame.from_dict(found, orient="index", columns=["LDS", "standard error"])
    print(f"\n{table.round(3)}\nnoise ceiling {ceiling(outcomes):.3f}, relative damping {model.solution_.damping:.2g}")
    best = table.LDS.pop(f"influence, {DRAWS} draws")
    rivals = table.LDS[[name for name in table.index if not name.startswith("influence,")]]
    assert best >= 0.2
    assert best > rivals.abs().max()
