"""The pass: rows in, moments or a store out; killed and resumed, foreign, damaged, and within a budget."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from krepes.budget import Budget
from krepes.engine.moments import moments_of
from krepes.engine.rows import collect_moments, samples_within
from krepes.engine.rowstore import RowStore, store_rows
from krepes.errors import InvalidInputError, RunFolderError
from krepes.kernels.base import Kernel, Rows


class Linear(Kernel):
    """<x, z> in the dtype of the data; counts the samples it saw, and dies on demand."""

    def __init__(self, scale=1.0, die_after=None):
        self.scale, self.die_after, self.seen = scale, die_after, 0

    def prepare(self, Y):
        return Y

    def rows(self, X, prepared, *, diagonal=False, mean=None):
        self.seen += len(X)
        if self.die_after is not None and self.seen > self.die_after:
            raise KeyboardInterrupt
        return Rows(K=self.scale * X @ prepared.T, diagonal=self.scale * X.square().sum(1) if diagonal else None)

    def describe(self):
        return {"name": "linear", "scale": self.scale}


@dataclass
class Stream:
    X: torch.Tensor
    batch: int = 8

    @property
    def n(self):
        return self.X.shape[1]

    def __iter__(self):
        for start in range(0, self.n, self.batch):
            X = self.X[:, start : start + self.batch]
            yield torch.arange(start, start + X.shape[1]), X


@dataclass
class Data:
    X: torch.Tensor
    landmarks: torch.Tensor
    K: torch.Tensor
    Kbar: torch.Tensor

    def pass_over(self, take, kernel=None, batch=8, **options):
        return take(Stream(self.X, batch), kernel or Linear(), self.landmarks, self.K, progress=False, **options)


@pytest.fixture
def data(generator):
    X = torch.randn(2, 50, 5, generator=generator, dtype=torch.float64) + 2
    landmarks = X[:, :3].flatten(0, 1)
    Kbar = torch.nn.functional.pad(X @ landmarks.T, (0, 1), value=1.0)
    return Data(X, landmarks, landmarks @ landmarks.T, Kbar)


def test_the_pass_collects_the_moments_of_all_rows(data):
    found = data.pass_over(collect_moments, inputs=True, trace=True, shard_batches=2)
    expected = moments_of(data.Kbar, data.K, diagonal=data.X.square().sum(2), X=data.X)
    assert found.n == 50
    for name in ("M", "K", "KX", "trace", "XX"):
        assert_close(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 7, 50, 64])
def test_batch_size_and_budget_change_round_off_only(data, batch):
    expected = moments_of(data.Kbar, data.K)
    tight = 3 * 4 * 49 * 8 + 5 * 3 * 2 * 7 * 8  # room for five samples beside the sums
    assert samples_within(Budget(tight), p=2, q=6) == 5
    for options in ({}, {"memory_budget": tight}):
        found = data.pass_over(collect_moments, batch=batch, **options)
        assert_close(found.M, expected.M, rtol=1e-12, atol=1e-12)


def test_a_budget_too_small_for_the_moments_is_refused(data):
    with pytest.raises(InvalidInputError, match=r"1000 bytes.* q=6 .* p=2 .* 4.594 KiB .* to 5040 bytes"):
        data.pass_over(collect_moments, memory_budget=1000)


def test_nested_views_pass_through_and_flatten_side_by_side(data):
    class First(Linear):
        def rows(self, X, prepared, **options):
            return super().rows(X["table"], prepared, **options)

    stream = [(torch.arange(50), {"table": data.X, "image": data.X.reshape(2, 50, 5, 1)})]
    found = collect_moments(stream, First(), data.landmarks, data.K, inputs=True, progress=False)
    expected = moments_of(data.Kbar, data.K, X=torch.cat([data.X, data.X], dim=2))
    # A dict's leaves come in the order of its keys as given.
    assert_close(found.KX, expected.KX, rtol=1e-12, atol=1e-12)


def test_an_empty_stream_and_rows_that_are_not_finite_are_refused(data, tmp_path):
    empty = ([], Linear(), data.landmarks, data.K)
    with pytest.raises(InvalidInputError, match="stream of views is empty"):
        collect_moments(*empty, progress=False)
    with pytest.raises(InvalidInputError, match="stream of views is empty"):
        store_rows(*empty, tmp_path, progress=False)
    data.X[1, 20, 0] = float("nan")
    with pytest.raises(InvalidInputError, match="batch of kernel rows holds 6 NaN"):
        data.pass_over(collect_moments)


def files(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("die_after", [1, 40, 70, 99])
def test_a_killed_pass_resumes_to_the_same_bytes(data, tmp_path, die_after):
    options = dict(inputs=True, trace=True, shard_batches=2)
    whole = data.pass_over(collect_moments, shards=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        data.pass_over(collect_moments, Linear(die_after=die_after), shards=tmp_path / "killed", **options)
    kernel = Linear()
    resumed = data.pass_over(collect_moments, kernel, shards=tmp_path / "killed", **options)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert kernel.seen == 100 - 32 * (die_after // 32)
    for name in ("n", "trace", "XX"):
        assert getattr(resumed, name) == getattr(whole, name)
    assert torch.equal(resumed.M, whole.M) and torch.equal(resumed.KX, whole.KX)
    assert torch.equal(whole.M, data.pass_over(collect_moments, **options).M)


def other_seed(data, take, **options):
    return Data(data.X + 1e-9, data.landmarks, data.K, data.Kbar).pass_over(take, **options)


FOREIGN = {
    "data": other_seed,
    "kernel": lambda data, take, **options: data.pass_over(take, Linear(scale=2.0), **options),
    "partition": lambda data, take, **options: data.pass_over(take, batch=10, **options),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_shard_of_another_run_is_refused(data, tmp_path, what):
    data.pass_over(collect_moments, shards=tmp_path / "moments")
    with pytest.raises(RunFolderError, match="shard of another run"):
        FOREIGN[what](data, collect_moments, shards=tmp_path / "moments")
    data.pass_over(store_rows, path=tmp_path / "rows")
    with pytest.raises(RunFolderError, match="shard of another run"):
        FOREIGN[what](data, store_rows, path=tmp_path / "rows")


def test_a_damaged_shard_is_refused(data, tmp_path):
    data.pass_over(collect_moments, shards=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunFolderError, match="not a readable shard"):
        data.pass_over(collect_moments, shards=tmp_path)


@pytest.mark.parametrize("size", [1, 7, 32, 50, 64])
def test_the_store_gives_the_rows_back_in_batches_of_any_size(data, tmp_path, size):
    store = data.pass_over(store_rows, path=tmp_path, dtype=torch.float64, shard_batches=2)
    assert len(store.shards) == 4 and store.n == 50 and store.p == 2
    (whole,) = store.batches(50)
    # The kernel of a batch differs from that of all rows in the last bits on some processors; what is stored does not.
    torch.testing.assert_close(whole, data.Kbar, rtol=1e-14, atol=0)
    for _ in range(2):
        found = list(store.batches(size))
        assert {batch.shape[1] for batch in found[:-1]} <= {size}
        assert torch.equal(torch.cat(found, dim=1), whole)
    assert torch.equal(RowStore.open(tmp_path).K, data.K)


def test_the_store_rounds_to_single_precision_by_default(data, tmp_path):
    store = data.pass_over(store_rows, path=tmp_path)
    (found,) = store.batches(50)
    assert found.dtype == torch.float64
    assert torch.equal(found, data.Kbar.float().double())


@pytest.mark.parametrize("die_after", [1, 40, 99])
def test_a_killed_store_is_not_opened_and_resumes_to_the_same_bytes(data, tmp_path, die_after):
    data.pass_over(store_rows, path=tmp_path / "whole", shard_batches=2)
    with pytest.raises(KeyboardInterrupt):
        data.pass_over(store_rows, Linear(die_after=die_after), path=tmp_path / "killed", shard_batches=2)
    with pytest.raises(RunFolderError, match="not a row store|stopped after [13] shards"):
        RowStore.open(tmp_path / "killed")
    data.pass_over(store_rows, path=tmp_path / "killed", shard_batches=2)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_store_that_is_missing_damaged_or_of_another_version_is_refused(data, tmp_path):
    with pytest.raises(RunFolderError, match="is not a row store"):
        RowStore.open(tmp_path / "nowhere")
    data.pass_over(store_rows, path=tmp_path)
    rows = (tmp_path / "rows-00000.npy").read_bytes()
    for damaged in (rows[:-1], rows[:100], b""):
        (tmp_path / "rows-00000.npy").write_bytes(damaged)
        with pytest.raises(RunFolderError, match="damaged"):
            RowStore.open(tmp_path)
    (tmp_path / "store.json").write_text('{"version": 0}')
    with pytest.raises(RunFolderError, match="version 0, this is 1"):
        RowStore.open(tmp_path)


def test_a_store_of_more_data_is_refused(data, tmp_path):
    """The first shard agrees, but the store goes on after the stream has ended."""
    data.pass_over(store_rows, path=tmp_path, shard_batches=2)
    start = Data(data.X[:, :16], data.landmarks, data.K, data.Kbar)
    with pytest.raises(RunFolderError, match="holds 4 shards, but the stream of this call ends after 1"):
        start.pass_over(store_rows, path=tmp_path, shard_batches=2)


def test_half_precision_is_not_stored(data, tmp_path):
    with pytest.raises(InvalidInputError, match=r"torch.float16: pass torch.float32"):
        data.pass_over(store_rows, path=tmp_path, dtype=torch.float16)


def test_progress_counts_every_sample_once(data, tmp_path, capsys):
    stream = Stream(data.X)
    for _ in range(2):
        collect_moments(stream, Linear(), data.landmarks, data.K, shards=tmp_path)
        assert "50/50" in capsys.readouterr().err
