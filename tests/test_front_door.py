"""What `Krepes` accepts from Python: landmarks by index, plain functions, DataFrames, containers, kinds of kernel."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.testing import assert_close

import krepes
from krepes.attribution import attribute, attribute_stream
from krepes.data import Schema, TabularEncoder
from krepes.encoders import MLP
from krepes.errors import InvalidInputError, RunFolderError
from krepes.influence import similarity
from krepes.kernels.auto import KernelChoice
from krepes.kernels.classic import RBF
from krepes.kernels.sketch import SketchedNTK
from krepes.landmarks import SELECTORS, KMeansPlusPlus, given_landmarks, make_selector
from krepes.model import Krepes
from krepes.runs import store
from krepes.views import Compose, FeatureDrop, FunctionAugmentation, GaussianNoise, Noise, ViewStream


@pytest.fixture
def X(generator):
    centres = 3 * torch.randn(4, 5, generator=generator)
    return centres[torch.arange(120) % 4] + 0.5 * torch.randn(120, 5, generator=generator)


def model(kernel=None, **changed):
    settings = {"m": 12, "h": 4, "augment": GaussianNoise(0.3), "reference": 64, "progress": False}
    return Krepes(RBF(2.0) if kernel is None else kernel, **settings | changed)


# Landmarks that the user names.


@pytest.mark.parametrize(
    "named", [[7, 3, 110, 40, 60], np.array([3, 7, 40, 60, 110]), torch.tensor([110, 7, 3, 60, 40])], ids=type
)
def test_landmarks_can_be_named_by_index(named, X, tmp_path):
    fitted = model(landmarks=named).fit(X, ids=[f"row {i}" for i in range(120)])
    assert fitted.landmarks_.tolist() == [3, 7, 40, 60, 110]
    assert fitted.landmark_ids_ == ["row 3", "row 7", "row 40", "row 60", "row 110"]
    assert_close(fitted.points_.reshape(2, 5, 5), fitted.stream_.views_of(torch.tensor([3, 7, 40, 60, 110])))
    fitted.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    assert loaded.landmarks == [3, 7, 40, 60, 110]
    assert_close(clone(loaded).set_params(augment=GaussianNoise(0.3)).fit(X).A_, fitted.A_, rtol=0, atol=0)


def test_all_samples_can_be_landmarks_whatever_m_and_candidates_say(X, tmp_path):
    fitted = model(landmarks="all", objective="kpca", m=500, candidates=50).fit(X)
    assert fitted.landmarks_.tolist() == list(range(120)) and fitted.m_ == 120
    fitted.save(tmp_path / "run")
    assert Krepes.load(tmp_path / "run", RBF(2.0)).landmarks == "all"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([1, 1, 2], "2 of them distinct"),
        ([-1, 3], "between -1 and 3"),
        ([0, 120], "lie between 0 and 119"),
        ([0.5, 1.0], "list of whole numbers"),
        ([True, False], "list of whole numbers"),
        ([], "list of whole numbers"),
        ([[1, 2]], "list of whole numbers"),
        (3, "list of whole numbers"),
        (["a"], "list of whole numbers"),
    ],
    ids=str,
)
def test_landmarks_that_are_none_are_refused(wrong, words, X):
    with pytest.raises(InvalidInputError, match=words):
        model(landmarks=wrong).fit(X)


def test_a_selector_is_recorded_by_its_settings_and_made_again(X, tmp_path):
    for landmarks in (*SELECTORS, KMeansPlusPlus(space="kernel", block=3)):
        model(landmarks=landmarks).fit(X).save(tmp_path / "run")
        assert Krepes.load(tmp_path / "run", RBF(2.0)).landmarks == landmarks
    record = json.loads((tmp_path / "run" / "manifest.json").read_text())["selector"]
    assert record == {"name": "kmeans++", "space": "kernel", "block": 3}
    assert make_selector(record) == KMeansPlusPlus(space="kernel", block=3)
    assert given_landmarks(KMeansPlusPlus(), 5) is None


# Plain functions as augmentations.


def jitter(X):
    return X + 0.3 * torch.randn_like(X)


def by_generator(X, generator):
    return X + 0.3 * torch.randn(X.shape, generator=generator)


def by_keyword(X, *, generator):
    return X + 0.3 * torch.randn(X.shape, generator=generator)


def by_noise(X, noise):
    return X + 0.3 * noise.normal("jitter", X.shape[1])


FUNCTIONS = [jitter, by_generator, by_keyword, by_noise, nn.Dropout(0.3)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", "module"))
def test_views_by_a_function_replay_whatever_the_batches(function, X):
    stream = ViewStream(X, FunctionAugmentation(function), seed=3, batch_size=50)
    state = torch.random.get_rng_state()
    views = torch.cat([V for _, V in stream], dim=1)
    assert torch.equal(torch.random.get_rng_state(), state)  # the user's own random numbers are left alone
    for other in (stream, stream.with_batch_size(7)):
        assert_close(torch.cat([V for _, V in other], dim=1), views, rtol=0, atol=0)
    chosen = torch.tensor([110, 3, 40])
    assert_close(stream.views_of(chosen), views[:, chosen], rtol=0, atol=0)
    assert not torch.equal(views[0], views[1])
    alike = ViewStream(torch.ones(20, 5), FunctionAugmentation(function), seed=3)
    assert len(alike.views_of(torch.arange(20)).flatten(0, 1).unique(dim=0)) > 5  # each sample has its own
    assert not torch.equal(torch.cat([V for _, V in stream.with_seed(4)], dim=1), views)


def test_a_model_takes_a_function_and_describes_it_by_name(X):
    fitted = model(augment=jitter).fit(X)
    assert_close(fitted.points_.reshape(2, 12, 5), fitted.stream_.views_of(fitted.landmarks_), rtol=0, atol=0)
    assert fitted.stream_.describe()["augment"] == {
        "name": "FunctionAugmentation",
        "function": f"{__name__}.jitter",
    }
    again = model(augment=FunctionAugmentation(jitter)).fit(X)
    assert_close(again.A_, fitted.A_, rtol=0, atol=0)
    assert clone(fitted).augment is jitter


def test_a_function_of_nested_samples_keeps_the_nesting(X):
    stream = ViewStream({"a": X, "b": X[:, :2]}, FunctionAugmentation(lambda S: {"a": jitter(S["a"]), "b": S["b"]}))
    views = stream.views_of(torch.arange(4))
    assert views["a"].shape == (2, 4, 5) and torch.equal(views["b"][0], X[:4, :2])


def test_functions_that_do_not_repeat_or_return_no_samples_are_refused(X):
    rng = np.random.default_rng(0)
    noise = Noise(torch.arange(3), view=0, seed=0)
    with pytest.raises(InvalidInputError, match="not torch's, or keeps a state"):
        FunctionAugmentation(lambda x: x + float(rng.normal()))(X[:3], noise)
    with pytest.raises(InvalidInputError, match=r"must return samples as tensors .* \['ndarray'\]"):
        FunctionAugmentation(lambda x: x.numpy())(X[:3], noise)
    with pytest.raises(InvalidInputError, match="made 6 samples out of 3"):
        ViewStream(X[:3], FunctionAugmentation(lambda x: torch.cat([x, x]))).views_of(torch.arange(3))
    with pytest.raises(InvalidInputError, match="augment must be an augmentation .* got float"):
        model(augment=0.3).fit(X)


# DataFrames.


@pytest.fixture
def table(X):
    frame = pd.DataFrame(X[:, :3].numpy().copy(), columns=["age", "hours", "income"])
    frame["city"] = np.array(["Bonn", "Ulm", "Kiel", "Jena"])[np.arange(120) % 4]
    frame.loc[5, "hours"] = np.nan
    frame.index = [f"person {i}" for i in range(120)]
    return frame  # age, hours and its indicator, income, four cities: 8 numbers


def test_a_dataframe_is_encoded_by_its_inferred_schema_and_has_the_views_of_the_command_line(table):
    fitted = model(augment=None).fit(table)
    encoding = TabularEncoder(Schema.infer(table)).fit(table)
    groups = tuple(tuple(columns) for columns in encoding.groups.values())
    stream = ViewStream(encoding.transform(table), Compose(FeatureDrop(0.2, groups=groups), GaussianNoise(0.1)))
    expected = model().fit(stream)
    assert fitted.stream_.fingerprint() == stream.fingerprint()
    assert_close(fitted.A_, expected.A_, rtol=0, atol=0)
    assert fitted.encoding_.to_dict() == encoding.to_dict()
    assert fitted.landmark_ids_ == [f"person {i}" for i in fitted.landmarks_.tolist()]
    assert model(augment=None).fit(table, ids=range(120)).landmark_ids_ == fitted.landmarks_.tolist()


def test_a_model_of_a_table_explains_tables(table, tmp_path):
    torch.manual_seed(0)
    fitted = model(MLP(8, width=16, out=4), augment=None).fit(table)
    part = table.iloc[10:15]
    encoded = fitted.encoding_.transform(part)
    fitted.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", fitted.kernel)
    for known in (fitted, loaded):
        assert_close(known.transform(part), known.transform(encoded), rtol=0, atol=0)
        assert_close(attribute(known, part).scores, attribute(known, encoded).scores, rtol=0, atol=0)
        top = attribute_stream(known, part, k=3, memory_budget=2 * 8 * 8 * 24)
        assert_close(top.scores, attribute_stream(known, encoded, k=3).scores, rtol=1e-5, atol=1e-8)  # float32 pieces
    outcome = similarity(fitted, part.iloc[:1], part.iloc[1:2])
    assert float(outcome.value(fitted.solution_.theta)) == pytest.approx(
        float(torch.cosine_similarity(*fitted.transform(part)[:2], dim=0)), abs=1e-4
    )  # a float32 kernel of one row and of five


def test_tables_that_do_not_fit_are_refused(table, X):
    with pytest.raises(InvalidInputError, match="4 columns are encoded as 8 numbers, and the encoder takes 12"):
        model(MLP(12, width=16, out=4), augment=None).fit(table)
    with pytest.raises(InvalidInputError, match="fitted on arrays"):
        model().fit(X).transform(table)
    with pytest.raises(InvalidInputError, match="city"):
        model(augment=None).fit(table).transform(table.drop(columns="city"))

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 4)

        def forward(self, x):
            raise RuntimeError("no such op")

    with pytest.raises(RuntimeError, match="no such op"):  # the width is right, so the error is let through
        model(Broken(), augment=None).fit(table)


def test_anything_that_becomes_a_pandas_table_is_one(table):
    class Polars:
        columns = table.columns

        def to_pandas(self):
            return table.reset_index(drop=True)

    fitted = model(augment=None).fit(Polars())
    assert_close(fitted.A_, model(augment=None).fit(table).A_, rtol=0, atol=0)
    assert fitted.landmark_ids_ == fitted.landmarks_.tolist()


# Containers of scikit-learn.


def test_transform_returns_the_container_that_is_asked_for(X, table):
    fitted = model().fit(X)
    assert isinstance(fitted.transform(X), torch.Tensor)
    plain = fitted.transform(X)
    frame = fitted.set_output(transform="pandas").transform(X[:3])
    assert frame.columns.tolist() == ["krepes0", "krepes1", "krepes2", "krepes3"] and len(frame) == 3
    np.testing.assert_array_equal(fitted.transform(X).to_numpy(), plain.numpy())
    assert isinstance(fitted.embed(X), torch.Tensor)  # what audits compute with
    assert isinstance(clone(fitted).fit_transform(X), pd.DataFrame)
    of_table = model(augment=None).set_output(transform="pandas").fit(table)
    assert of_table.transform(table).index.equals(table.index)


def test_a_model_is_a_step_of_a_pipeline(X):
    steps = make_pipeline(FunctionTransformer(lambda x: 2 * x), model())
    assert_close(steps.fit(X).transform(X), model().fit(2 * X).transform(2 * X), rtol=0, atol=0)


# Kinds of kernel, and damping in its own unit.


def test_the_kind_of_kernel_is_asked_for_and_kept(X, tmp_path):
    torch.manual_seed(0)
    network = MLP(5, width=32, out=8)
    with pytest.raises(InvalidInputError, match="'fast' is unknown"):
        model(network, kernel_kind="fast").fit(X)
    fitted = model(network, kernel_kind="sketch", q=256).fit(X)
    assert isinstance(fitted.base_kernel_, SketchedNTK) and fitted.base_kernel_.q == 256
    assert fitted.kernel_choice_ == KernelChoice("sketch", "as asked, with q=256 features")
    fitted.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["kernel_choice"] == {
        "kind": "sketch",
        "reason": "as asked, with q=256 features",
    }
    loaded = Krepes.load(tmp_path / "run", network)
    assert loaded.kernel_choice_ == fitted.kernel_choice_ and loaded.kernel_kind == "sketch"
    assert_close(loaded.transform(X), fitted.transform(X), rtol=1e-6, atol=1e-6)
    assert model(network, kernel_kind="exact").fit(X).kernel_choice_.kind == "exact"
    model(network).fit(X).save(tmp_path / "auto")
    assert "multiply-adds" in Krepes.load(tmp_path / "auto", network).kernel_choice_.reason  # as it was chosen then
    assert model().fit(X).kernel_choice_ == KernelChoice("given", "a kernel was passed")


def test_candidates_of_a_sketch_are_read_in_pieces_and_chosen_alike(X):
    torch.manual_seed(0)
    network = MLP(5, width=32, out=8)
    wide = torch.cat([X, torch.zeros(120, 1500)], dim=1)

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x[:, :5])

    settings = {"kernel_kind": "sketch", "q": 64, "reference": 16, "augment": GaussianNoise(0.1), "centre": False}
    whole = model(First(), **settings).fit(wide)
    tight = model(First(), **settings, memory_budget="400K").fit(wide)  # 720 kB of candidates, 30 kB of features
    assert tight.landmarks_.equal(whole.landmarks_)


def test_damping_can_be_absolute(X):
    found = model(damping=0.7, relative=False).fit(X)
    assert found.solution_.damping_absolute == pytest.approx(0.7, rel=1e-12)
    unit = found.solution_.damping_absolute / found.solution_.damping
    same = model(damping=0.7 / unit).fit(X)
    assert_close(same.A_, found.A_, rtol=1e-10, atol=1e-12)
    assert found.refit(relative=True).solution_.damping == pytest.approx(0.7)


def test_old_manifests_are_refused_in_words(X, tmp_path):
    model().fit(X).save(tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text()) | {"kernel_choice": "given"}
    manifest.pop("run_sha256")
    path.write_text(json.dumps({**manifest, "run_sha256": store._digest(manifest)}))
    with pytest.raises(RunFolderError, match="does not describe a model of this version"):
        Krepes.load(tmp_path / "run", RBF(2.0))


def test_the_module_and_the_function_of_influence_have_names_of_their_own():
    from krepes import influence

    assert influence.__name__ == "krepes.influence" and not hasattr(influence, "influence")
    assert krepes.influence_of is influence.influence_of
