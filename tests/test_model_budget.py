"""The memory budget reaches every part of a fit, changes no result, and refuses before any work what cannot fit."""

import json
import tempfile

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from krepes import batches
from krepes.attribution import attributions
from krepes.budget import Budget
from krepes.errors import InvalidInputError
from krepes.kernels.classic import RBF
from krepes.landmarks import RPCholesky, pool
from krepes.landmarks.pool import open_pool
from krepes.model import Krepes
from krepes.views import GaussianNoise, HorizontalFlip, ViewStream
from peak import peak_rise

D, TIGHT = 500, 400_000  # 300 samples of 2000 bytes take more than half of the tight budget


@pytest.fixture
def X(generator):
    centres = torch.randn(6, D, generator=generator)
    return centres[torch.arange(300) % 6] + 0.2 * torch.randn(300, D, generator=generator)


def model(kernel=None, **changed):
    settings = {"m": 20, "h": 6, "augment": GaussianNoise(0.1), "reference": 32, "progress": False}
    return Krepes(RBF(20.0) if kernel is None else kernel, **settings | changed)


@pytest.mark.parametrize("selector", ["rpcholesky", "kmeans++", "leverage-nystrom", "uniform"])
def test_candidates_beyond_the_budget_go_to_a_file_and_the_same_landmarks_are_chosen(
    selector, X, tmp_path, monkeypatch
):
    whole = model(landmarks=selector).fit(X)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made, in_file = [], pool.in_file
    monkeypatch.setattr(pool, "in_file", lambda *args: made.append(in_file(*args)) or made[-1])
    stream = ViewStream(X, GaussianNoise(0.1), batch_size=16)
    read, plain = [], stream.plain
    monkeypatch.setattr(stream, "plain", lambda indices: read.append(len(indices)) or plain(indices))
    tight = model(landmarks=selector, memory_budget=TIGHT).fit(stream)
    assert [type(one) for one in made] == [np.memmap]
    assert max(read) * 4 * D <= TIGHT / 2
    assert tight.landmarks_.equal(whole.landmarks_)
    assert_close(tight.A_, whole.A_, rtol=1e-4, atol=1e-5 * float(whole.A_.abs().max()))  # float32 rows in other chunks
    assert not list(tmp_path.iterdir())


def test_a_pool_keeps_the_nesting_and_the_order(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = {"a": torch.randn(50, 3, generator=generator), "b": torch.arange(100).reshape(50, 2)}
    indices = torch.randperm(50, generator=generator)[:30]

    def read(some):
        return {key: values[some] for key, values in data.items()}

    for size, files in ((10**6, 0), (30 * 28 * 4, 0), (30 * 28 * 4 - 1, 1)):
        with open_pool(read, indices, Budget(size), raw=28, kept=28) as found:
            assert [isinstance(leaf, np.memmap) for leaf in found.values()] == [bool(files)] * 2
            assert not list(tmp_path.iterdir())  # a file without a name goes with its last use, whatever happens
            assert_close(batches.take(found, slice(None)), read(indices), rtol=0, atol=0)
        assert not list(tmp_path.iterdir())


def test_tokens_of_different_lengths_come_back_at_one_length_from_a_file(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lengths = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    ids = [torch.arange(1, int(n) + 1) for n in lengths]

    def read(some):  # each piece as long as its longest text
        width = int(lengths[some].max())
        tokens = torch.stack([torch.nn.functional.pad(ids[i], (0, width - len(ids[i]))) for i in some.tolist()])
        return {"input_ids": tokens, "attention_mask": (tokens > 0).long(), "number": lengths[some]}

    with open_pool(read, torch.arange(8), Budget(400), raw=16, kept=24) as found:
        assert isinstance(found["input_ids"], np.memmap)
        assert_close(batches.take(found, slice(None)), read(torch.arange(8)), rtol=0, atol=0)
        assert_close(
            batches.take(found, torch.tensor([5, 0]))["input_ids"][1], torch.tensor([1, 2, 3] + [0] * 6), rtol=0, atol=0
        )
    assert not list(tmp_path.iterdir())


def test_what_is_large_to_read_and_small_to_keep_stays_in_memory(generator, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data, seen = torch.randn(40, 100, generator=generator), []

    def read(some):
        seen.append(len(some))
        return data[some, :2]

    with open_pool(read, torch.arange(40), Budget(2 * 40 * 400), raw=400, kept=8) as found:
        assert not list(tmp_path.iterdir())
        assert_close(found, data[:, :2], rtol=0, atol=0)
    assert seen == [9, 9, 9, 9, 4]  # 9 (400 + 8) bytes are within an eighth


def test_the_selector_of_a_model_has_the_budget_of_the_model(X, monkeypatch):
    seen = []
    call = RPCholesky.__call__
    monkeypatch.setattr(
        RPCholesky, "__call__", lambda self, *args, **kwargs: seen.append(self.budget) or call(self, *args, **kwargs)
    )
    model(memory_budget="512MiB").fit(X)
    model(landmarks=RPCholesky(memory_budget="1G"), memory_budget="512MiB").fit(X)
    assert [str(budget) for budget in seen] == ["512 MiB", "1 GiB"]


def test_inputs_of_the_autoencoder_count_and_are_refused_before_any_work(X):
    class Untouched(nn.Module):
        def forward(self, x):
            raise AssertionError("the encoder ran")

    # E[k xᵀ] is 41 x 500 numbers, three times while it is merged, beside 3 x 4 x 41² of the moments.
    with pytest.raises(InvalidInputError, match=r"q=40 landmark points in p=2 views and d=500 inputs.* 638.1 KiB"):
        model(Untouched(), objective="kae", memory_budget="600K").fit(X)
    with pytest.raises(InvalidInputError, match=r"q=40 landmark points in p=2 views: .* 157.6 KiB"):
        model(Untouched(), memory_budget="120K").fit(X)
    assert model(objective="kae", memory_budget="2M").fit(X).moments_.KX.shape == (41, 500)


def test_rows_and_plain_batches_stay_within_the_budget(X):
    fitted = model(objective="simclr", memory_budget=TIGHT).fit(X)
    assert fitted.data_.budget == Budget(TIGHT)
    # A sample, its two views and their stack, in a quarter of the budget.
    assert fitted.stream_.batch_size == TIGHT // 4 // (5 * 4 * D)


def test_a_budget_in_words_is_kept_as_bytes_and_is_the_default_of_what_comes_after(X, tmp_path):
    fitted = model(memory_budget="1 MiB").fit(X)
    fitted.save(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["parameters"]["memory_budget"] == 2**20
    loaded = Krepes.load(tmp_path / "run", RBF(20.0))
    assert loaded.memory_budget == 2**20
    sizes = [rows.stop - rows.start for rows, _ in attributions(loaded.set_params(memory_budget=100_000), X)]
    assert sizes == [2] * 150  # 2 samples of 8 arrays of 40 numbers and 4 of 500 in a quarter
    with pytest.raises(InvalidInputError, match="'much' is no budget"):
        model(memory_budget="much").fit(X)


@pytest.mark.slow
def test_many_large_candidates_stay_within_the_budget(tmp_path):
    """4000 candidates of 150 kB are 573 MiB, as is the file: the process may gain the budget of 128 MiB, all told."""
    code = """
        import sys
        import numpy as np, torch
        from krepes.kernels.classic import RBF
        from krepes.model import Krepes
        from krepes.views import GaussianNoise

        torch.set_num_threads(1)
        X = np.memmap(sys.argv[1], mode="w+", dtype=np.float32, shape=(4000, 37632))
        for start in range(0, 4000, 100):
            X[start:start + 100] = np.random.default_rng(start).normal(size=(100, 37632))
        X.flush()
        del X
        X = np.memmap(sys.argv[1], mode="r", dtype=np.float32, shape=(4000, 37632))
        settings = {"m": 20, "h": 4, "reference": 32, "memory_budget": "128M", "progress": False}
        fit = Krepes(RBF(300.0), augment=GaussianNoise(0.1), **settings).fit
        with measured():
            fit(X)
    """
    gained = peak_rise(code, tmp_path / "x")
    print(f"peak gained {gained / 2**20:.0f} MiB")
    assert gained < 2**27


def test_reference_and_landmarks_beyond_their_share_lie_in_files_and_change_nothing(tmp_path):
    X = torch.randn(60, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten()).double()
    stream = ViewStream(X, HorizontalFlip(0.5), p=2)
    how = {"m": 12, "h": 4, "reference": 40, "progress": False}
    whole = Krepes(encoder, **how).fit(stream)
    small = Krepes(encoder, memory_budget="1M", **how).fit(stream)
    assert isinstance(whole.points_, torch.Tensor) and isinstance(whole.reference_, torch.Tensor)
    for name in ("points_", "reference_"):
        assert isinstance(getattr(small, name), np.memmap)
        np.testing.assert_array_equal(getattr(small, name), getattr(whole, name).numpy())
    torch.testing.assert_close(small.A_, whole.A_, rtol=1e-8, atol=1e-10)
    small.save(tmp_path / "run")
    again = Krepes.load(tmp_path / "run", encoder)
    assert isinstance(again.points_, np.memmap) and isinstance(again.reference_, np.memmap)
    torch.testing.assert_close(again.transform(X), small.transform(X), rtol=0, atol=0)
    whole.save(tmp_path / "whole")
    assert isinstance(Krepes.load(tmp_path / "whole", encoder).points_, torch.Tensor)
