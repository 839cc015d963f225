"""What was measured against an answer is said with it: on the terminal, in its details and in the report."""

import warnings

import pytest
import torch
from torch import nn

from krepes import Krepes
from krepes.encoders import MLP
from krepes.influence import How, caution, influence_of, similarity
from krepes.objectives import BYOL, BarlowTwins, VICReg
from krepes.report.sections.counterfactual import trust_line
from krepes.views import GaussianNoise

CONVOLUTIONS = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten()).eval()


@pytest.mark.parametrize(
    ("encoder", "loss", "words"),
    [
        (CONVOLUTIONS, "barlow_twins", "convolutions with batch norm"),
        (nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3)), "barlow_twins", None),
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "simclr", None),
        (MLP(3, out=2), "byol", "two trainings on the same rows agree little"),
        (MLP(3, out=2), "vicreg", None),
    ],
)
def test_replays_are_doubted_where_they_failed(encoder, loss, words):
    for method in ("lazy", "warm", "replay"):
        said = caution.of_replay(encoder, loss, method)
        assert said is None if words is None else words in said


@pytest.mark.parametrize(("objective", "doubted"), [(BYOL(), True), (VICReg(), True), (BarlowTwins(), False)])
def test_the_kernel_model_is_doubted_where_it_failed(objective, doubted):
    assert (caution.of_surrogate(objective, "pca") is not None) == doubted


@pytest.mark.parametrize("method", ["lazy", "surrogate"])
def test_an_answer_carries_its_caution(method, generator):
    X = torch.randn(20, 16, generator=generator)
    objective = "byol" if method == "surrogate" else "barlow_twins"
    model = Krepes(CONVOLUTIONS, objective=objective, m=8, h=3, augment=GaussianNoise(0.1), progress=False).fit(X)
    with pytest.warns(UserWarning, match="BYOL through the kernel|convolutions with batch norm"):
        found = influence_of(model, similarity(model, X[:1], X[1:2]), method=method, how=How(steps=2), progress=False)
    assert found.details["caution"]
    plain = Krepes(MLP(16, out=4), m=8, h=3, augment=GaussianNoise(0.1), progress=False).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = influence_of(plain, similarity(plain, X[:1], X[1:2]), method=method, how=How(steps=2), progress=False)
    assert found.details["caution"] is None


def test_the_report_says_it_unless_the_run_was_proved():
    assert trust_line(None).endswith("run krepes prove RUN.")
    assert trust_line(None, "of such little is known").endswith("RUN. Of such little is known.")
    assert "little" not in trust_line("trust row-level causes here", "of such little is known")
