"""Tar files of images: names that lead elsewhere, links, lies about sizes, bombs, keys used twice, damage."""

import io
import tarfile
from collections.abc import Iterator
from random import Random

from hostile.case import Case, writes
from hostile.kinds.images import FORGED, STRANGERS, picture, saved, usable
from hostile.mutate import damaged
from krepes.data import tar_images

NAMES = ("/etc/a.jpg", "../a.jpg", "a/../../b.jpg", "//a.jpg", "a/..", "..")
TYPES = {
    "a link": b"2",
    "a hard link": b"1",
    "a pipe": b"6",
    "a device": b"3",
    "a contiguous file": b"7",
    "holes": b"S",
}
ODD_NAMES = ("\x1b[31m.jpg", "a\nb.jpg", "\u202egpj.jpg", " .jpg", "x" * 300 + ".jpg", "ä/ö.jpg", "-rf.jpg", "%s.jpg")


def member(name: str, content: bytes = b"", *, size: int | None = None, type: bytes = b"0", link: str = "") -> bytes:
    """Return a member as it lies in the file; its size may be a lie."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(content) if size is None else size, type, link
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + content + b"\0" * (-len(content) % 512)


def stacked(folder):
    return tar_images(folder / "x.tar", size=8).stack()


def counted(n):
    def check(answer):
        usable(answer)
        assert len(answer) == n

    return check


def tar(*members: bytes):
    return writes("x.tar", b"".join(members) + b"\0" * 1024)


def cases(rng: Random) -> Iterator[Case]:
    good = saved(picture("RGB", (9, 7), rng), "JPEG")
    plain = [member("a.jpg", good), member("a.cls", b"1"), member("b/c.jpg", good)]
    yield Case("shard", "a good file", tar(*plain), stacked, "read", counted(2))
    yield Case("shard", "without an end", writes("x.tar", b"".join(plain)), stacked, "read", counted(2))
    for name in NAMES:
        yield Case("shard", f"the name {name}", tar(*plain, member(name, good)), stacked, "refused", where="x.tar")
    for name in ODD_NAMES:
        yield Case("shard", f"the name {name[:20]!r}", tar(member(name, good)), stacked, "read", counted(1))
    for what, type in TYPES.items():
        content = tar(*plain, member("d.jpg", type=type, link="/etc/passwd"))
        yield Case("shard", what, content, stacked, "either" if type in b"7S" else "refused", where="x.tar")
    for size in (len(good) + 10**6, 2**33, 2**62):
        yield Case("shard", f"a lie of {size}", tar(*plain, member("d.jpg", good, size=size)), stacked, "refused")
        yield Case("shard", f"a long name of {size}", tar(member("d", b"x", size=size, type=b"L")), stacked, "refused")
    yield Case("shard", "one key twice", tar(*plain, member("a.png", good)), stacked, "refused", where="one key")
    yield Case("shard", "one file twice", tar(*plain, *plain), stacked, "refused", where="one key")
    yield Case("shard", "no image", tar(member("a.cls", b"1")), stacked, "refused", where="no image")
    yield Case("shard", "a long label", tar(*plain, member("a.txt", b"x" * 2**21)), stacked, "refused", where="a.txt")
    for what, label in {"deep": b"[" * 10**5, "a number": b"9" * 10**5, "no text": b"\xff", "null": b"null"}.items():
        content = tar(member("a.jpg", good), member("a.json", label))
        yield Case("shard", f"a label of JSON: {what}", content, stacked, "refused", where="a.jpg")
    for what, (suffix, content) in FORGED.items():
        yield Case("shard", what, tar(*plain, member(f"z.{suffix}", content)), stacked, "refused", where=f"z.{suffix}")
    for what, content in rng.sample(sorted(STRANGERS.items()), 6):
        yield Case("shard", what, tar(*plain, member("z.jpg", content)), stacked, "refused", where="z.jpg")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    for what, content in {"packed": packed.getvalue(), "zeros": b"\0" * 10**4, "text": b"no tar" * 999}.items():
        yield Case("shard", what, writes("x.tar", content), stacked, "refused", where="x.tar")
    for what, content in damaged(b"".join(plain) + b"\0" * 1024, rng, 60):
        yield Case("shard", f"damage: {what}", writes("x.tar", content), stacked, where="x.tar")
