"""Files are there whole or not at all, errors of the file system name the place, and equal content is equal bytes."""

import errno
import os
import threading

import pytest
import torch
from torch.testing import assert_close

from krepes.errors import InvalidInputError, KrepesError, RunFolderError
from krepes.storage import files, tensorfile
from krepes.storage.files import publish, publish_bytes, require_writable
from krepes.storage.tensorfile import read_tensor_bytes, read_tensors, tensor_bytes, write_large, write_tensors


def test_an_interrupted_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    path = publish_bytes(tmp_path / "a" / "b.txt", b"old")

    def interrupted(temporary):
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(path, interrupted)
    assert path.read_bytes() == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["b.txt"]


def test_two_writers_never_share_a_temporary_name(tmp_path):
    path, names, barrier = tmp_path / "x", [], threading.Barrier(2, timeout=10)

    def write(content):
        def fill(temporary):
            names.append(temporary.name)
            temporary.write_bytes(content[:100])
            barrier.wait()  # both files are half written at this moment
            with temporary.open("ab") as handle:
                handle.write(content[100:])

        publish(path, fill)

    contents = [bytes([letter]) * 1000 for letter in (65, 66)]
    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 2 and all(str(os.getpid()) in name for name in names)
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    real, link = tmp_path / "disk" / "real.bin", tmp_path / "link.bin"
    publish_bytes(real, b"old")
    link.symlink_to(real)
    publish_bytes(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"
    assert list(real.parent.iterdir()) == [real]
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "later" / "file")
    publish_bytes(dangling, b"first")
    assert dangling.is_symlink() and (tmp_path / "later" / "file").read_bytes() == b"first"


def test_the_file_and_its_folder_are_flushed_before_and_after_the_rename(tmp_path, monkeypatch):
    path, seen = tmp_path / "x", []
    monkeypatch.setattr(
        files.os, "fsync", lambda handle: seen.append((os.path.realpath(f"/proc/self/fd/{handle}"), path.exists()))
    )
    publish_bytes(path, b"content")
    assert [exists for _, exists in seen] == [False, True]
    assert seen[0][0].endswith(".tmp") and seen[1][0] == str(tmp_path)


def test_a_folder_that_cannot_be_flushed_is_no_error_and_a_file_is(tmp_path, monkeypatch):
    def fsync(handle, refused):
        if os.path.isdir(f"/proc/self/fd/{handle}") == refused:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(files.os, "fsync", lambda handle: fsync(handle, True))
    publish_bytes(tmp_path / "x", b"content")
    monkeypatch.setattr(files.os, "fsync", lambda handle: fsync(handle, False))
    with pytest.raises(RunFolderError, match="Invalid argument"):
        publish_bytes(tmp_path / "y", b"content")
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_errors_of_the_file_system_name_the_path_the_reason_and_what_to_do(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        RunFolderError, match=r"file/x could not be written: (Not a directory|File exists).*another place"
    ):
        publish_bytes(tmp_path / "file" / "x", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunFolderError, match=r"folder could not be written: Is a directory"):
        publish_bytes(tmp_path / "folder", b"")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]

    def full(temporary):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunFolderError, match="No space left on device. Check .* room"):
        publish(tmp_path / "x", full)

    def ours(temporary):
        raise RunFolderError("said already")

    with pytest.raises(KrepesError, match="^said already$"):
        publish(tmp_path / "x", ours)


def test_a_full_disk_under_the_tensors_is_reported_like_any_other(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise tensorfile.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(tensorfile, "save_file", full)
    with pytest.raises(RunFolderError, match=r"x.safetensors could not be written: .*No space left"):
        write_tensors(tmp_path / "x.safetensors", {"a": torch.ones(2)}, {})
    assert not list(tmp_path.iterdir())


def test_equal_content_is_equal_bytes_in_a_file_and_in_memory(tmp_path, generator):
    tensors = {
        "b": torch.randn(3, 4, generator=generator),
        "a": torch.arange(5),
        "half": torch.randn(2, generator=generator).bfloat16(),
        "flag": torch.tensor(True),
        "empty": torch.zeros(0, 3),
    }
    header = {"n": 3, "names": ["x", "ü"], "nothing": None}
    write_tensors(tmp_path / "one", tensors, header)
    write_tensors(tmp_path / "two", dict(reversed(tensors.items())), dict(reversed(header.items())))
    content = tensor_bytes(tensors, header)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == content
    for found, read in (read_tensors(tmp_path / "one"), read_tensor_bytes(content)):
        assert read == header and sorted(found) == sorted(tensors)
        for name, x in tensors.items():
            assert_close(found[name], x, rtol=0, atol=0)
    assert read_tensor_bytes(tensor_bytes(tensors))[1] == {}


def test_tensors_that_share_memory_are_written_apart_and_others_are_not_copied(generator):
    base = torch.randn(6, 4, generator=generator)
    tensors = {"whole": base, "again": base, "part": base[2:4], "turned": base.T, "own": torch.ones(3)}
    found, _ = read_tensor_bytes(tensor_bytes(tensors))
    for name, x in tensors.items():
        assert_close(found[name], x, rtol=0, atol=0)
    assert tensorfile._separate({"own": tensors["own"]})["own"].data_ptr() == tensors["own"].data_ptr()


def test_damaged_tensors_are_refused(tmp_path):
    content = tensor_bytes({"x": torch.ones(10)}, {"n": 1})
    with pytest.raises(InvalidInputError, match="bytes are not a whole safetensors file"):
        read_tensor_bytes(content[:-4])
    (tmp_path / "short").write_bytes(content[:-4])
    with pytest.raises(InvalidInputError, match="short is not a whole safetensors file"):
        read_tensors(tmp_path / "short")
    with pytest.raises(InvalidInputError, match="there is no file"):
        read_tensors(tmp_path / "missing")


@pytest.mark.parametrize("below", ["x", "x/y", "run/../x", "a" * 300])
def test_where_a_folder_cannot_be_made_none_of_those_above_it_is_left(below, tmp_path):
    (tmp_path / "file").write_text("kept")
    wrong = tmp_path / "new" / "deep" / ".." / ".." / "file" / below if len(below) < 300 else tmp_path / "new" / below
    with pytest.raises(RunFolderError, match="--out"):
        require_writable(wrong / "r.html", "--out")
    with pytest.raises(RunFolderError):
        publish_bytes(wrong / "r.html", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_large_tensors_are_written_as_the_library_writes_them(tmp_path):
    tensors = {"M": torch.randn(3, 4, dtype=torch.float64), "KX": torch.arange(5), "a": torch.ones(2)}
    header = {"shards": ["ä", "b"], "n": 3, "trace": None}
    write_large(tmp_path / "large", tensors, header)
    write_tensors(tmp_path / "plain", tensors, header)
    assert (tmp_path / "large").read_bytes() == (tmp_path / "plain").read_bytes()
