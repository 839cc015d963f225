"""Flags made from the fields of `Settings`: their names, types, help and panels are said there and nowhere else."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import typer

from krepes.errors import InvalidInputError
from krepes.runs.settings import FIELDS, Settings, flag, panel

SHORT = {"m": ("-m",), "h": ("-h",)}
"""Settings with a letter of their own beside the long flag; options can be named one at a time, ``--loss-option``."""
KEYS = ("settings", "gathered")
Data = Annotated[str | None, typer.Argument(help=FIELDS["data"].description, show_default=False)]
Config = Annotated[
    str | None, typer.Option("--config", help="A TOML file with any of the settings; flags override it.")
]


@dataclass(frozen=True)
class Gathered:
    """What was typed, before it is decided whether it makes settings: the data, a file, and the flags given."""

    data: str | None
    config: str | None
    flags: dict[str, Any]

    def settings(self) -> Settings:
        """Return the settings."""
        return Settings.gather(self.config, {"data": self.data, **self.flags})


def takes_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with one flag per setting instead of its parameter ``settings`` (or ``gathered``).

    Args:
        command: Takes ``settings``, or ``gathered`` if it does not always fit, and parameters of its own by keyword.

    Returns:
        A function for typer: the data, ``--config``, the command's own options, then all settings.
    """
    given_to = inspect.signature(command, eval_str=True).parameters
    own = [parameter for parameter in given_to.values() if parameter.name not in KEYS]
    names = [name for name in FIELDS if name != "data"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        mine = {parameter.name: given[parameter.name] for parameter in own}
        flags = {name: found for name in names if (found := parsed(name, given[name])) is not None}
        gathered = Gathered(given["data"], given["config"], flags)
        first: dict[str, Any] = {"gathered": gathered} if "gathered" in given_to else {"settings": gathered.settings()}
        command(**first, **mine)

    parameters = [
        inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, annotation=Data, default=None),
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, annotation=Config, default=None),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=_option(name), default=None)
            for name in names
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _option(name: str) -> Any:
    """Return the typed option of a setting."""
    kind, field = _kind(name), FIELDS[name]
    default = "" if field.is_required() else _shown(field.get_default(call_default_factory=True))
    text = f"{field.description or ''}{_hint(name)}{f' Default: {default}.' if default else ''}"
    long = flag(name)
    words = [f"{long}/--no-{long[2:]}"] if kind is bool else [long, *SHORT.get(name, ())]
    words += [long.removesuffix("s")] if kind is dict else []
    typed: Any = {bool: bool | None, int: int | None, float: float | None}.get(kind, str | None)
    if kind in {dict, tuple} and not _is_numbers(name):
        typed = list[str] | None
    return Annotated[typed, typer.Option(*words, help=text, rich_help_panel=panel(name), show_default=False)]


def _kind(name: str) -> type:
    """Return the plain type behind a field: bool, int, float, str, dict or tuple."""
    found = FIELDS[name].annotation
    while True:
        arguments = [part for part in get_args(found) if part is not type(None)]
        origin = get_origin(found)
        if origin is Annotated:
            found = arguments[0]
        elif origin in {dict, tuple}:
            return origin
        elif arguments and isinstance(arguments[0], (str, int)):
            return type(arguments[0]) if len({type(part) for part in arguments}) == 1 else str
        elif len(arguments) == 1:
            found = arguments[0]
        elif arguments:
            return str
        else:
            return found if isinstance(found, type) else str


def _is_numbers(name: str) -> bool:
    """Say whether a setting is a list of numbers, which is written with commas."""
    return _kind(name) is tuple and "str" not in str(FIELDS[name].annotation)


def _hint(name: str) -> str:
    if _kind(name) is dict:
        return " Written name=value (repeatable)."
    if _is_numbers(name):
        return " Written with commas, such as 1,2."
    return " (repeatable)." if _kind(name) is tuple else ""


def _shown(value: Any) -> str:
    if value is None or value == () or value == {}:
        return ""
    return (
        ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower() if value is False else str(value)
    )


def parsed(name: str, given: Any) -> Any:
    """Return a flag's value as the setting wants it.

    Args:
        name: Of the setting.
        given: What typer read; ``None`` or an empty list if the flag was not given.

    Returns:
        The value, or ``None`` where it was not given.
    """
    if given is None or given == []:
        return None
    kind = _kind(name)
    if kind is dict:
        return dict(_pair(name, text) for text in given)
    if _is_numbers(name):
        return [_number(name, text) for text in str(given).split(",") if text.strip()]
    if kind is tuple:
        return list(given)
    return value(given) if name == "damping" else given


def _pair(name: str, text: str) -> tuple[str, Any]:
    key, equals, written = text.partition("=")
    if not equals or not key:
        raise InvalidInputError(f"{flag(name)}: {text!r} is not name=value.")
    return key, value(written)


def _number(name: str, text: str) -> int | float:
    found = value(text.strip())
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise InvalidInputError(f"{flag(name)}: {text!r} is not a number; write numbers with commas, such as 1,2.")
    return found


def value(text: str) -> Any:
    """Return a typed value: true, false, an integer, a number, or the text itself."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
