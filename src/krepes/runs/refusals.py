"""What is wrong with settings, in one sentence for each: the key, where it was written, the value, what is required."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from krepes.registry import listed, suggestion

SHOWN, MOST = 60, 3
REQUIRED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table of name = value",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "of the form {pattern}",
}
UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")


def explained(
    error: ValidationError, values: Mapping[str, Any], known: tuple[str, ...], place: Callable[[str], str]
) -> str:
    """Return what pydantic found, for a person.

    Args:
        error: What it raised.
        values: What was given, by key.
        known: All keys there are.
        place: Says where a key was written: a flag, a line of a file, an argument.

    Returns:
        One sentence for each key, the first problem of each.
    """
    by_key: dict[str, list[Any]] = {}
    for problem in error.errors(include_url=False):
        by_key.setdefault(str(problem["loc"][0]) if problem["loc"] else "", []).append(problem)
    return " ".join(_sentence(key, problems, values, known, place) for key, problems in by_key.items())


def _sentence(
    key: str, problems: list[Any], values: Mapping[str, Any], known: tuple[str, ...], place: Callable[[str], str]
) -> str:
    first = problems[0]
    if first["type"] in UNKNOWN:
        hint = suggestion(key, known) or f" The settings are {', '.join(known)}."
        return f"{place(key)}: there is no such setting.{hint}"
    if first["type"].startswith("missing"):
        return f"{place(key)} is missing: pass a file, a folder of images or the name of a data set."
    if not key:
        return _ended(_plain(first))
    inside = "".join(f", {part}" for part in first["loc"][1:] if not _is_type(part))
    if first["type"] == "value_error":
        return f"{place(key)}{inside}: {_ended(_plain(first))}"
    required = list(dict.fromkeys(_plain(problem) for problem in problems))
    words = " or ".join(required) if len(required) <= MOST else "a number, a text, true or false, or a list of them"
    return f"{place(key)}{inside}: {shown(first['input'])} cannot be used: it must be {_ended(words)}"


def _is_type(part: Any) -> bool:
    """Say whether a step of pydantic's path is the branch of a union, not a key of the user's."""
    return isinstance(part, str) and ("[" in part or part in {"int", "float", "str", "bool", "none", "literal"})


def _plain(problem: Any) -> str:
    """Return what is required, in plain words; for a check of ours, what it said."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in REQUIRED:
        return REQUIRED[kind].format(**context)
    return str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")


def _ended(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def shown(value: Any) -> str:
    """Return a value as short text."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def unknown_data(name: str, known: Sequence[str], read: Mapping[str, Sequence[str]]) -> str:
    """Return why data cannot be opened: there is nothing of that name, or a file of a kind that is not read.

    Args:
        name: As the user wrote it.
        known: Names of data sets.
        read: Endings of files that are read, by what they hold.

    Returns:
        The message.
    """
    path = Path(name)
    if not path.is_file():
        hint = suggestion(name, known)
        return f"{name!r} is no file, no folder and no data set.{hint} Data sets are {listed(known)}."
    kinds = "; ".join(f"{what} {', '.join(endings)}" for what, endings in read.items())
    ending = f"its ending {path.suffix} is not read" if path.suffix else "without an ending nobody knows what it holds"
    hint = " Save the one array that you mean by numpy.save." if path.suffix.lower() == ".npz" else ""
    return f"{name!r} is a file, but {ending}. What is read: {kinds}.{hint}"
