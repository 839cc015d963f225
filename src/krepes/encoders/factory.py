"""An encoder from a name: of this package, of another (``timm:resnet18``), or ``module:factory`` of the user's."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from torch import nn

from krepes import registry
from krepes.data.files import foreign
from krepes.data.text import printable
from krepes.data.values import shown
from krepes.errors import InvalidInputError

Factory = str | Callable[..., nn.Module] | nn.Module

BUILT_IN: dict[str, Callable[..., nn.Module]] = registry.loaded(registry.ENCODERS)
"""Encoders of this package by name."""
LAYERS = ("depth", "B")
MOST_LAYERS = 1000
MOST_PARAMETERS = 2 * 10**9


def build_encoder(factory: Factory, **arguments: Any) -> nn.Module:
    """Return the encoder that a factory makes.

    Args:
        factory: The name of an encoder of this package or of another (``"timm:NAME"``, ``"torchvision:NAME"``,
            ``"openclip:NAME"``, ``"hf:FOLDER"``: untrained), ``"module:factory"`` (the module may lie in the current
            directory), a function or class that returns a module, or the module itself.
        arguments: Passed to the factory.

    Returns:
        The module.

    Raises:
        InvalidInputError: If there is no such factory, it does not take the arguments, or makes no module.

    Example:
        >>> build_encoder("mlp", d=4, width=8, depth=0, out=2)
        MLP(
          (layers): Sequential(
            (0): Flatten(start_dim=1, end_dim=-1)
            (1): Linear(in_features=4, out_features=2, bias=True)
          )
        )
    """
    make = find(factory) if isinstance(factory, str) else factory
    if isinstance(make, nn.Module):
        if arguments:
            raise InvalidInputError(f"{_named(arguments)} cannot be passed to an encoder that is already built.")
        return make
    if not callable(make):
        raise InvalidInputError(
            f"{_called_by(factory)} is a {type(make).__name__}. It must be a function or class that returns a module."
        )
    _require_call(factory, make, arguments)
    if isinstance(factory, str) and factory in BUILT_IN:
        _require_sizes(factory, arguments)
    encoder = _called(make, arguments, f"the factory {_called_by(factory)} failed")
    if not isinstance(encoder, nn.Module):
        raise InvalidInputError(
            f"the factory {_called_by(factory)} returned a {type(encoder).__name__}, not a torch module. Return the "
            f"encoder."
        )
    return encoder


def _called_by(factory: Factory) -> str:
    return shown(factory if isinstance(factory, str) else getattr(factory, "__qualname__", type(factory).__name__))


def _named(arguments: dict[str, Any]) -> str:
    return printable(", ".join(arguments)) or "no arguments"


def _require_call(factory: Factory, make: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{_called_by(factory)} does not say what arguments it takes: it is no factory of encoders. Name a Python "
            f"function or class that returns a module."
        ) from error
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InvalidInputError(
            f"the factory {_called_by(factory)} cannot be called with {_named(arguments)}: {printable(error)}. "
            f"Its signature is {signature}."
        ) from error


def _require_sizes(name: str, arguments: dict[str, Any]) -> None:
    """Refuse sizes that are none, or of a network that no machine holds, before it is built."""
    bound = inspect.signature(BUILT_IN[name]).bind(**arguments)
    bound.apply_defaults()
    sizes = bound.arguments
    for key, value in sizes.items():
        most = MOST_LAYERS if key in LAYERS else MOST_PARAMETERS
        if not isinstance(value, int) or abs(value) > most:
            raise InvalidInputError(
                f"{name}: {key}={shown(value)} must be a whole number, true or false, and at most {most:,}."
            )
    w = sizes["width"]
    parameters = (
        w * (sizes["buckets"] + sizes["out"] + (1 + 3 * sizes["depth"]) * w)
        if "buckets" in sizes
        else w * (sizes["d"] + sizes["out"] + (4 + 2 * sizes.get("depth", sizes.get("B", 0))) * w)
        if "d" in sizes
        else w * (6000 * w + 72 * sizes["in_channels"] + 36 * sizes.get("out", 0))
    )
    if parameters > MOST_PARAMETERS:
        raise InvalidInputError(
            f"{name} of these sizes has up to {parameters:,} parameters, more than {MOST_PARAMETERS:,}. Lower "
            f"{_named(arguments)}."
        )


def _called(make: Callable[..., Any], arguments: dict[str, Any], problem: str) -> Any:
    try:
        with foreign(problem, "Correct its arguments, or the factory."):
            return make(**arguments)
    except SystemExit as error:
        raise InvalidInputError(f"{problem}: it tried to end the program. It must return a module.") from error


def find(name: str) -> Any:
    """Return what a name means: an encoder of this package or of another, or what ``module:name`` imports."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    adapted = registry.adapter(name)
    if adapted is not None:
        return partial(registry.load(registry.ADAPTERS[adapted[0]]).build, adapted[1])
    if not _reads_as_code(name):
        raise InvalidInputError(
            f"{shown(name)} is no encoder of this package ({', '.join(BUILT_IN)}) and does not read 'module:factory'."
        )
    return imported(name)


def _reads_as_code(name: str) -> bool:
    module_name, _, path = name.partition(":")
    return all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))


def imported(name: str) -> Any:
    """Return what ``module:name`` means; importing runs the module's code.

    Args:
        name: The module may lie in the current directory.

    Returns:
        A function, a class, or whatever else has that name.

    Raises:
        InvalidInputError: If it cannot be imported, or has no such name.
    """
    if not _reads_as_code(name):
        raise InvalidInputError(f"{shown(name)} does not read 'module:name', such as 'my_code:my_function'.")
    module_name, _, path = name.partition(":")
    module = _import(module_name)
    with foreign(f"the module {shown(module_name)} has no {shown(path)}", "Name one of its functions or classes."):
        return reduce(getattr, path.split("."), module)


def _import(name: str) -> Any:
    """Import a module as ``python -m`` would: the current directory comes first, for as long as it takes."""
    with foreign("the current directory cannot be found", "Change to one that exists."):
        here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        with foreign(f"importing {shown(name)} failed", "Correct the module, or name another."):
            return _imported(name, here)
    except SystemExit as error:
        raise InvalidInputError(
            f"importing {shown(name)} tried to end the program. Name a module that can be imported."
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)


def _imported(name: str, here: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"no module {shown(error.name)} was found when importing {shown(name)}, neither installed nor in "
            f"{printable(here)}. Change to the directory that holds it, or install it."
        ) from error
