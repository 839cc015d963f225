"""Results show themselves: rich HTML that escapes data, and one figure each."""

import pandas as pd
import pytest
import torch

from krepes.attribution import attribute
from krepes.data import Schema
from krepes.influence import influence_of, similarity
from krepes.kernels import RBF
from krepes.model import Krepes
from krepes.report import build_report
from krepes.views import GaussianNoise

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def model():
    X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    ids = [f"{EVIL}{i}" for i in range(120)]
    return Krepes(RBF(2.0), m=20, h=4, augment=GaussianNoise(0.1), progress=False).fit(X, ids=ids), X


@pytest.fixture(scope="module")
def results(model):
    fitted, X = model
    pair = similarity(fitted, X[:1], X[1:2], name=EVIL)
    ids = [f"{EVIL}{i}" for i in range(120)]
    return {
        "attribution": attribute(fitted, X[:3], ids=[EVIL, "b", "c"]),
        "influence": influence_of(fitted, [pair], ids=ids, progress=False),
        "report": build_report(fitted, X_test=X[:40], counterfactual=False, title=EVIL),
        "schema": Schema.infer(pd.DataFrame({EVIL: [1.5, 2.5, 3.25], "b": ["x", "x", "x"]})),
    }


@pytest.mark.parametrize("name", ["attribution", "influence", "report", "schema"])
def test_html_is_escaped_and_the_figure_has_something_to_show(results, name):
    html = results[name]._repr_html_()
    assert EVIL not in html and "&lt;script&gt;" in html.replace("&amp;lt;", "&lt;").replace("&amp;gt;", "&gt;")
    figure = results[name].plot()
    assert figure.axes and (figure.axes[0].patches or figure.axes[0].texts)


def test_a_landmark_that_attracts_is_never_listed_as_repelling(results, model):
    found = results["attribution"]
    frame = found.both(20)
    for sample, part in frame.groupby("sample", sort=False):
        assert part["landmark"].is_unique, sample
        assert ((part["effect"] == "attracts") == (part["score"] > 0)).all()
        assert ((part["effect"] == "repels") == (part["score"] < 0)).all()
    assert list(frame["sample"].unique()) == [EVIL, "b", "c"]
