"""Arrays from files: every type and order against numpy itself, what is refused, and how little is read."""

import io
import os
import struct

import numpy as np
import pytest
import torch

from krepes import batches
from krepes.data import open_array
from krepes.errors import InvalidInputError
from krepes.views import Identity, ViewStream
from krepes.views.source import RowsOf, as_source

NUMBERS = np.arange(24).reshape(6, 4) % 7
ROWS = torch.tensor([4, 0, 5])
TYPES = [
    f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
]


def saved(folder, array, name="a.npy"):
    np.save(folder / name, array)
    return folder / name


@pytest.mark.parametrize("dtype", [*TYPES, "?", "g"])
@pytest.mark.parametrize("order", "CF")
def test_every_number_type_and_order_reads_as_numpy_reads_it(dtype, order, tmp_path):
    array = np.asarray(NUMBERS.astype(dtype), order=order)
    file = open_array(saved(tmp_path, array))
    assert (file.n, len(file), file.shape, file.ndim) == (6, 6, (6, 4), 2)
    expected = torch.from_numpy(array.astype(np.float32))[ROWS]
    torch.testing.assert_close(file.take(ROWS), expected, rtol=0, atol=0)
    stream = ViewStream(file, Identity(), batch_size=4)
    torch.testing.assert_close(torch.cat([Z[0] for _, Z in stream]), torch.from_numpy(array.astype(np.float32)))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version, tmp_path):
    with (tmp_path / "a.npy").open("wb") as handle:
        np.lib.format.write_array(handle, NUMBERS.astype(float), version=version)
    torch.testing.assert_close(open_array(tmp_path / "a.npy").take(ROWS), torch.tensor(NUMBERS[ROWS]).float())


@pytest.mark.parametrize(("dtype", "top"), [("u1", 255), (">u2", 65535), ("<u2", 65535)])
def test_whole_numbers_of_images_are_pixels(dtype, top, tmp_path):
    array = np.full((2, 1, 3, 3), top, dtype=dtype)
    torch.testing.assert_close(open_array(saved(tmp_path, array)).take(torch.tensor([1])), torch.ones(1, 1, 3, 3))
    table = open_array(saved(tmp_path, array[:, 0, 0], "t.npy"))
    torch.testing.assert_close(table.take(torch.tensor([1])), torch.full((1, 3), float(top)))


def forged(header, *, version=b"\x01\x00", body=b"\0" * 64):
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + body


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n"
REFUSED = {
    "complex": (np.ones((3, 2), complex), "complex numbers: split"),
    "text": (np.array([["a"], ["b"]]), "texts: encode"),
    "bytes": (np.array([[b"a"], [b"b"]]), "texts: encode"),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), "dates: turn"),
    "durations": (np.array([3], dtype="m8[D]"), "durations: turn"),
    "records": (np.zeros(3, dtype=[("a", "f4")]), "records: save a table"),
    "void": (np.zeros(3, dtype="V4"), "records"),
    "no axis": (np.float32(3), r"shape \(\)"),
    "no sample": (np.zeros((0, 3)), r"shape \(0, 3\)"),
    "no number": (np.zeros((3, 0)), r"shape \(3, 0\)"),
    "no bytes": (b"", "is empty"),
    "another file": (b"PAR1" + b"\0" * 100, "is no .npy file"),
    "an npz": (b"PK\x03\x04" + b"\0" * 100, "is a zip file"),
    "only magic": (b"\x93NUMPY", "is cut off after 6 bytes"),
    "version 9": (forged(b"{}\n", version=b"\x09\x00"), "cannot be read as .npy"),
    "a header of 4 GB": (b"\x93NUMPY\x02\x00" + b"\xff" * 20, "header of 4,294,967,295 bytes"),
    "a header beyond the file": (b"\x93NUMPY\x01\x00\xff\xff{   ", "cannot be read as .npy"),
    "no dict": (forged(b"[1, 2]\n"), "cannot be read as .npy"),
    "code": (forged(b"__import__('os').system('touch canary')\n"), "cannot be read as .npy"),
    "deep nesting": (forged(b"(" * 9000 + b"\n"), "cannot be read as .npy"),
    "an exabyte": (forged(HUGE), "cannot be read as .npy"),
    "a negative axis": (forged(HUGE.replace(b"4611686018427387904", b"-4")), "cannot be read as .npy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, message = REFUSED[case]
    if isinstance(content, bytes):
        (tmp_path / "a.npy").write_bytes(content)
    else:
        saved(tmp_path, content)
    with pytest.raises(InvalidInputError, match=f"a.npy.*{message}"):
        open_array(tmp_path / "a.npy")
    assert not (tmp_path / "canary").exists()


def test_objects_are_not_unpickled(tmp_path):
    class Bite:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "canary"),)

    np.save(tmp_path / "a.npy", np.array([Bite()], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="cannot be read as .npy"):
        open_array(tmp_path / "a.npy")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("change", [-1, 1, 8])
def test_a_file_of_another_length_than_its_header_says_is_refused(change, tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, NUMBERS.astype(float))
    whole = buffer.getvalue()
    (tmp_path / "a.npy").write_bytes(whole[:change] if change < 0 else whole + b"\0" * change)
    with pytest.raises(InvalidInputError, match="its header speaks of|cannot be read as .npy"):
        open_array(tmp_path / "a.npy")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path), lambda path: None])
def test_what_is_no_file_is_refused_and_not_waited_for(make, tmp_path):
    make(tmp_path / "a.npy")
    with pytest.raises(InvalidInputError, match="is not a file"):
        open_array(tmp_path / "a.npy")
    for name in ("a" * 5000, "nul\0byte"):
        with pytest.raises(InvalidInputError, match="is not a file|cannot be opened"):
            open_array(tmp_path / name)


def test_a_number_beyond_float32_is_named(tmp_path):
    array = np.ones((5, 2))
    array[3, 1] = 1e308
    file = open_array(saved(tmp_path, array))
    assert file.take(torch.tensor([0, 4])).shape == (2, 2)
    with pytest.raises(InvalidInputError, match=r"sample 3 holds 1e\+308.*Rescale"):
        file.take(torch.tensor([0, 3]))


def test_only_the_rows_of_a_batch_are_read(tmp_path):
    """A sparse file of 64 GB: whoever copied it would need the memory."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (8000000, 1000), }\n"
    with (tmp_path / "big.npy").open("wb") as handle:
        handle.write(forged(header, body=b""))
        handle.truncate(handle.tell() + 8_000_000 * 1000 * 8)
    rows = RowsOf(open_array(tmp_path / "big.npy"), torch.arange(7_999_999, 0, -2))
    assert ViewStream(rows, Identity()).plain(torch.tensor([0, 3_999_999])).shape == (2, 1000)


def test_rows_of_a_source_are_those_of_the_whole(tmp_path):
    X = NUMBERS.astype(np.float32)
    path = saved(tmp_path, X)
    dataset = torch.utils.data.TensorDataset(torch.tensor(X))
    for data in (X, torch.tensor(X), np.load(path, mmap_mode="r"), open_array(path), dataset, RowsOf(X, range(6))):
        rows = RowsOf(data, [5, 1, 1, 3])
        assert (rows.n, len(rows)) == (4, 4)
        plain = ViewStream(rows, Identity(), batch_size=3).plain(torch.tensor([3, 0]))
        torch.testing.assert_close(plain, torch.tensor(X[[3, 5]]), rtol=0, atol=0)
    nested = RowsOf({"a": X, "b": (X, X)}, [2, 0]).take(torch.tensor([1]))
    torch.testing.assert_close(nested["b"][1], torch.tensor(X[[0]]))
    with pytest.raises(InvalidInputError, match="rows between 0 and 6 were chosen of 6 samples"):
        RowsOf(X, [0, 6])


@pytest.mark.parametrize("dtype", [">f4", ">i8", "g", ">f2"])
def test_arrays_in_memory_of_any_byte_order_become_tensors(dtype):
    array = NUMBERS.astype(dtype)
    taken = batches.take(array, ROWS)
    torch.testing.assert_close(taken.double(), torch.tensor(NUMBERS[ROWS]).double())


UNUSABLE = {
    "complex array": (lambda: np.ones((2, 2), complex), "Split them into real"),
    "masked array": (lambda: np.ma.masked_equal(NUMBERS, 3), "masked entries"),
    "ragged": (lambda: np.array([[1], [2, 3]], dtype=object), "ragged rows"),
    "complex tensor": (lambda: torch.ones(2, 2, dtype=torch.complex64), "torch.view_as_real"),
    "sparse tensor": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "meta tensor": (lambda: torch.ones(2, 2, device="meta"), "without values"),
    "quantised tensor": (lambda: torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8), "dequantize"),
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.filterwarnings("ignore:.*quantiz.*")
def test_arrays_that_are_no_dense_real_numbers_are_refused(case):
    make, message = UNUSABLE[case]
    with pytest.raises(InvalidInputError, match=message):
        as_source({"x": make()})
