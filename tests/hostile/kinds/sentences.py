"""Files of texts, .txt and .jsonl: encodings, bombs, depth, keys of every sort, damage."""

import bz2
import gzip
import json
from collections.abc import Iterator
from random import Random

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.data.sentences import read_sentences

GOOD = "a first text\n\nanother, with ümlauts\n\u202eand marks \x1b[31m\n"
LINES = [{"text": "a first text", "label": 1}, "a bare text", {"text": "another", "more": {"deep": [1, 2]}}]
BROKEN = {
    "nothing": b"",
    "blank lines": b"\n\n  \n",
    "nul bytes": b"a\0b\n",
    "latin-1": "gek\xfcndigt\n".encode("latin-1"),
    "half a character": "ü".encode()[:1] + b"\n",
    "an archive cut off": gzip.compress(GOOD.encode() * 50)[:-20],
    "a bomb": gzip.compress(b"a" * 10**6) * 100,
    "a bomb of bzip2": bz2.compress(b"a\n" * 10**6) * 100,
    "a Parquet file": b"PAR1" + b"x" * 100,
    "a PDF": b"%PDF-1.4\n",
    "one endless line": b"a" * (2**24 + 1),
}
READ = {
    "UTF-16": GOOD.encode("utf-16"),
    "UTF-8 with a mark": GOOD.encode("utf-8-sig"),
    "Windows line ends": GOOD.replace("\n", "\r\n").encode(),
    "no last line end": GOOD.strip().encode(),
    "packed": gzip.compress(GOOD.encode()),
}
NO_RECORD = ("3", "null", "[1]", "{", "nan", '{"a": }', "[" * 100_000, '{"a":' * 50_000, "9" * 10**5, '"half')
ODD_RECORD = (
    {}, {"": 1}, {"text": None}, {"text": 5}, {"text": float("nan")}, {"\x1b[31m": "x"}, {"text": "x" * 10**6},
    {"text": "\ud800"}, {"text": "a", "Text": "b"}, {"text": 10**400}, {str(i): i for i in range(3000)},
)  # fmt: skip


def plain(folder):
    return read_sentences(folder / "x.txt")


def records(folder):
    return read_sentences(folder / "x.jsonl")


def three(answer):
    assert answer["text"].tolist() == [line for line in GOOD.split("\n") if line.strip()]


def whole(answer):
    assert answer["text"].tolist() == ["a first text", "a bare text", "another"]


def cases(rng: Random) -> Iterator[Case]:
    jsonl = "\n".join(json.dumps(line) for line in LINES)
    yield Case("sentences", "a good file", writes("x.txt", GOOD), plain, "read", three)
    yield Case("sentences", "good records", writes("x.jsonl", jsonl), records, "read", whole)
    for what, content in READ.items():
        yield Case("sentences", what, writes("x.txt", content), plain, "read", three)
    for what, content in BROKEN.items():
        heavy = b"bomb" in what.encode()
        yield Case("sentences", what, writes("x.txt", content), plain, "refused", where="x.txt", heavy=heavy)
        yield Case("sentences", f"{what}, as records", writes("x.jsonl", content), records, "refused", heavy=heavy)
    for line in NO_RECORD:
        content = f'"good"\n{line}\n'
        yield Case("sentences", f"a line {line[:20]}", writes("x.jsonl", content), records, "refused", where="line 2")
    for record in ODD_RECORD:
        content = f"{jsonl}\n{json.dumps(record)}\n"
        yield Case("sentences", f"a record {str(record)[:30]}", writes("x.jsonl", content), records)
    for what, content in damaged(GOOD.encode(), rng, 30):
        yield Case("sentences", f"damage: {what}", writes("x.txt", content), plain, where="x.txt")
    for what, content in damaged(jsonl.encode(), rng, 40):
        yield Case("sentences", f"damage to records: {what}", writes("x.jsonl", content), records, where="x.jsonl")
