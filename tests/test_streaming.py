"""Data that do not fit into memory: mapped files without pages held, and run folders written without a second copy."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save
from torch.testing import assert_close

from krepes import batches
from krepes.audit.consistency import label_consistency
from krepes.audit.deletion import confidence_drop_of
from krepes.budget import Budget
from krepes.data.schema import Schema
from krepes.data.spill import encoded_table
from krepes.data.tabular import TabularEncoder
from krepes.encoders.frozen import in_pieces
from krepes.errors import InvalidInputError
from krepes.storage import mapped
from krepes.storage.tensorstream import read_stream, write_stream
from krepes.views.source import ArraySource, RowsOf, Through, all_of, as_source
from peak import peak_rise


@pytest.fixture
def array(tmp_path):
    X = np.random.default_rng(0).normal(size=(500, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    return X, np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(20, 480),
        slice(490, 900),
        slice(3, 400, 7),
        slice(400, 3),
        np.array([4, 4, 499, 0]),
        np.array([], dtype=np.int64),
        np.arange(500) % 3 == 0,
    ],
)
def test_pieces_of_a_mapped_file_are_its_rows(array, rows, monkeypatch):
    X, there = array
    monkeypatch.setattr(mapped, "AT_ONCE", 100)
    assert np.array_equal(mapped.read(there, rows), X[rows])
    assert mapped.read(there, rows, np.dtype(np.float64)).dtype == np.float64
    fortran = np.memmap(there.filename, mode="r", dtype=np.float32, offset=there.offset, shape=(500, 7), order="F")
    assert np.array_equal(mapped.read(fortran, rows), np.array(fortran)[rows])


def test_what_was_changed_in_a_private_map_is_not_lost_by_reading_it(array):
    X, there = array
    private = np.load(there.filename, mmap_mode="c")
    private[3] = 7.0
    assert (mapped.read(private, slice(3, 4)) == 7.0).all()
    assert (batches.take(private, torch.tensor([3])) == 7.0).all()
    written = mapped.scratch((10, 2), np.dtype(np.int64))
    mapped.write(written, 4, np.ones((3, 2), dtype=np.int64))
    assert mapped.read(written, slice(None)).sum(1).tolist() == [0, 0, 0, 0, 2, 2, 2, 0, 0, 0]


def test_reading_a_mapped_file_from_end_to_end_holds_a_few_megabytes(tmp_path):
    code = """
        import sys
        import numpy as np, torch
        from krepes import batches
        from krepes.storage import mapped
        from krepes.data.arrays import open_array

        X = np.lib.format.open_memmap(sys.argv[1], mode="w+", dtype=np.float32, shape=(2000, 5000))
        X.flush()
        del X
        X, there = np.load(sys.argv[1], mmap_mode="r"), open_array(sys.argv[1])
        order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
        mapped.AT_ONCE = 2**22
        with measured():
            for part in order.split(100):
                batches.take(X, part)
                there.take(part)
            for _, x in batches.chunks(X, 100):
                pass
    """
    # 38 MiB lie in the file; a batch is 2 MiB, and 4 are looked at before their pages are let go.
    assert peak_rise(code, tmp_path / "x.npy") < 2**24


def test_tensors_are_written_as_the_library_of_the_format_does_and_read_again(tmp_path):
    tensors = {
        "points": torch.randn(3, 4),
        "b": torch.arange(5),
        "a": torch.randn(2, dtype=torch.float64),
        "flags": torch.tensor([True, False, True]),
        "half": torch.randn(3).bfloat16(),
        "one": torch.tensor(3.0),
        "none": torch.empty(0, 3),
        "ünïcode": torch.ones(2, 2).T,
    }
    path = tmp_path / "x"
    with path.open("wb") as file:
        write_stream(file.write, tensors)
    assert path.read_bytes() == save({name: x.contiguous() for name, x in tensors.items()})
    assert_close(read_stream(path), tensors, rtol=0, atol=0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Exception, match="[Ii]ncomplete"):
        read_stream(path)


def test_a_large_table_is_encoded_into_a_file_and_is_the_same(monkeypatch):
    monkeypatch.setattr("krepes.data.spill.PIECE", 7)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=50), "b": rng.choice(["x", "y", "z"], 50), "c": rng.normal(size=50)})
    encoding = TabularEncoder(Schema.infer(frame), unknown="bucket").fit(frame)
    whole = encoding.transform(frame)
    assert encoded_table(encoding, frame, Budget(8 * whole.nbytes)).equal(whole)
    there = encoded_table(encoding, frame, Budget(8 * whole.nbytes - 1))
    assert isinstance(there, np.memmap)
    assert_close(RowsOf(there, torch.arange(50)).take(torch.arange(50)), whole, rtol=0, atol=0)
    gaps = frame.assign(a=frame["a"].where(frame["a"] > 0))
    with pytest.warns(UserWarning, match="column 'a'") as heard:
        there = encoded_table(encoding, gaps, Budget(100))
    assert len(heard) == 1
    with pytest.raises(InvalidInputError, match="in row 41"):
        encoded_table(encoding, frame.assign(c=frame["c"].where(frame.index != 41, 1e308)), Budget(100))


def test_a_function_is_applied_to_each_batch_as_it_is_read():
    seen = []
    lazy = Through(RowsOf(torch.arange(100.0), torch.arange(0, 100, 2)), lambda x: seen.append(len(x)) or x + 1)
    assert len(lazy) == 50 and as_source(lazy)[0] is lazy and not seen
    assert lazy.take(torch.tensor([0, 49])).tolist() == [1.0, 99.0]
    assert all_of(lazy).tolist() == list(range(1, 100, 2)) and seen == [2, 50]
    pieces = list(in_pieces(ArraySource(torch.zeros(40, 3, 224, 224))))
    assert [len(piece) for piece in pieces] == [6] * 6 + [4]
    assert len(next(in_pieces(ArraySource(torch.zeros(4000, 8))))) == 1024


def test_audits_in_pieces_say_what_they_say_at_once(generator, monkeypatch):
    tops = {name: torch.rand(100, 30, generator=generator).argsort(1)[:, :20] for name in ("influence", "kernel")}
    classes = [str(code) for code in torch.randint(3, (30,), generator=generator).tolist()]
    labels, guesses = ([str(c) for c in torch.randint(3, (100,), generator=generator).tolist()] for _ in range(2))
    E, E_landmarks = torch.randn(100, 4, generator=generator), torch.randn(30, 4, generator=generator)

    def answers():
        return (
            label_consistency(tops, classes, labels, predictions=guesses),
            confidence_drop_of(tops, E, E_landmarks, classes, k=5, delete=5),
        )

    at_once = answers()
    monkeypatch.setattr("krepes.audit.consistency.PIECE", 7)
    monkeypatch.setattr("krepes.audit.deletion.PIECE", 9)
    for one, other in zip(at_once, answers(), strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-12)
