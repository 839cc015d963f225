"""Supporting and opposing landmarks of a probe's decision: loops, exact sums, and the command."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import exceptions
from threadpoolctl import threadpool_info, threadpool_limits
from torch.testing import assert_close
from typer.testing import CliRunner

import krepes
from krepes.audit import LinearProbe, explain_decision, probes
from krepes.audit.labels import shared_codes
from krepes.cli.app import app
from krepes.encoders import MLP
from krepes.errors import ConvergenceWarning, InvalidInputError
from krepes.kernels import RBF
from krepes.model import Krepes
from krepes.views import GaussianNoise
from oracles import audit as oracle

TIGHT = {"rtol": 0, "atol": 1e-10}


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (260,), generator=generator)
    X = torch.randn(260, 4, generator=generator).double()
    X[:, :3] += 2 * torch.nn.functional.one_hot(y, 3)
    return X, np.array(["ant", "bee", "cat"])[y]


def explained(model, data, **options):
    X, words = data
    judged = (X[200:], words[200:])
    return explain_decision(
        model, X[200:210], (X[:200], words[:200]), words[model.landmarks_], judged=judged, **options
    )


def test_parts_equal_loops_over_landmarks_and_views(data):
    X, words = data
    kernel = RBF(2.0)
    model = Krepes(kernel, m=12, h=3, augment=GaussianNoise(0.1), centre=False, cosine=False, progress=False)
    model.fit(X[:200])
    found = explained(model, data)
    names, (codes,) = shared_codes(training=words[:200])
    probe = LinearProbe.fit(model.embed(X[:200]), codes)

    def k(x, z):
        return float(kernel(x[None], z[None])[0, 0])

    for i in range(3):
        first, second, margin, parts = oracle.decision_margin(
            k,
            model.A_.tolist(),
            (model.p_, 12),
            probe.weights.tolist(),
            probe.bias.tolist(),
            model.gamma_.tolist(),
            X[200 + i],
            model.points_,
        )
        assert (found.predicted[i], found.against[i]) == (names[first], names[second])
        assert_close(found.contributions[i], torch.tensor(parts, dtype=torch.float64), **TIGHT)
        assert float(found.margin[i]) == pytest.approx(margin, abs=1e-10)
    assert found.encoder_says is None and found.trust.encoder is None


@pytest.mark.parametrize("init", ["pca", "encoder"])
def test_landmarks_and_rest_sum_to_the_margin_of_the_embedding(data, init):
    X, words = data
    torch.manual_seed(0)
    encoder = MLP(4, out=5, width=16).double()
    width = {} if init == "encoder" else {"h": 5}
    model = Krepes(encoder, m=20, init=init, augment=GaussianNoise(0.1), progress=False, **width).fit(X[:200])
    found = explained(model, data, ids=[f"s{i}" for i in range(10)])
    _, (codes,) = shared_codes(training=words[:200])
    logits = LinearProbe.fit(model.embed(X[:200]), codes).logits(model.embed(X[200:210]))
    best, second = logits.topk(2, dim=1).values.T
    assert_close(found.contributions.sum(1), best - second - found.rest, **TIGHT)
    assert bool((found.margin > 0).all())
    if init == "encoder":
        assert float(found.rest.abs().max()) > 0.1  # the encoder's own embedding is no landmark's

    table = found.to_frame(3)
    for name, part in table.groupby("sample", sort=False):
        parts = found.contributions[int(name[1:])]
        supporting = part[part["effect"] == "supports"]["contribution"].tolist()
        assert supporting == pytest.approx(sorted(parts[parts > 0].tolist(), reverse=True)[:3])
        assert (part[part["effect"] == "opposes"]["contribution"] < 0).all()
    of_landmark = dict(zip(model.landmark_ids_, words[model.landmarks_], strict=True))
    assert table["class"].tolist() == [of_landmark[id] for id in table["landmark"]]
    assert found.trust.samples == 60 and found.trust.surrogate > found.trust.majority
    assert 0 <= found.trust.alike <= 1 and "both probes decide alike" in str(found.trust)


def test_what_is_left_without_landmarks_is_the_mean_over_choices(data):
    X, _ = data
    model = Krepes(RBF(2.0), m=5, h=3, augment=GaussianNoise(0.1), progress=False).fit(X[:200])
    found = explained(model, data)
    table = found.summary(2)
    for i, row in table.iterrows():
        parts, margin = found.contributions[i].numpy(), float(found.margin[i])
        pairs = [margin - parts[a] - parts[b] for a in range(5) for b in range(a)]
        assert row["without_random"] == pytest.approx(np.mean(pairs))
        assert row["without_supporting"] == pytest.approx(min(pairs))
        nearest = np.argsort(-found.kernel[i].numpy())[:2]
        assert row["without_nearest"] == pytest.approx(margin - parts[nearest].sum())
        assert row["margin"] == pytest.approx(row["supporting"] + row["opposing"] + row["rest"])
    with pytest.raises(InvalidInputError, match="k=6 is out of range"):
        found.to_frame(6)


def test_one_call_explains_decisions_and_needs_labels(data):
    X, words = data
    settings = {"augment": GaussianNoise(0.1), "m": 15, "h": 3, "progress": False}
    found = krepes.explain(RBF(2.0), X, labels=words, **settings).decision(X[:2], ids=["a", "b"])
    assert found.sample_ids == ["a", "b"] and set(found.to_frame(2)["sample"]) == {"a", "b"}
    with pytest.raises(InvalidInputError, match="pass labels="):
        krepes.explain(RBF(2.0), X, **settings).decision(X[:2])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("decision")
    frame = pd.DataFrame({
        "who": [f"p{i}" for i in range(160)],
        "age": rng.normal(size=160),
        "pay": rng.normal(size=160),
    })
    frame["rich"] = np.where(frame["age"] + frame["pay"] > 0, "yes", "no")
    frame["only"] = "x"
    frame.to_csv(folder / "people.csv", index=False)
    frame.drop(columns="rich").to_csv(folder / "new.csv", index=False)
    flags = [
        "--id-column",
        "who",
        "--label",
        "rich",
        "--exclude",
        "only",
        "-m",
        "20",
        "-h",
        "4",
        "--epochs",
        "1",
        "--quiet",
    ]
    invoke("fit", folder / "people.csv", *flags, "--out", folder / "run")
    return folder


def invoke(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_shows_parts_margin_and_trust(run):
    told = json.loads(invoke("explain", run / "run", "--row", "p17", "--decision", "--top", "20", "--json"))
    (decision,) = told["decisions"]
    total = sum(row["contribution"] for row in told["landmarks"])
    assert decision["margin"] == pytest.approx(total + decision["rest"], abs=1e-9)
    assert {row["effect"] for row in told["landmarks"]} == {"supports", "opposes"}
    assert {row["class"] for row in told["landmarks"]} == {"yes", "no"} == {decision["predicted"], decision["against"]}
    assert told["trust"]["samples"] == 32 and told["trust"]["surrogate"] > 0.5
    shown = " ".join(invoke("explain", run / "run", "--row", "p17", "--decision").split())
    assert "supports" in shown and "trust: on 32 held-out samples a probe on the surrogate is right in" in shown


def test_new_samples_without_labels_are_decided_and_say_that_nothing_judges(run):
    told = invoke("explain", run / "run", "--row", "p3", "--decision", "--data", run / "new.csv")
    assert "nothing says how often the probe is right" in " ".join(told.split())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--decision", "--strip", "x.png"], "--strip draws what the embedding is made of"),
        (["--label", "rich"], "pass --decision too"),
        (["--decision", "--label", "only"], "show 1 class, at least two"),
        (["--decision", "--label", "rihc"], "rich"),
    ],
)
def test_refusals_name_their_flags(run, flags, words):
    with pytest.raises(InvalidInputError, match=words):
        CliRunner().invoke(app, ["explain", str(run / "run"), "--row", "p17", *flags], catch_exceptions=False)


def test_a_probe_is_fitted_by_one_thread_and_leaves_the_others_as_they_were(data, monkeypatch):
    def blas():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    seen, fit = [], probes.LogisticRegression.fit
    monkeypatch.setattr(probes.LogisticRegression, "fit", lambda *how: seen.append(blas()) or fit(*how))
    X, (_, (codes,)) = data[0], shared_codes(training=data[1])
    with threadpool_limits(2, user_api="blas"):
        before = blas()
        LinearProbe.fit(X, codes)
        probes.probe(X[:200].numpy(), data[1][:200], X[200:].numpy(), data[1][200:])
        assert blas() == before
    assert len(seen) == 2 and {threads for one in seen for threads in one} == {1}


def test_a_probe_that_is_stopped_says_so_in_our_words(generator, recwarn, monkeypatch):
    X = torch.randn(60, 5, dtype=torch.float64, generator=generator).numpy()
    y = (X[:, 0] > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match="probe of 5 dimensions and 2 classes was stopped after 1 iterations"):
        probes._regression(X, y, max_iter=1)
    probes._regression(X, y, max_iter=300)
    assert not recwarn.list, "what scikit-learn advises is done already"
    fit = probes.LogisticRegression.fit

    def told(self, *given):
        warnings.warn("lbfgs failed to converge after 7 iterations", exceptions.ConvergenceWarning, stacklevel=1)
        warnings.warn("what others say", FutureWarning, stacklevel=1)
        return fit(self, *given)

    monkeypatch.setattr(probes.LogisticRegression, "fit", told)
    with pytest.warns(FutureWarning, match="what others say"), pytest.warns(ConvergenceWarning, match="a linear probe"):
        probes._regression(X, y, max_iter=300)
