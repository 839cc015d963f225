"""The estimator: sklearn's manners, runs that repeat to the byte, refusals, and a step that lowers every objective."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from krepes.errors import InvalidInputError, NotFittedError, RankDeficientKernelError, RunFolderError
from krepes.kernels.classic import RBF, Linear
from krepes.kernels.entk import EmpiricalNTK
from krepes.model import Krepes
from krepes.objectives import OBJECTIVES, BarlowTwins
from krepes.runs.store import MANIFEST
from krepes.views import GaussianNoise, ViewStream


@pytest.fixture
def X(generator):
    centres = 3 * torch.randn(4, 5, generator=generator)
    return centres[torch.arange(300) % 4] + 0.5 * torch.randn(300, 5, generator=generator)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def model(**changed):
    settings = {"m": 20, "h": 6, "augment": GaussianNoise(0.3), "reference": 64, "progress": False}
    return Krepes(RBF(2.0), **settings | changed)


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 8))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_step_lowers_every_objective(name, X):
    fitted = model(objective=name).fit(X)
    assert fitted.solution_.loss_after < fitted.solution_.loss_before
    assert fitted.solution_.converged


def test_transform_is_the_kernel_model(X):
    fitted = model(objective=BarlowTwins(centre=False)).fit(X)
    K = fitted.kernel_(X[:7], fitted.points_).double()
    expected = K @ (fitted.A0_ + fitted.dA_) + fitted.gamma_
    torch.testing.assert_close(fitted.transform(X[:7]), expected, rtol=1e-6, atol=1e-6)  # float32 kernel
    assert float(fitted.gamma_.norm()) > 0  # the uncentred loss moves the shift
    torch.testing.assert_close(
        fitted.A0_.T @ fitted.K_mm_ @ fitted.A0_, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_transform_holds_a_piece_of_the_rows_at_a_time(X, monkeypatch):
    fitted = model().fit(X)
    whole, seen = fitted.transform(X), []
    rows = Krepes._model_rows
    monkeypatch.setattr(Krepes, "_model_rows", lambda self, x: seen.append(len(x)) or rows(self, x))
    fitted.set_params(memory_budget=4 * 100 * (32 * 40 + 2 * X[0].numel() * X.element_size()))
    torch.testing.assert_close(fitted.transform(X), whole, rtol=1e-5, atol=1e-6)  # float32 kernel
    assert seen == [100, 100, 100]


def test_landmark_points_are_the_views_that_the_pass_saw(X):
    stream = ViewStream(X, GaussianNoise(0.3), seed=5)
    fitted = model().fit(stream)
    views = torch.cat([V for _, V in stream], dim=1)  # (p, n, d)
    torch.testing.assert_close(fitted.points_.reshape(2, 20, 5), views[:, fitted.landmarks_], rtol=0, atol=0)


def test_sklearn_manners(X):
    first = model(h=4)
    copy = clone(first)
    assert copy.get_params()["h"] == 4 and copy.set_params(h=3).h == 3
    assert first.fit(X) is first
    torch.testing.assert_close(first.fit_transform(X), first.transform(X), rtol=0, atol=0)
    with pytest.raises(NotFittedError, match="call fit"):
        copy.transform(X)
    with pytest.raises(NotFittedError, match="call fit"):
        _ = copy.moments_


def test_batch_size_changes_results_at_round_off_only(X):
    fits = [model().fit(ViewStream(X, GaussianNoise(0.3), batch_size=b)) for b in (64, 1024)]
    assert fits[0].landmarks_.equal(fits[1].landmarks_)
    # The kernel rows are float32: their sums differ in the last bits.
    torch.testing.assert_close(fits[0].A_, fits[1].A_, rtol=1e-4, atol=1e-5 * float(fits[0].A_.abs().max()))


@pytest.mark.parametrize("kernel", [lambda: RBF(2.0), encoder], ids=["rbf", "encoder"])
@pytest.mark.parametrize("objective", ["barlow_twins", "kae", "byol"])
def test_same_seed_gives_the_same_bytes(kernel, objective, X, tmp_path):
    for name in ("one", "two"):
        settings = {"objective": objective, "augment": GaussianNoise(0.3), "m": 20, "h": 6, "progress": False}
        Krepes(kernel(), **settings).fit(X).save(tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.parametrize("objective", ["barlow_twins", "kpca", "kae", "simclr"])
def test_a_loaded_run_is_the_saved_one(objective, X, tmp_path):
    network = encoder()
    saved = Krepes(network, objective=objective, m=20, h=6, augment=GaussianNoise(0.3), progress=False).fit(
        X, ids=[f"row-{i}" for i in range(300)]
    )
    saved.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", network)
    torch.testing.assert_close(loaded.transform(X), saved.transform(X), rtol=1e-6, atol=1e-6)  # float32 kernel
    assert loaded.landmark_ids_ == [f"row-{i}" for i in saved.landmarks_.tolist()]
    assert loaded.solution_.to_dict() == saved.solution_.to_dict()
    assert (loaded.moments_ is None) == (saved.moments_ is None)
    assert loaded.objective_ == saved.objective_


def test_a_loaded_run_can_be_saved_and_fitted_again(X, tmp_path):
    saved = model(objective="vicreg", landmarks="uniform").fit(X)
    saved.save(tmp_path / "run")
    loaded = Krepes.load(tmp_path / "run", RBF(2.0))
    loaded.save(tmp_path / "again")
    assert content(tmp_path / "run") == content(tmp_path / "again")
    refitted = clone(loaded).set_params(augment=GaussianNoise(0.3)).fit(X)  # the same objective, the same selector
    torch.testing.assert_close(refitted.A_, saved.A_, rtol=0, atol=0)


def test_a_run_of_a_kernel_is_not_loaded_with_a_bare_network(X, tmp_path):
    network = encoder()
    Krepes(EmpiricalNTK(network, heads=2), m=10, h=4, augment=GaussianNoise(0.3), progress=False).fit(X).save(
        tmp_path / "run"
    )
    with pytest.raises(RunFolderError, match=r"'heads': 2.*Pass a kernel"):
        Krepes.load(tmp_path / "run", network)


def test_dict_inputs_are_saved_too(X, tmp_path):
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 8)

        def forward(self, a, b):
            return torch.tanh(self.fc(a)) + self.fc(b)

    class Jitter(GaussianNoise):
        def __call__(self, X, noise):
            return {key: super(Jitter, self).__call__(x, noise) for key, x in X.items()}

        def plain(self, X):
            return X

    torch.manual_seed(0)
    network = TwoInputs()
    data = {"a": X, "b": X.flip(1)}
    saved = Krepes(network, m=10, h=4, augment=Jitter(0.1), progress=False).fit(data)
    saved.save(tmp_path / "run")
    part = {key: x[:5] for key, x in data.items()}
    torch.testing.assert_close(Krepes.load(tmp_path / "run", network).transform(part), saved.transform(part))


def test_a_killed_fit_resumes_to_the_same_result(X, tmp_path, monkeypatch):
    stream = ViewStream(X, GaussianNoise(0.3), batch_size=2)  # 150 batches, three shards
    undisturbed = model().fit(stream)
    read, calls = stream.views_of, []

    def killed(indices):
        calls.append(indices)
        if len(calls) > 120:
            raise KeyboardInterrupt
        return read(indices)

    monkeypatch.setattr(stream, "views_of", killed)
    with pytest.raises(KeyboardInterrupt):
        model().fit(stream, workdir=tmp_path)
    monkeypatch.undo()
    assert len(list((tmp_path / "moments").glob("*.safetensors"))) == 1
    resumed = model().fit(stream, workdir=tmp_path)
    torch.testing.assert_close(resumed.A_, undisturbed.A_, rtol=0, atol=0)


def test_non_convergence_is_warned_of_and_saved(X, tmp_path):
    with pytest.warns(UserWarning, match="relative residual"):
        fitted = model(objective="spectral", tol=1e-30).fit(X)
    fitted.save(tmp_path / "run")
    details = json.loads((tmp_path / "run" / MANIFEST).read_text())["solution"]
    assert details["converged"] is False and details["residual"] > 1e-30


REFUSED = {
    "m > n": ({"m": 301}, {}, "m=301 is out of range: it must be between 1 and 300"),
    "h > q": ({"h": 41}, {}, "h=41 is out of range"),
    "no augmentation": ({"augment": None}, {}, "compares 2 views of a sample and none were given"),
    "unknown objective": ({"objective": "dino"}, {}, "objective='dino' is unknown"),
    "unknown init": ({"init": "zeros"}, {}, "init='zeros' is unknown"),
    "unknown landmarks": ({"landmarks": "best"}, {}, "method='best' is unknown"),
    "ids": ({}, {"ids": [1, 2]}, "2 row ids were given for 300 samples"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_do(name, X):
    settings, arguments, words = REFUSED[name]
    with pytest.raises(InvalidInputError, match=words):
        model(**settings).fit(X, **arguments)


def test_too_many_dimensions_for_the_kernel_are_refused(X):
    repeated = X[:4].repeat(75, 1)
    with pytest.raises((RankDeficientKernelError, InvalidInputError), match=r"rank|positive residual|found"):
        model(augment=GaussianNoise(1e-9), h=12).fit(repeated)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "leverage-nystrom"])
def test_dimensions_made_of_rounding_are_refused(landmarks, X):
    # Five features: a centred linear kernel has rank 5, and in float32 its sixth eigenvalue is rounding, near 1e-8.
    with pytest.raises(RankDeficientKernelError, match="numerical rank 5"):
        Krepes(Linear(), m=20, h=6, landmarks=landmarks, augment=GaussianNoise(0.1), progress=False).fit(X)


def test_ids_of_a_shuffled_column_are_taken_by_place(X):
    ids = pd.Series([f"row-{i}" for i in range(300)], index=np.arange(300)[::-1])
    fitted = model().fit(X, ids=ids)
    assert fitted.landmark_ids_ == [f"row-{i}" for i in fitted.landmarks_.tolist()]


def test_not_finite_data_are_refused(X):
    X[17, 2] = float("nan")
    with pytest.raises(InvalidInputError, match="NaN"):
        model().fit(X)


def test_foreign_and_broken_run_folders_are_refused_and_kept(X, tmp_path):
    fitted = model().fit(X)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("keep me")
    with pytest.raises(RunFolderError, match="is not a run folder"):
        fitted.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "todo.txt").read_text() == "keep me"

    fitted.save(tmp_path / "run")
    with pytest.raises(RunFolderError, match="kernel given to load is not that of"):
        Krepes.load(tmp_path / "run", RBF(3.0))
    shutil.copytree(tmp_path / "run", tmp_path / "short")
    arrays = next((tmp_path / "short").glob("arrays-*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[:-100])
    with pytest.raises(RunFolderError, match="truncated or altered"):
        Krepes.load(tmp_path / "short", RBF(2.0))
    arrays.unlink()
    with pytest.raises(RunFolderError, match="cannot be read"):
        Krepes.load(tmp_path / "short", RBF(2.0))
    (tmp_path / "run" / MANIFEST).write_text("{}")
    with pytest.raises(RunFolderError, match="not a manifest of ours"):
        Krepes.load(tmp_path / "run", RBF(2.0))


def test_another_encoder_is_refused(X, tmp_path):
    network = encoder()
    Krepes(network, m=10, h=4, augment=GaussianNoise(0.3), progress=False).fit(X).save(tmp_path / "run")
    network[0].bias.data[0] += 1e-3
    with pytest.raises(RunFolderError, match="weights of the run"):
        Krepes.load(tmp_path / "run", network)


def test_the_same_weights_in_another_network_are_refused(X, tmp_path):
    network = encoder()
    Krepes(network, m=10, h=4, augment=GaussianNoise(0.3), progress=False).fit(X).save(tmp_path / "run")
    with pytest.raises(RunFolderError, match="the forward pass is another one"):
        Krepes.load(tmp_path / "run", nn.Sequential(network[0], nn.ReLU(), network[2]))


def test_a_fit_that_fails_leaves_no_old_coefficients(X):
    fitted = model().fit(X)
    with pytest.raises(RankDeficientKernelError):
        fitted.set_params(kernel=Linear(), landmarks="uniform", h=7).fit(X)
    with pytest.raises(NotFittedError):
        fitted.transform(X)


def test_saving_over_a_run_replaces_it(X, tmp_path):
    model().fit(X).save(tmp_path / "run")
    model(h=3).fit(X).save(tmp_path / "run")
    assert Krepes.load(tmp_path / "run", RBF(2.0)).A_.shape[1] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_memory_mapped_data(X, tmp_path):
    np.save(tmp_path / "X.npy", X.numpy())
    mapped = model().fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    torch.testing.assert_close(mapped.A_, model().fit(X).A_, rtol=0, atol=0)
