"""Conditions: what they mean, held to plain Python on random ones; hostile ones are refused and never executed."""

import builtins
import random

import numpy as np
import pandas as pd
import pytest

from krepes.data.conditions import parse_condition
from krepes.errors import InvalidInputError

TABLE = pd.DataFrame({
    "age": [20.0, 40.0, np.nan, 60.0],
    "country": ["X", "Y", None, "or 'Z"],
    "job title": ["cook", "clerk", "cook", "judge"],
    "code": ["1", "2", "3", "n/a"],
})


def holds(text, table=TABLE):
    return parse_condition(text).holds(table.__getitem__).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("country == 'X'", [1, 0, 0, 0]),
        ("country != 'X'", [0, 1, 1, 1]),
        ("country == '(missing)'", [0, 0, 1, 0]),
        ('country == "or \'Z"', [0, 0, 0, 1]),
        ("age == '(missing)'", [0, 0, 1, 0]),
        ("age != 20", [0, 1, 0, 1]),
        ("age >= 4e1", [0, 1, 0, 1]),
        ("age<+40.0", [1, 0, 0, 0]),
        ("`job title` in ('cook', 'judge')", [1, 0, 1, 1]),
        ("age in [20, 60]", [1, 0, 0, 1]),
        ("code > 1", [0, 1, 1, 0]),
        ("age > 30 and country == 'Y' or `job title` == 'judge'", [0, 1, 0, 1]),
        ("age > 30 and (country == 'X' or `job title` == 'judge')", [0, 0, 0, 1]),
        (" ( ( age == 20 ) ) ", [1, 0, 0, 0]),
    ],
)
def test_meaning(text, expected):
    assert holds(text) == [bool(one) for one in expected]


def made(draw, depth=0):
    """A random condition as text, and as a function of a row in plain Python."""
    if depth < 3 and draw.random() < 0.6:
        word, (a, f), (b, g) = draw.choice(["and", "or"]), made(draw, depth + 1), made(draw, depth + 1)
        both = (lambda row: f(row) and g(row)) if word == "and" else (lambda row: f(row) or g(row))
        return f"({a}) {word} ({b})", both
    value = draw.randint(0, 5)
    name = draw.choice(["x", "a b"])
    written = f"`{name}`" if name == "a b" or draw.random() < 0.3 else name
    how = draw.choice(["==", "!=", "<", "<=", ">", ">="])
    compare = {
        "==": lambda a: a == value, "!=": lambda a: a != value, "<": lambda a: a < value,
        "<=": lambda a: a <= value, ">": lambda a: a > value, ">=": lambda a: a >= value,
    }[how]  # fmt: skip
    return f"{written}{' ' * draw.randint(0, 2)}{how} {value}", lambda row: compare(row[name])


def test_random_conditions_mean_what_python_would_mean(seed):
    draw = random.Random(seed)
    table = pd.DataFrame({"x": np.arange(36) % 6, "a b": np.arange(36) // 6})
    for _ in range(100):
        text, truth = made(draw)
        assert holds(text, table) == [bool(truth(row)) for row in table.to_dict("records")], text


HOSTILE = [
    "",
    "   ",
    "__import__('os').system('touch owned') == 0",
    "age.__class__ == 'x'",
    "age == __builtins__",
    "age == open('/etc/passwd')",
    "@age == 3",
    "age == 3; import os",
    "age == 3\nimport os",
    "age == 3 and",
    "age == 3 or or age == 4",
    "age == (3)",
    "age == 'open",
    "age == 3)",
    "((age == 3)",
    "age = 3",
    "age := 3",
    "age + 1 == 3",
    "age ** 9999999 == 1",
    "not age == 3",
    "age == 3 age == 4",
    "age in 3",
    "age in ()",
    "age in ('a'",
    "age in ('a',)",
    "age < 'b'",
    "3 == age",
    "'age' == 3",
    "age == country",
    "age == True",
    "lambda: 0",
    "[x for x in ()]",
    "f'{age}' == 3",
    "age == 3 # comment",
    "age == 1_000",
    "age == 0x10",
    "age == nan",
    "age == 3 & country == 'X'",
    "age | country",
    "${HOME} == 1",
    "{{7*7}} == 49",
    "age == 'a' 'b'",
    "`age == 3",
    "age == 3 or `",
    "(" * 60 + "age == 3" + ")" * 60,
    "(" * 9000,
    "age == 3 and " * 2000,
    "age == \x1b[31m3",
    "age == \x00",
    "\u202eage == 3",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_conditions_are_refused_with_their_place_and_never_executed(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("eval", "exec", "open"):
        monkeypatch.setattr(builtins, name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))
    monkeypatch.setattr(pd, "eval", lambda *_, **__: pytest.fail("pandas.eval was called"))
    with pytest.raises(InvalidInputError) as refused:
        parse_condition(text, "--where")
    monkeypatch.undo()
    said = str(refused.value)
    assert said.startswith("--where: ") and ("at character" in said or "too long" in said)
    assert "\x1b" not in said and "\u202e" not in said and not list(tmp_path.iterdir())


def test_the_place_is_shown():
    with pytest.raises(InvalidInputError, match=r"at character 13, after the mark: age == 3 and ▶ \(end\)"):
        parse_condition("age == 3 and")


def test_text_and_numbers_are_not_mixed():
    with pytest.raises(InvalidInputError, match="'age' holds numbers"):
        holds("age == '20'")
    with pytest.raises(InvalidInputError, match="'country' holds texts and cannot be compared with the number 3"):
        holds("country == 3")
