"""What the explorer answers: quick answers are those of the model, selections mean what they say, nothing is lost."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from krepes import Krepes, attribute
from krepes.attribution.baselines import latent_cosine
from krepes.audit.features import FeatureSpace
from krepes.audit.study import Study
from krepes.budget import Budget
from krepes.encoders import MLP
from krepes.errors import InvalidInputError
from krepes.explore.causes import Causes
from krepes.explore.colours import packed
from krepes.explore.compressed import why_not
from krepes.explore.maps import inside
from krepes.explore.matrix import Matrix
from krepes.explore.probing import ACCURATE, compress
from krepes.explore.room import Room
from krepes.explore.run import Run, compared
from krepes.explore.selection import Cell, Lasso, Selection
from krepes.explore.state import State
from krepes.explore.subject import of_study
from krepes.influence import influence_of, rows, similarity
from krepes.kernels import RBF
from krepes.views import GaussianNoise, ViewStream

N, T = 300, 60


@pytest.fixture(scope="module")
def data():
    g = torch.Generator().manual_seed(0)
    X = torch.randn(N + T, 6, generator=g) @ torch.randn(6, 6, generator=g)
    X[::2] += 2.0
    return X


def fitted(data, objective="barlow_twins", init="pca", m=30, h=4, **options):
    torch.manual_seed(0)
    stream = ViewStream(data[:N], GaussianNoise(0.3), seed=0)
    encoder = MLP(6, width=16, out=h)
    model = Krepes(
        encoder, objective=objective, m=m, h=None if init == "encoder" else h, init=init, progress=False, **options
    )
    return model.fit(stream)


@pytest.fixture(scope="module")
def run(data):
    order = np.random.default_rng(0).permutation(N + T)
    kind = np.where(np.arange(N + T) % 2, "right", "left")
    frame = pd.DataFrame({"kind": kind, "age": np.arange(N + T), 'it\'s "odd"': order % 3, "words": "some text"})
    tables = frame.iloc[:N], frame.iloc[N:]
    labels = kind[:N], kind[N:]
    train_ids, test_ids = [f"r{i}" for i in range(N)], [f"t{i}" for i in range(T)]
    study = Study(
        fitted(data), data[N:], test_ids, train_ids, tables=tables, labels=labels, inputs="table", k=5, title="kinds"
    )
    return Run(State.of(of_study(study), progress=False))


@pytest.mark.parametrize(
    ("objective", "init"),
    [("barlow_twins", "pca"), ("barlow_twins", "encoder"), ("vicreg", "encoder"), ("spectral", "pca")],
)
def test_quick_answers_are_those_of_the_model(data, objective, init):
    model = fitted(data, objective, init, m=60)
    found = compress(model, model.stream_, Room(Budget.of("1G")), progress=False)
    causes = Causes(found)
    assert found.error <= ACCURATE and found.rows.shape[:2] == (2, N)
    chosen = np.arange(40, 90)
    X = data[N:]
    K = torch.nn.functional.pad(model.model_rows(X), (0, 1), value=1.0)
    whole, less = causes.without(chosen, 0)
    x = found.seen(model.model_rows(X))
    torch.testing.assert_close(x @ whole, K @ model.solution_.theta)
    exact = K @ (model.without(chosen).solution_.theta - model.solution_.theta)
    assert (x @ (less - whole) - exact).norm() < 0.02 * exact.norm()
    reference = rows(model, model.reference_)
    slow = influence_of(model, similarity(model, X[:1], X[1:2], reference=reference), progress=False).values[:, 0]
    origin = found.seen(model.model_rows(model.reference_)).mean(0)
    quick = causes.influence(x[:1], x[1:2], origin)
    assert np.linalg.norm(quick - slow) < 0.02 * np.linalg.norm(slow)


def test_random_sets_are_random_and_their_products_add_up(run):
    causes = run.state.causes
    for size in (1, 7, 150, 290):
        (total,) = causes._random(size, 1, np.random.default_rng(size))
        p, _, r = causes.rows.rows.shape
        assert float(total[r, r]) == pytest.approx(size)  # the constant, squared, counts rows
    one, two = causes._random(50, 2, np.random.default_rng(0))
    assert not torch.equal(one, two)
    rest = causes._left(causes._products_of(np.arange(100)), 100)
    slow = causes._products_of(np.arange(100, N)) / (N - 100)
    torch.testing.assert_close(rest.M.permute(0, 2, 1, 3).reshape(slow.shape), slow, rtol=1e-3, atol=1e-5)


def test_an_objective_of_rows_has_no_quick_answers_and_says_so(data):
    model = fitted(data, "simclr", m=10, h=2, damping=1.0)
    assert "batch by batch" in why_not(model)
    study = Study(model, data[N:], k=5, shown=1)
    run = Run(State.of(of_study(study), progress=False))
    assert run.about()["removable"] is False
    with pytest.raises(InvalidInputError, match="krepes influence"):
        run.samples.influence(0)
    with pytest.raises(InvalidInputError, match="batch by batch"):
        run.ideas.what_if(np.arange(5), [])
    assert run.samples.page(3)["made_of"]["attracts"]


def test_a_kernel_without_an_encoder_can_be_explored(data):
    model = Krepes(RBF(4.0), m=20, h=3, augment=GaussianNoise(0.1), progress=False).fit(data[:N])
    run = Run(State.of(of_study(Study(model, data[N:], k=5, shown=1)), progress=False))
    assert run.about()["columns"] == [] and run.about()["spaces"] == ["encoder"]
    np.testing.assert_allclose(run.state.found.latent[N:], model.embed(data[N:]).numpy(), atol=1e-5)
    with pytest.raises(InvalidInputError, match="none"):
        _ = run.matrix.features


def test_what_is_gathered_is_what_the_model_says(run, data):
    model, found = run.state.subject.model, run.state.found
    slow = attribute(model, data)
    np.testing.assert_allclose(found.Z, model.embed(data).numpy(), atol=1e-5)
    np.testing.assert_allclose(found.shift, slow.shift.numpy(), atol=1e-5)
    assert (found.first == slow.top(1).indices[:, 0].numpy()).all()
    np.testing.assert_allclose(found.latent, model.encoder_.encode(data).numpy(), atol=1e-5)


def test_the_page_of_a_sample_is_that_of_the_command(run, data):
    row = N + 7
    page = run.samples.page(row)
    slow = attribute(run.state.subject.model, data[row : row + 1]).both(6)
    attracts, repels = slow[slow["score"] > 0], slow[slow["score"] < 0]
    assert [entry["row"] for entry in page["made_of"]["attracts"]] == attracts["landmark"].tolist()
    assert [entry["row"] for entry in page["made_of"]["repels"]] == repels["landmark"].tolist()
    np.testing.assert_allclose([entry["score"] for entry in page["made_of"]["repels"]], repels["score"])
    Z = run.state.found.latent.astype(float)
    Z = Z - Z.mean(0)
    cosines = latent_cosine(torch.from_numpy(Z[row : row + 1]), torch.from_numpy(Z))[0].numpy()
    cosines[row] = -2
    assert [entry["row"] for entry in page["latent"]] == np.argsort(-cosines)[:6].tolist()
    assert page["id"] == "t7" and page["split"] == "held out" and page["columns"][0] == "kind"


def test_flags_say_what_is_unusual(run):
    labels = run.cards.labels
    for row in (0, 5, N, N + 30):
        texts = " ".join(flag["text"] for flag in run.samples.page(row)["flags"])
        first = labels[run.state.landmarks[run.state.found.first[row]]]
        assert ("another class" in texts) == (first != labels[row])
        assert ("far from every landmark" in texts) == (
            run.state.found.close[row] <= np.quantile(run.state.found.close, 0.02)
        )


def test_selections_mean_what_they_say(run):
    chosen = run.selections
    assert chosen.places(Selection(ids=["t3", "r1", "t3"])).tolist() == [1, N + 3]
    assert chosen.places(Selection(where="age < 10 and kind == 'left'")).tolist() == [0, 2, 4, 6, 8]
    assert chosen.places(Selection(where="age >= 0", split="held out")).tolist() == list(range(N, N + T))
    places = run.maps.places()
    box = [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]
    slow = np.flatnonzero((np.abs(places) < 0.5).all(1))
    assert chosen.places(Selection(lasso=Lasso(polygon=box))).tolist() == slow.tolist()
    levels = run.matrix.levels("kind")
    first = levels[run.state.landmarks[run.state.found.first]]
    slow = [i for i in range(N, N + T) if levels[i] == "right" and first[i] == "left"]
    assert chosen.places(Selection(cell=Cell(column="kind", of="right", landmark="left"))).tolist() == slow
    for wrong in (
        Selection(),
        Selection(ids=["r1"], where="age < 3"),
        Selection(ids=["nobody"]),
        Selection(where="x <"),
    ):
        with pytest.raises(InvalidInputError):
            chosen.places(wrong)
    assert [entry["id"] for entry in chosen.search("R17")][:3] == ["r17", "r170", "r171"]
    assert chosen.search("some TEXT")[0]["id"] == "r0" and chosen.search("  ") == []
    frame = chosen.frame(np.array([0, N]))
    assert frame["id"].tolist() == ["r0", "t0"] and frame["split"].tolist() == ["training", "held out"]


def test_a_point_is_inside_a_polygon_by_the_even_odd_rule():
    star = np.array([(0, 3), (2, -3), (-3, 1), (3, 1), (-2, -3)], dtype=float)
    assert inside(np.array([[0.0, 0.0], [0.0, 2.0], [5.0, 5.0], [0.0, -2.5]]), star).tolist() == [
        False,
        True,
        False,
        False,
    ]


def test_every_cell_of_the_matrix_opens_its_samples(run):
    found = run.matrix.of("kind")
    assert sum(cell["count"] for cell in found["cells"]) == T == found["samples"]
    for cell in found["cells"]:
        assert len(run.matrix.members("kind", cell["of"], cell["landmark"])) == cell["count"]
    assert len(run.matrix.of("age")["groups"]) == 4
    assert run.matrix.features["features"][0]["column"] in {"kind", "age", 'it\'s "odd"', "words"}


def test_features_agree_as_the_run_says(run, monkeypatch):
    seen = []
    kept = FeatureSpace.of
    monkeypatch.setattr(FeatureSpace, "of", lambda table, **how: seen.append(how["agreement"]) or kept(table, **how))
    for agreement in ("indicator", "codes"):
        subject = replace(run.state.subject, agreement=agreement)
        Matrix(replace(run.state, subject=subject))._study(np.arange(N, N + 2), subject.test(torch.arange(2)))
    assert seen == ["indicator", "codes"]


def test_a_concept_finds_the_planted_side_and_shuffles_find_nothing(run):
    left = np.flatnonzero(run.cards.labels == "left")
    vector, found = run.ideas.concept(left, None)
    assert found["accuracy"] > 0.8 and found["p"] < 0.01 and found["fitted"] == [180, 180]
    pulled = run.ideas.along(vector)
    shift = run.state.found.shift - run.state.subject.model.gamma_.numpy()
    np.testing.assert_allclose(pulled, shift @ vector.v.numpy(), atol=1e-5)
    assert found["toward"][0]["row"] == int(pulled.argmax())
    _, chance = run.ideas.concept(*(np.flatnonzero(np.arange(N) % 4 // 2 == side) for side in (0, 1)))
    assert chance["p"] > 0.01
    for positive, negative in ((left[:5], None), (left, left)):
        with pytest.raises(InvalidInputError, match="at least 9"):
            run.ideas.concept(positive, negative)


def test_what_if_moves_samples_as_the_model_does(run, data):
    chosen = np.arange(0, 60)
    found, moved = run.ideas.what_if(np.append(chosen, N + 1), ["kind"])
    model = run.state.subject.model
    exact = (model.without(chosen).embed(data) - model.embed(data)).norm(dim=1)
    Z = model.embed(data[N:])
    size = (Z - Z.mean(0)).square().sum(1).mean().sqrt()
    assert found["overall"]["change"] == pytest.approx(float((exact[N:] / size).mean()), rel=0.05)
    np.testing.assert_allclose(moved[N:], (exact[N:] / size).numpy(), rtol=0.2, atol=0.02)
    assert found["removed"] == 60 and found["groups"][0]["what"] == "kind: left from right"
    with pytest.raises(InvalidInputError, match="none of the 2"):
        run.ideas.what_if(np.array([N, N + 1]), [])


def test_two_runs_agree_with_themselves(run):
    found = compared(run, run)
    assert found["agree"] == 1.0 and found["shared"] == N + T and found["chance"] < 0.05


def test_arrays_that_do_not_fit_are_mapped_and_go(tmp_path):
    room = Room(Budget.of("1KiB"))
    small, large = room.zeros((10,)), room.zeros((1000, 10))
    assert not isinstance(small, np.memmap) and isinstance(large, np.memmap)
    large[:] = 1
    assert large.sum() == 10_000


def test_points_beyond_the_limit_are_a_sample_that_keeps_landmarks(run, monkeypatch):
    monkeypatch.setattr("krepes.explore.maps.DRAWN", 100)
    places = run.maps.places()
    drawn = run.maps.drawn(places)
    assert len(drawn) <= 100 and set(run.state.landmarks) <= set(drawn.tolist())
    near = run.maps.drawn(places, (0.0, 0.0, 0.2, 0.2))
    assert ((places[near] >= 0) & (places[near] <= 0.2)).all() and len(near) < 100


def test_a_packed_body_can_be_read_by_its_own_rules():
    body = packed({"x": 1}, {"codes": np.arange(5, dtype=np.uint8), "values": np.arange(2, dtype=np.float32)})
    length = int.from_bytes(body[:4], "little")
    assert (4 + length) % 4 == 0 and len(body) == 4 + length + 8 + 8
