"""The front door: one call, DataFrames in, the same names everywhere."""

import pandas as pd
import pytest
import torch
from torch import nn

import krepes
from krepes.data.synthetic import applicants
from krepes.errors import InvalidInputError
from krepes.kernels import RBF
from krepes.views import GaussianNoise


@pytest.fixture(scope="module")
def people():
    return applicants(200, seed=0).frame


def test_dir_lists_what_can_be_used():
    assert {"Krepes", "explain", "attribute", "__version__"} <= set(dir(krepes))
    assert all(getattr(krepes, name) is not None for name in krepes.__all__)


def test_one_call_explains_a_network_on_tensors():
    torch.manual_seed(0)
    X = torch.randn(150, 5)
    encoder = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8))
    labels = (X[:, 0] > 0).int().tolist()
    found = krepes.explain(encoder, X, augment=GaussianNoise(0.1), labels=labels, m=30, h=6, progress=False)
    assert found.study.t == 30 and found.model.n_samples_ == 120
    assert {"trust", "consistency", "faithfulness", "spectrum"} <= set(found.audits)
    assert "Label consistency" in str(found) and found._repr_html_().startswith("<iframe")
    assert not set(found.study.test_ids) & set(found.study.train_ids)


def test_one_call_explains_a_table(people, tmp_path):
    groups = {"group": people["group"].tolist()}
    found = krepes.explain(RBF(3.0), people.drop(columns="group"), groups=groups, m=30, h=6, progress=False)
    assert "features" in found.audits and "groups" in found.audits
    made = found.of(people.drop(columns="group").head(2)).to_frame(k=1)
    assert len(made) == 2
    pair = people.drop(columns="group")
    assert found.influence(pair.iloc[:1], pair.iloc[1:2], progress=False).values.shape == (160, 1)
    assert found.save(tmp_path / "r.html").read_text().startswith("<!")


def test_a_plain_function_makes_views_and_landmarks_can_be_named():
    X = torch.randn(60, 3)

    def jitter(x):
        return x + 0.1 * torch.randn_like(x)

    model = krepes.Krepes(RBF(2.0), augment=jitter, landmarks=[3, 1, 7], h=2, progress=False).fit(X)
    assert model.landmarks_.tolist() == [1, 3, 7]
    again = krepes.Krepes(RBF(2.0), augment=jitter, landmarks=[3, 1, 7], h=2, progress=False).fit(X)
    assert torch.equal(model.embed(X), again.embed(X))
    everyone = krepes.Krepes(RBF(2.0), augment=jitter, landmarks="all", h=2, progress=False).fit(X)
    assert len(everyone.landmarks_) == 60


def test_set_output_gives_a_frame(people):
    model = krepes.Krepes(RBF(3.0), m=20, h=3, progress=False).set_output(transform="pandas")
    table = people.drop(columns="group")
    assert isinstance(model.fit(table).transform(table.head(4)), pd.DataFrame)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"holdout": 0.0}, "holdout=0.0"),
        ({"labels": [1]}, "labels has 1 entries for 50"),
        ({"ids": range(3)}, "ids has 3"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_fit(given, words):
    with pytest.raises(InvalidInputError, match=words):
        krepes.explain(RBF(2.0), torch.randn(50, 3), augment=GaussianNoise(0.1), **given)
