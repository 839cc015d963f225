"""A folder of images as samples: what is taken, in which order and form, and what happens to broken files."""

import io
import os
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from krepes.data import image_folder
from krepes.errors import InvalidInputError
from krepes.views import Identity, ViewStream

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (8, 8), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    for name, pixels in {"cat/2.png": COLOUR, "cat/1.png": GREY, "dog/a b.bmp": COLOUR, "top.webp": COLOUR}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / name, lossless=True)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "._1.png").write_bytes(b"of a file system")
    return tmp_path


def test_images_come_in_the_order_of_their_paths_with_labels_apart(folder):
    images = image_folder(folder, size=8)
    assert images.ids == ("cat/1.png", "cat/2.png", "dog/a b.bmp", "top.webp")
    assert images.labels == ("cat", "cat", "dog", "")
    assert images.skipped == {}


def test_pixels_are_those_of_the_file(folder):
    images = image_folder(folder, size=8)
    expected = torch.tensor(COLOUR).permute(2, 0, 1) / 255.0
    torch.testing.assert_close(images[1], expected, rtol=0, atol=0)
    torch.testing.assert_close(images[2], expected, rtol=0, atol=0)
    torch.testing.assert_close(images[0], (torch.tensor(GREY) / 255.0).expand(3, 8, 8), rtol=0, atol=0)


def test_colour_becomes_grey_by_its_luma(folder):
    grey = image_folder(folder, size=8, channels=1)
    luma = torch.tensor(COLOUR.astype(np.float32)) @ torch.tensor([0.299, 0.587, 0.114]) / 255.0
    torch.testing.assert_close(grey[1][0], luma, rtol=0, atol=1 / 255)  # Pillow rounds to whole steps
    torch.testing.assert_close(grey[0][0], torch.tensor(GREY) / 255.0, rtol=0, atol=0)


def test_the_middle_square_is_kept_and_scaled(tmp_path):
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, 8:22] = 200  # the middle and what the filter sees beside it
    Image.fromarray(wide).save(tmp_path / "wide.png")
    torch.testing.assert_close(image_folder(tmp_path, size=5)[0], torch.full((3, 5, 5), 200 / 255))


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    Image.fromarray(np.full((4, 4), 0x8000, dtype=np.uint16)).save(tmp_path / "deep.png")
    torch.testing.assert_close(image_folder(tmp_path, size=4, channels=1)[0], torch.full((1, 4, 4), 0x80 / 255))


def test_an_image_on_its_side_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn by 90 degrees clockwise to show"
    pixels = np.zeros((8, 8), dtype=np.uint8)
    pixels[:, :4] = 255  # left half white: upright it is the upper half
    Image.fromarray(pixels).save(tmp_path / "side.png", exif=exif)
    upright = image_folder(tmp_path, size=8, channels=1)[0][0]
    torch.testing.assert_close(upright, torch.cat([torch.ones(4, 8), torch.zeros(4, 8)]))


def test_the_folder_is_a_source_of_views(folder):
    images = image_folder(folder, size=8)
    plain = ViewStream(images, Identity()).plain(torch.tensor([3, 0]))
    torch.testing.assert_close(plain, images.stack()[[3, 0]], rtol=0, atol=0)


def one(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def saved(pixels, format, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=format, **options)
    return buffer.getvalue()


def test_the_content_tells_the_format_and_others_are_refused(tmp_path):
    one(tmp_path, "really_png.jpg", saved(COLOUR, "PNG"))
    torch.testing.assert_close(image_folder(tmp_path, size=8)[0], torch.tensor(COLOUR).permute(2, 0, 1) / 255.0)
    one(tmp_path, "script.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(canary) (w) file\n")
    one(tmp_path, "icon.png", saved(COLOUR, "ICO"))
    with pytest.raises(InvalidInputError, match="2 of 3 images cannot be decoded: icon.png.*script.png"):
        image_folder(tmp_path, size=8)


def test_a_bomb_is_refused_by_its_header(tmp_path):
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    one(tmp_path, "bomb.png", png + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT")))
    wide = Image.new("1", (20_000, 6_000))
    wide.save(tmp_path / "wide.png")
    with warnings.catch_warnings(), pytest.raises(InvalidInputError, match="bomb.png.*wide.png.*20,000 x 6,000 pixels"):
        warnings.simplefilter("error")
        image_folder(tmp_path, size=8)


def test_pixels_of_unknown_range_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 0.5, dtype=np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(InvalidInputError, match="float.tif: has pixels of 32 bits"):
        image_folder(tmp_path, size=4)


def test_of_an_animation_the_first_frame_is_taken(tmp_path):
    frames = [Image.new("L", (8, 8), grey) for grey in (255, 0, 0)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    torch.testing.assert_close(image_folder(tmp_path, size=8)[0], torch.ones(3, 8, 8))


def test_pipes_devices_and_loops_are_named_and_not_waited_for(folder):
    os.mkfifo(folder / "pipe.png")
    os.symlink("loop.png", folder / "loop.png")
    os.symlink("/dev/zero", folder / "zero.png")
    os.symlink(folder, folder / "again")
    with pytest.raises(InvalidInputError, match="3 of 7 images.*loop.png: no regular file"):
        image_folder(folder, size=8)
    with pytest.warns(UserWarning, match="They were skipped"):
        assert len(image_folder(folder, size=8, on_error="skip")) == 4


def test_a_name_that_is_no_text_is_refused_and_shown_escaped(folder):
    os.rename(folder / "top.webp", os.fsencode(folder) + b"/\xff\x1b[31m.webp")
    with pytest.raises(InvalidInputError, match=r"\\udcff\\x1b\[31m.webp: its name is not UTF-8"):
        image_folder(folder, size=8)


def broken(folder):
    whole = (folder / "cat/2.png").read_bytes()
    (folder / "cat/3.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog/empty.jpg").write_bytes(b"")
    (folder / "dog/text.jpg").write_text("this is no image")
    return {"cat/3.png", "dog/empty.jpg", "dog/text.jpg"}


def test_all_broken_images_are_reported_at_once(folder):
    names = broken(folder)
    with pytest.raises(InvalidInputError, match=r"3 of 7 images cannot be decoded.*on_error='skip'") as caught:
        image_folder(folder, size=8)
    assert all(name in str(caught.value) for name in names)


def test_broken_images_are_skipped_and_listed_if_asked(folder):
    before, names = image_folder(folder, size=8), broken(folder)
    with pytest.warns(UserWarning, match="3 of 7 images cannot be decoded.*They were skipped"):
        images = image_folder(folder, size=8, on_error="skip")
    assert images.ids == before.ids
    assert set(images.skipped) == names


def test_nothing_but_broken_images_is_an_error_even_when_skipping(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="1 of 1 images cannot be decoded"):
        image_folder(tmp_path, size=8, on_error="skip")


REFUSED = {
    "no folder": (lambda path: image_folder(path / "absent", size=8), "is not a folder"),
    "no image": (lambda path: image_folder(path, size=8), r"holds no image. Files that end in \.bmp"),
    "two channels": (lambda path: image_folder(path, size=8, channels=2), r"channels must be 1 \(grey\) or 3"),
    "no size": (lambda path: image_folder(path, size=0), "size=0 is out of range"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_folder_of_images_is_refused(case, tmp_path):
    make, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message):
        make(tmp_path)
