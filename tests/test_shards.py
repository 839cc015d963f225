"""Images in tar files: the same pictures as in a folder, labels beside them, refused where the file is not plain."""

import io
import json
import os
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from krepes.data import image_folder, tar_images
from krepes.data.decoding import Part
from krepes.errors import InvalidInputError
from krepes.runs.dataset import open_dataset
from krepes.runs.fingerprint import Fingerprint
from krepes.runs.settings import Settings


def picture(i, format="JPEG"):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(i).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(buffer, format)
    return buffer.getvalue()


def tarred(path, files, **changed):
    """Write a tar file of ``(name, content)``; a content that is no bytes is the member itself."""
    with tarfile.open(path, "w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                for key, value in content.items():
                    setattr(member, key, value)
                archive.addfile(member)
    return path


def files(n=6):
    return [(f"c{i % 2}/{i:03d}.jpg", picture(i)) for i in range(n)]


def test_a_tar_holds_the_pictures_of_a_folder_and_labels_beside_them(tmp_path):
    for name, content in files():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    there = tar_images(tarred(tmp_path / "x.tar", [("c0", {"type": tarfile.DIRTYPE}), *files()]), size=8)
    folder = image_folder(tmp_path / "folder", size=8)
    assert sorted(there.ids) == list(folder.ids)
    order = [folder.ids.index(name) for name in there.ids]
    assert there.stack().equal(folder.stack()[order])
    assert there.labels == tuple(folder.labels[i] for i in order)
    beside = [
        ("a.jpg", picture(0)),
        ("a.cls", b"3\n"),
        ("b.png", picture(1, "PNG")),
        ("b.json", json.dumps({"label": "dog", "more": [1]}).encode()),
        ("c.jpg", picture(2)),
        ("c.txt", "höher".encode()),
        ("d.jpg", picture(3)),
        ("d.json", b"4"),
        ("d.cls", b"5"),
        ("e.jpg", picture(4)),
        (".hidden.jpg", b"x"),
        ("e.notes", b"x"),
    ]
    assert tar_images(tarred(tmp_path / "y.tar", beside), size=8).labels == ("3", "dog", "höher", "5", "")


def test_several_shards_are_one_data_set_which_processes_decode(tmp_path):
    for shard in range(2):
        tarred(tmp_path / f"{shard}.tar", files()[3 * shard : 3 * shard + 3])
    one = tar_images(tmp_path, size=8)
    many = tar_images(tmp_path, size=8, workers=2)
    assert one.ids[0] == "0.tar/c0/000.jpg" and one.ids[-1] == "1.tar/c1/005.jpg"
    assert torch.stack(many.__getitems__([5, 0, 3])).equal(one.stack()[[5, 0, 3]])
    assert many.workers is not None
    many.workers.close()


def test_the_commands_open_tar_files_and_see_a_changed_picture(tmp_path):
    def opened():
        return open_dataset(Settings(data=str(tmp_path / "x.tar"), size=8, workers=0))

    tarred(tmp_path / "x.tar", files())
    found, first = opened(), Fingerprint.of(opened())
    assert found.kind == "image" and found.n == 6 and found.column("label").tolist() == ["c0", "c1"] * 3
    assert found.take(torch.tensor([4, 1])).shape == (2, 3, 8, 8)
    tarred(tmp_path / "x.tar", [*files()[:5], ("c1/005.jpg", picture(99))])
    assert "the first is sample 5" in first.difference(Fingerprint.of(opened()), opened().ids)


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
BAD = {
    "an absolute name": ([("/etc/a.jpg", picture(0))], "a name that leads out of the archive"),
    "a name above": ([("a/../../b.jpg", picture(0))], "a name that leads out of the archive"),
    "a link": ([*files(1), ("b.jpg", LINK)], "holds b.jpg: a link, a device or a file with holes"),
    "a hard link": ([*files(1), ("b.jpg", {**LINK, "type": tarfile.LNKTYPE})], "not a plain file"),
    "a device": ([("b.jpg", {"type": tarfile.CHRTYPE})], "a link, a device"),
    "two pictures of a key": ([("a.jpg", picture(0)), ("a.png", picture(1, "PNG"))], "two pictures of one key, a.jpg"),
    "one picture twice": ([("a.jpg", picture(0)), ("a.jpg", picture(1))], "two pictures of one key"),
    "no picture": ([("a.txt", b"x")], "holds no image"),
    "text under a good name": ([*files(1), ("b.jpg", b"this is no image")], "1 of 2 images cannot be decoded: b.jpg"),
    "a label of 2 MiB": ([("a.jpg", picture(0)), ("a.cls", b"x" * 2**21)], r"a.cls of 2,097,152 bytes"),
    "a label that is no text": ([("a.jpg", picture(0)), ("a.cls", b"\xff\xfe\xff")], "label cls of a.jpg"),
    "a label that is a list": ([("a.jpg", picture(0)), ("a.json", b"[1]")], "is a list. It must be a text"),
    "a label that is no JSON": ([("a.jpg", picture(0)), ("a.json", b"{")], "label json of a.jpg cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_tar_that_is_not_what_it_seems_is_refused_in_plain_words(name, tmp_path):
    members, message = BAD[name]
    with pytest.raises(InvalidInputError, match=message):
        tar_images(tarred(tmp_path / "x.tar", members), size=8)


def test_damage_lies_and_other_files_are_refused(tmp_path):
    path = tarred(tmp_path / "x.tar", files(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:1200])  # inside the first picture, or behind it
    with pytest.raises(InvalidInputError, match="x.tar"):
        tar_images(path, size=8)
    lying = tarfile.TarInfo("a.jpg")
    lying.size = 10**15
    path.write_bytes(lying.tobuf() + b"x" * 1024)
    with pytest.raises(InvalidInputError, match=r"a.jpg: said to have 1,000,000,000,000,000 bytes|cannot be read"):
        tar_images(path, size=8)
    for content in (b"", b"\0" * 10240, b"\x1f\x8b" + b"x" * 600, b"no tar" * 200):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="x.tar"):
            tar_images(path, size=8)
    with pytest.raises(InvalidInputError, match=r"is no \.tar file"):
        tar_images(tmp_path / "nowhere", size=8)
    tarred(path, [*files(2), ("b.jpg", b"x")])
    with pytest.warns(UserWarning, match="1 of 3 images cannot be decoded"):
        assert len(tar_images(path, size=8, on_error="skip")) == 2
    assert Part(str(path), os.path.getsize(path), 10).read() == b""
