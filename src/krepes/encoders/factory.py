"""An encoder from a name: of this package, or ``module:factory`` of the user's."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

from torch import nn

from krepes import registry
from krepes.errors import InvalidInputError

Factory = str | Callable[..., nn.Module] | nn.Module

BUILT_IN: dict[str, Callable[..., nn.Module]] = registry.loaded(registry.ENCODERS)
"""Encoders of this package by name."""


def build_encoder(factory: Factory, **arguments: Any) -> nn.Module:
    """Return the encoder that a factory makes.

    Args:
        factory: The name of an encoder of this package, ``"module:factory"`` (the module may lie in the current
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
    make = _find(factory) if isinstance(factory, str) else factory
    if isinstance(make, nn.Module):
        if arguments:
            raise InvalidInputError(f"{_named(arguments)} cannot be passed to an encoder that is already built.")
        return make
    if not callable(make):
        raise InvalidInputError(f"{factory!r} is a {type(make).__name__}. A function or class that returns a module.")
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise InvalidInputError(
            f"the factory {factory!r} cannot be called with {_named(arguments)}: {error}. "
            f"Its signature is {inspect.signature(make)}."
        ) from error
    encoder = make(**arguments)
    if not isinstance(encoder, nn.Module):
        raise InvalidInputError(f"the factory {factory!r} returned a {type(encoder).__name__}, not a torch module.")
    return encoder


def _named(arguments: dict[str, Any]) -> str:
    return ", ".join(arguments) or "no arguments"


def _find(name: str) -> Any:
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise InvalidInputError(
            f"{name!r} is no encoder of this package ({', '.join(BUILT_IN)}) and does not read 'module:factory'."
        )
    try:
        return reduce(getattr, path.split("."), _import(module_name))
    except AttributeError as error:
        raise InvalidInputError(f"the module {module_name} has no {path!r} ({error}).") from error


def _import(name: str) -> Any:
    """Import a module as ``python -m`` would: the current directory comes first, for as long as it takes."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"no module {error.name!r} was found when importing {name!r}, neither installed nor in {here}. "
            f"Change to the directory that holds it, or install it."
        ) from error
    finally:
        sys.path.remove(here)
