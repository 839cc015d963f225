"""What a schema file or a stored encoding may say: kinds, formats and numbers that are none."""

import json
from collections.abc import Iterator
from random import Random

import torch

from hostile.case import Case, writes
from hostile.mutate import damaged
from krepes.data import Schema, TabularEncoder

TABLE = {
    "age": [31, 45, 52, 60],
    "city": ["Bonn", "Ulm", "Ulm", "Kiel"],
    "when": ["1/2/2020", "3/4/2020", "5/6/2020", "7/8/2020"],
}
TOML = '[columns]\nage = "numeric"\ncity = "categorical"\nwhen = "date dd/mm/yyyy"\n'
REFUSED = {
    "no table": "a = 1\n",
    "another table": "[other]\nage = 'numeric'\n",
    "a list": "columns = [1, 2]\n",
    "a number": "[columns]\nage = 5\n",
    "a nested table": "[columns.age]\nkind = 5\n",
    "no such kind": "[columns]\nage = 'numerical'\n",
    "no such format": "[columns]\nage = 'numeric 1;234'\n",
    "no such date": "[columns]\nwhen = 'date yy-dd-mm'\n",
    "a format of another kind": "[columns]\nage = 'boolean dd.mm.yyyy'\n",
    "a unit that is none": "[columns]\nage = 'numeric 1,234.5 parsecs'\n",
    "an escape": "[columns]\nage = '\\u001b[31m'\n",
    "an empty kind": "[columns]\nage = ''\n",
    "no such column": "[columns]\nnothing = 'numeric'\n",
    "an escape for a name": '[columns]\n"\\u001b[31m" = "numeric"\n',
    "a name twice": "[columns]\nage = 'numeric'\nage = 'date'\n",
    "no end": "[columns\n",
    "deep lists": "a = " + "[" * 5000,
    "a long number": "a = " + "9" * 5000 + "\n",
    "a date that is none": "a = 2020-13-45\n",
    "nothing used": "[columns]\nage = 'ignored'\ncity = 'ignored'\nwhen = 'ignored'\n",
    "a word as a number": "[columns]\ncity = 'numeric'\n",
}
VALUES = [None, 5, -1.5, "x", [], {}, [1], {"a": 1}, True, float("nan"), float("inf"), 10**400, "\x1b[31m", [[[[]]]]]


def told(folder):
    kinds = Schema.from_toml(folder / "schema.toml").kinds
    schema = Schema.infer(TABLE, kinds)
    return TabularEncoder(schema).fit(TABLE).transform(TABLE)


def stored(folder):
    encoder = TabularEncoder.from_dict(json.loads((folder / "encoding.json").read_text()))
    return encoder.transform(TABLE)


def finite(answer):
    assert answer.shape[0] == 4 and bool(torch.isfinite(answer).all())


def encoding() -> dict[str, object]:
    return TabularEncoder(Schema.infer(TABLE), unknown="bucket").fit(TABLE).to_dict()


def places(node: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Yield the way to everything inside nested dicts and lists."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def replaced(path: tuple[object, ...], value: object) -> object:
    """Return the stored encoding with another value at one place, or without it if the value is ``...``."""
    root = json.loads(json.dumps(encoding()))
    if not path:
        return None if value is ... else value
    node = root
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return root


def cases(rng: Random) -> Iterator[Case]:
    yield Case("schema", "good", writes("schema.toml", TOML), told, "read", finite)
    for name, text in REFUSED.items():
        yield Case("schema", name, writes("schema.toml", text), told, "refused")
    for name, content in {
        "UTF-16": TOML.encode("utf-16"),
        "Latin-1": "[columns]\n'ä' = 'date'".encode("latin-1"),
    }.items():
        yield Case("schema", name, writes("schema.toml", content), told, "refused", where="schema.toml")
    for name, changed in damaged(TOML.encode(), rng, 56):
        yield Case("schema", name, writes("schema.toml", changed), told, check=finite)
    yield Case("schema", "good encoding", writes("encoding.json", json.dumps(encoding())), stored, "read", finite)
    for path in places(json.loads(json.dumps(encoding()))):
        for value in [..., *rng.sample(VALUES, 3)]:
            shown = "nothing" if value is ... else str(value)[:20] if value != 10**400 else "a long number"
            name = f"{'/'.join(map(str, path))} is {shown}"
            yield Case("schema", name, writes("encoding.json", json.dumps(replaced(path, value))), stored, check=finite)
