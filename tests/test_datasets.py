"""The public data sets: tiny files of each layout, and the real ones where KREPES_DATA names their folder."""

import collections
import gzip
import io
import shutil
import struct
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from krepes.data import (
    DATASETS,
    Schema,
    TabularEncoder,
    adult,
    bank,
    cifar10,
    covertype,
    fairface,
    higgs,
    mnist,
    scenes,
)
from krepes.errors import InvalidInputError

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
PICTURES = RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K\n"
    "50, ?, 83311, Masters, 14, Divorced, ?, Unmarried, Black, Female, 0, 0, 13, Cuba, >50K\n\n"
)
BANK = '"age";"job";"y"\n58;"management";"no"\n33;"technician";"yes"\n40;"student";"no"\n'


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_is_read_from_every_layout(folder, suffix, tmp_path):
    write(tmp_path / folder / f"t10k-images-idx3-ubyte{suffix}", idx(DIGITS))
    write(tmp_path / folder / f"t10k-labels-idx1-ubyte{suffix}", idx(np.array([7, 2, 1], dtype=np.uint8)))
    data = mnist.load(tmp_path, "test", verify=False)
    torch.testing.assert_close(data.X, torch.tensor(DIGITS)[:, None] / 255.0, rtol=0, atol=0)
    assert data.labels.tolist() == ["7", "2", "1"]
    assert data.ids == ("mnist/test/0", "mnist/test/1", "mnist/test/2")


def test_an_idx_file_that_is_cut_off_is_refused(tmp_path):
    write(tmp_path / "t10k-images-idx3-ubyte", idx(DIGITS)[:-1])
    with pytest.raises(InvalidInputError, match=r"no idx file.*\(3, 28, 28\), it has 2367 bytes"):
        mnist.load(tmp_path, "test", verify=False)


def mosaics(root):
    """Two rows of two tiles, in reading order."""
    (root / "cifar10").mkdir()
    rows = [np.concatenate([PICTURES[i], PICTURES[i + 1]], axis=1) for i in (0, 2)]
    Image.fromarray(np.concatenate(rows, axis=0)).save(root / "cifar10/test_batch.webp", lossless=True, exact=True)
    np.savez(root / "cifar10/labels.npz", test=np.array([3, 8, 8, 0], dtype=np.uint8))


def records(root):
    content = b"".join(
        bytes([label]) + picture.transpose(2, 0, 1).tobytes()
        for label, picture in zip([3, 8, 8, 0], PICTURES, strict=True)
    )
    write(root / "cifar-10-batches-bin/test_batch.bin", content)


@pytest.mark.parametrize("layout", [mosaics, records])
def test_cifar10_is_read_from_mosaics_and_records(layout, tmp_path):
    layout(tmp_path)
    data = cifar10.load(tmp_path, "test", verify=False)
    torch.testing.assert_close(data.pixels, torch.tensor(PICTURES).permute(0, 3, 1, 2), rtol=0, atol=0)
    assert data.labels.tolist() == ["cat", "ship", "ship", "airplane"]


def test_the_pickled_cifar10_is_not_read(tmp_path):
    write(tmp_path / "cifar-10-batches-py/test_batch", b"a pickle")
    with pytest.raises(InvalidInputError, match="binary version .the pickled one is not read.*was not found"):
        cifar10.load(tmp_path, "test")


@pytest.mark.parametrize("folder", ["adult", "."])
def test_adult_keeps_gaps_and_cuts_the_full_stop(folder, tmp_path):
    write(tmp_path / folder / "adult.data", ADULT.encode())
    write(tmp_path / folder / "adult.test", ("|1x3 Cross validator\n" + ADULT.replace("50K\n", "50K.\n")).encode())
    train, test = (adult.load(tmp_path, split, verify=False) for split in ("train", "test"))
    pd.testing.assert_frame_equal(train.frame, test.frame)
    assert train.labels.tolist() == test.labels.tolist() == ["<=50K", ">50K"]
    assert list(train.frame) == list(adult.COLUMNS[:14])
    assert train.frame["workclass"].isna().tolist() == [False, True]
    assert len(adult.load(tmp_path, "all", verify=False).frame) == 4


@pytest.mark.parametrize("folder", ["bank", "."])
def test_bank_is_read_from_every_layout(folder, tmp_path):
    write(tmp_path / folder / "bank-full.csv", BANK.encode())
    data = bank.load(tmp_path, verify=False)
    assert data.frame.to_dict("list") == {"age": [58, 33, 40], "job": ["management", "technician", "student"]}
    assert data.labels.tolist() == ["no", "yes", "no"]


@pytest.mark.parametrize("name", ["covertype/covtype.data.gz", "covtype.data", "covtype/covtype.data"])
def test_covertype_folds_its_indicators(name, tmp_path):
    rows = np.zeros((2, 55), dtype=int)
    rows[:, :10] = np.arange(20).reshape(2, 10)
    rows[[0, 1], [10, 13]] = rows[[0, 1], [14, 53]] = 1
    rows[:, 54] = [1, 7]
    write(tmp_path / name, "\n".join(",".join(map(str, row)) for row in rows).encode())
    data = covertype.load(tmp_path, verify=False)
    assert data.frame["wilderness_area"].tolist() == ["Rawah", "Cache la Poudre"]
    assert data.frame["soil_type"].tolist() == ["soil 1", "soil 40"]
    assert data.frame.iloc[:, :10].to_numpy().tolist() == rows[:, :10].tolist()
    assert data.labels.tolist() == ["spruce/fir", "krummholz"]


def test_covertype_with_two_soils_is_refused(tmp_path):
    row = [0] * 10 + [1, 0, 0, 0] + [1, 1] + [0] * 38 + [1]
    write(tmp_path / "covtype.data", ",".join(map(str, row)).encode())
    with pytest.raises(InvalidInputError, match="exactly one of 'soil 1' to 'soil 40'"):
        covertype.load(tmp_path, verify=False)


def test_higgs_is_read_from_subset_and_full_file_alike(tmp_path):
    X, y = RNG.normal(size=(5, 28)).astype(np.float32), np.array([1, 0, 0, 1, 1], dtype=np.uint8)
    for name in ("subset", "full"):
        (tmp_path / name / "higgs").mkdir(parents=True)
    np.savez(tmp_path / "subset/higgs/higgs_subset.npz", X=X, y=y)
    text = "\n".join(",".join(repr(float(x)) for x in (label, *row)) for label, row in zip(y, X, strict=True))
    write(tmp_path / "full/higgs/HIGGS.csv.gz", text.encode())
    subset, full = (higgs.load(tmp_path / name, verify=False) for name in ("subset", "full"))
    pd.testing.assert_frame_equal(subset.frame, full.frame)
    assert subset.labels.tolist() == full.labels.tolist() == ["signal", *["background"] * 2, *["signal"] * 2]
    with pytest.raises(InvalidInputError, match="has 5 rows, it must have 11,000,000"):
        higgs.load(tmp_path / "full")


FACES = "file,age,gender,race,service_test\nval/2.jpg,3-9,Male,East Asian,False\nval/1.jpg,20-29,Female,Black,True\n"


def jpeg(grey):
    content = io.BytesIO()
    Image.new("L", (32, 32), grey).save(content, format="JPEG")
    return content.getvalue()


def faces(root, packed):
    write(root / "fairface/fairface_label_val.csv", FACES.encode())
    images = {"val/1.jpg": jpeg(40), "val/2.jpg": jpeg(200)}
    if not packed:
        for name, content in images.items():
            write(root / "fairface" / name, content)
        return
    with tarfile.open(root / "fairface/fairface32_val.tar.xz", "w:xz") as archive:
        for name, content in images.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("packed", [True, False])
def test_fairface_joins_images_and_labels_by_name(packed, tmp_path):
    faces(tmp_path, packed)
    data = fairface.load(tmp_path, "val", size=16, verify=False)
    assert data.ids == ("val/2.jpg", "val/1.jpg")
    assert data.labels.tolist() == ["East Asian", "Black"]
    assert data.attributes["gender"].tolist() == ["Male", "Female"]
    assert data.pixels.shape == (2, 1, 16, 16)
    torch.testing.assert_close(data.pixels.float().mean(dim=(1, 2, 3)), torch.tensor([200.0, 40.0]))


def test_fairface_names_an_image_that_is_not_there(tmp_path):
    faces(tmp_path, packed=False)
    (tmp_path / "fairface/val/1.jpg").unlink()
    with pytest.raises(InvalidInputError, match=r"val/1\.jpg"):
        fairface.load(tmp_path, "val", verify=False)


def test_scenes_are_cut_from_the_mosaic_in_reading_order_and_halved(tmp_path):
    tiles = np.zeros((2, 3, 64, 64, 3), dtype=np.uint8)
    tiles[1, 2, :32] = 200  # the last tile: its upper half
    tiles[0, 1, ::2, ::2] = 100  # every fourth pixel of the second: a mean of 25
    mosaic = tiles.transpose(0, 2, 1, 3, 4).reshape(128, 192, 3)
    (tmp_path / "scenes_sea").mkdir()
    Image.fromarray(mosaic).save(tmp_path / "scenes_sea/scenes64.webp", lossless=True)
    np.savez(tmp_path / "scenes_sea/labels.npz", y=[0, 0, 0, 1, 1, 1], classes=np.array(["sea", "street"]))
    data = scenes.load(tmp_path, verify=False)
    assert data.pixels.shape == (6, 3, 32, 32) and data.labels.tolist() == ["sea"] * 3 + ["street"] * 3
    assert bool((data.pixels[1] == 25).all()) and bool((data.pixels[0] == 0).all())
    assert bool((data.pixels[5, :, :16] == 200).all()) and bool((data.pixels[5, :, 16:] == 0).all())
    with pytest.raises(InvalidInputError, match="is not the published file"):
        scenes.load(tmp_path)
    np.savez(tmp_path / "scenes_sea/labels.npz", y=[0], classes=np.array(["sea"]))
    with pytest.raises(InvalidInputError, match="has 6 pictures, labels.npz 1 labels"):
        scenes.load(tmp_path, verify=False)


@pytest.mark.parametrize("name", DATASETS)
def test_a_missing_file_says_what_to_download_and_where_to_put_it(name, tmp_path):
    with pytest.raises(
        InvalidInputError, match="was not found. Download it and put it at one of these places"
    ) as caught:
        DATASETS[name](tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("name", DATASETS)
def test_a_part_that_does_not_exist_is_refused(name, tmp_path):
    faces(tmp_path, packed=True)
    write(tmp_path / "bank-full.csv", BANK.encode())
    with pytest.raises(InvalidInputError, match="has no part 'holdout'|was not found"):
        DATASETS[name](tmp_path, "holdout", verify=False)


def test_a_wrong_file_is_named_with_both_sums(tmp_path):
    write(tmp_path / "adult.data", ADULT.encode())
    with pytest.raises(InvalidInputError, match=f"(?s)sha256.* is [0-9a-f]{{64}}.*{adult.SHA256['adult.data']}"):
        adult.load(tmp_path)


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path):
    write(tmp_path / "covtype.data.gz", b"1,2,3\n" * 1000)
    path = tmp_path / "covtype.data.gz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InvalidInputError, match="no complete gzip file"):
        covertype.load(tmp_path)


def test_the_folder_comes_from_the_argument_or_the_environment(tmp_path, monkeypatch):
    write(tmp_path / "bank-full.csv", BANK.encode())
    monkeypatch.delenv("KREPES_DATA", raising=False)
    with pytest.raises(InvalidInputError, match="set the environment variable KREPES_DATA"):
        bank.load(verify=False)
    monkeypatch.setenv("KREPES_DATA", str(tmp_path))
    assert len(bank.load(verify=False).frame) == 3
    with pytest.raises(InvalidInputError, match="does not exist"):
        bank.load(tmp_path / "absent")


def test_train_and_test_share_no_row_and_make_up_the_whole(tmp_path):
    rows = "".join(f'{i};"student";"{"yes" if i % 3 else "no"}"\n' for i in range(100))
    write(tmp_path / "bank-full.csv", ('"age";"job";"y"\n' + rows).encode())
    whole, train, test = (bank.load(tmp_path, split, verify=False) for split in ("all", "train", "test"))
    assert (len(train.frame), len(test.frame)) == (80, 20)
    assert sorted(train.ids + test.ids) == sorted(whole.ids)
    for part in (train, test):
        assert part.labels.tolist() == ["yes" if age % 3 else "no" for age in part.frame["age"]]


PUBLISHED = {
    ("adult", "train"): (32561, {">50K": 7841}),
    ("adult", "test"): (16281, {">50K": 3846}),
    ("bank", "all"): (45211, {"yes": 5289}),
    ("cifar10", "train"): (50000, dict.fromkeys(cifar10.CLASSES, 5000)),
    ("cifar10", "test"): (10000, dict.fromkeys(cifar10.CLASSES, 1000)),
    ("covertype", "all"): (
        581012,
        dict(zip(covertype.CLASSES, [211840, 283301, 35754, 2747, 9493, 17367, 20510], strict=True)),
    ),
    ("fairface", "train"): (86744, {}),
    ("fairface", "val"): (10954, {}),
    ("higgs", "all"): (51233, {"signal": 27137}),
    ("scenes", "all"): (1200, {"sea": 600, "street": 120}),
    ("mnist", "train"): (60000, {}),
    ("mnist", "test"): (10000, {}),
}


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "split"), PUBLISHED)
def test_the_real_files_have_their_published_counts(name, split):
    data = DATASETS[name](split=split)
    rows, classes = PUBLISHED[name, split]
    counts = collections.Counter(data.labels.tolist())
    assert len(data.ids) == len(set(data.ids)) == len(data.labels) == rows
    assert {label: counts[label] for label in classes} == classes


@pytest.mark.realdata
def test_cifar10_has_its_published_mean_and_spread():
    X = cifar10.load().X.double()
    mean, std = torch.tensor([0.49139968, 0.48215841, 0.44653091]), torch.tensor([0.24703223, 0.24348513, 0.26158784])
    torch.testing.assert_close(X.mean(dim=(0, 2, 3)), mean.double(), rtol=0, atol=1e-6)  # float32 pixels
    torch.testing.assert_close(X.std(dim=(0, 2, 3)), std.double(), rtol=0, atol=1e-6)


@pytest.mark.realdata
def test_the_columns_of_higgs_are_those_the_file_names():
    from krepes.data.local import data_root

    with np.load(data_root(None) / "higgs/higgs_subset.npz", allow_pickle=False) as stored:
        assert tuple(stored["columns"]) == higgs.COLUMNS


@pytest.mark.realdata
def test_torchvision_layout_gives_the_same_digits(tmp_path):
    from krepes.data.local import data_root

    shutil.copytree(data_root(None) / "mnist", tmp_path / "MNIST/raw")
    torch.testing.assert_close(mnist.load(tmp_path, "test").pixels, mnist.load(split="test").pixels, rtol=0, atol=0)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "kinds", "d"),
    [
        ("adult", {"numeric": 6, "categorical": 8}, 6 + 102),
        ("bank", {"numeric": 7, "categorical": 6, "boolean": 3}, 7 + 3 + 38),
        ("covertype", {"numeric": 10, "categorical": 2}, 54),
        ("higgs", {"numeric": 28}, 28),
    ],
)
def test_the_schema_of_the_real_tables_is_the_documented_one(name, kinds, d):
    data = DATASETS[name]()
    schema = Schema.infer(data.frame)
    found = collections.Counter(schema.kinds.values())
    X = TabularEncoder(schema).fit(data.frame).transform(data.frame)
    print(f"\n{name}: {dict(found)}, X {tuple(X.shape)}")
    assert found == kinds
    assert X.shape == (len(data.frame), d)
