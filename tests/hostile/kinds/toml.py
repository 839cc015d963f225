"""Settings files: every key with values of every wrong kind, keys that are none, files that are no TOML."""

from collections.abc import Iterator
from random import Random

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.runs.settings import FIELDS, Settings

VALUES = {
    "text": '"abc"',
    "empty text": '""',
    "a thousand characters": f'"{"x" * 1000}"',
    "terminal escape": r'"\u001b[31mred"',
    "zero": "0",
    "negative": "-1",
    "huge": "9" * 30,
    "fraction": "0.5",
    "nan": "nan",
    "infinity": "inf",
    "true": "true",
    "list": "[1, 2]",
    "nested list": "[[1], [2]]",
    "table": "{a = 1}",
    "deep table": "{a = {b = {c = 1}}}",
    "date": "1979-05-27",
    "empty list": "[]",
}
GOOD = 'data = "t.csv"\nm = 20\nlabel = "y"\nexclude = ["a"]\n[objective_options]\nlam = 0.1\n'
BROKEN = {
    "empty": b"",
    "no toml": b"hello world",
    "half a line": b"m = ",
    "two equal keys": b'data = "a"\ndata = "b"\n',
    "nul": b'data = "a\x00"\n',
    "latin-1": 'data = "gek\xfcndigt"\n'.encode("latin-1"),
    "utf-16": 'data = "a"\n'.encode("utf-16"),
    "deep": b"a = " + b"[" * 500 + b"]" * 500,
    "very deep": b"a = " + b"[" * 100_000,
    "array of tables": b"[[data]]\nx = 1\n",
}


def gathered(folder):
    return Settings.gather(folder / "run.toml", {})


def read_json(folder):
    return Settings.gather(folder / "run.json", {})


def cases(rng: Random) -> Iterator[Case]:
    yield Case("toml", "a good file", writes("run.toml", GOOD), gathered, "read", lambda s: s.m == 20 or 1 / 0)
    for key in FIELDS:
        for what, value in VALUES.items():
            text = f"{key} = {value}\n" if key == "data" else f'data = "t.csv"\n{key} = {value}\n'
            yield Case("toml", f"{key} is {what}", writes("run.toml", text), gathered)
    for key in ("landmark", "", "a.b", "DATA", "'quoted key'", "__class__", "self", "gekündigt"):
        text = f'data = "t.csv"\n{key or chr(34) * 2} = 1\n'
        yield Case("toml", f"the key {key!r}", writes("run.toml", text), gathered, "refused")
    for what, content in BROKEN.items():
        yield Case("toml", what, writes("run.toml", content), gathered, "refused")
        yield Case("toml", f"{what}, as JSON", writes("run.json", content), read_json, "refused")
    for text in ("[]", "3", '"data"', "null", '{"data": null}', '{"data": "a", "m": 1e999}', "[" * 50_000):
        yield Case("toml", f"JSON {text[:20]}", writes("run.json", text), read_json, "refused")
    for what, content in damaged(GOOD.encode(), rng, 60):
        yield Case("toml", f"damage: {what}", writes("run.toml", content), gathered)
