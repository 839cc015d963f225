"""The embedding among what an encoder returns: a tensor, or a place in nested tuples, mappings and dataclasses.

A place is named by its position, its key or a dotted path: ``0``, ``"logits"``, ``"0.pooled"``. At each step of a path
a mapping's key comes first, then a position if the step is a number, then an attribute.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from krepes.errors import InvalidInputError, UnsupportedEncoderError

Output = int | str | Callable[[Any], Any] | None
"""Where the embedding is: a position, a key or dotted path, a function of the result; ``None`` if it is the result."""

SHOWN, DEEPEST = 12, 3


def require_output(output: Output) -> None:
    """Raise `InvalidInputError` unless ``output`` can name a place."""
    if output is None or callable(output) or (isinstance(output, int) and not isinstance(output, bool)):
        return
    if not isinstance(output, str) or not all(output.split(".")):
        raise InvalidInputError(
            f"output={output!r} names no place in what an encoder returns. Pass a position (0), a key or dotted path "
            f"('last_hidden_state', '0.pooled'), or a function that picks the embedding."
        )


def describe_output(output: Output) -> Any:
    """Return ``output`` as a plain JSON value: a function is described by its qualified name."""
    if output is None or isinstance(output, (int, str)):
        return output
    while isinstance(output, functools.partial):
        output = output.func
    named = output if hasattr(output, "__qualname__") else type(output)
    return {"function": f"{named.__module__}.{named.__qualname__}"}


def pick(result: Any, output: Output) -> Tensor:
    """Return the embedding out of what an encoder returned.

    Args:
        result: What it returned for ``n`` samples.
        output: Where the embedding is.

    Returns:
        A floating-point tensor, ``(n, d, ...)``.

    Raises:
        UnsupportedEncoderError: If there is no such place, or no floating-point tensor ``(n, d, ...)`` in it.
    """
    try:
        found = _at(result, output)
    except LookupError:
        raise UnsupportedEncoderError(
            f"output={output!r} is not among what the encoder returned: {_contents(result)}. {_advice(result)}"
        ) from None
    if isinstance(found, Tensor) and found.ndim >= 2 and found.is_floating_point():
        return found
    what = "the encoder returned" if output is None else f"output={_name(output)} of the encoder is"
    raise UnsupportedEncoderError(
        f"{what} {_contents(found)}, but an embedding is one floating-point tensor (n, d, ...). {_advice(result)}"
    )


def _at(result: Any, output: Output) -> Any:
    if output is None:
        return result
    if isinstance(output, int):
        return _entry(result, output)
    return _follow(result, output) if isinstance(output, str) else output(result)


def _follow(result: Any, path: str) -> Any:
    """Return what a dotted path leads to; the whole of it may be one key."""
    if isinstance(result, Mapping) and path in result:
        return result[path]
    step, _, rest = path.partition(".")
    if isinstance(result, Mapping) and step in result:
        found = result[step]
    elif step.isdigit():
        found = _entry(result, int(step))
    elif hasattr(result, step):
        found = getattr(result, step)
    else:
        raise LookupError(step)
    return _follow(found, rest) if rest else found


def _entry(result: Any, position: int) -> Any:
    """Return an entry of a tuple or list, or of a mapping by its key or, in its order, its position."""
    if isinstance(result, Mapping):
        return result[position] if position in result else list(result.values())[position]
    if isinstance(result, (tuple, list)):
        return result[position]
    raise LookupError(position)  # a tensor's positions are its samples


def _places(result: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each place in a result with what is there; what is absent is left out."""
    inside: list[tuple[Any, Any]] | None = None
    if isinstance(result, Mapping):
        inside = list(result.items())
    elif isinstance(result, (tuple, list)):
        inside = list(enumerate(result))
    elif dataclasses.is_dataclass(result):
        inside = [(field.name, getattr(result, field.name)) for field in dataclasses.fields(result)]
    if inside is None or depth == DEEPEST:
        yield path, result
        return
    for name, value in inside:
        if value is not None:
            yield from _places(value, f"{path}.{name}" if path else str(name), depth + 1)


def _contents(result: Any) -> str:
    """Return the type of a result and, place by place, what is in it."""
    if isinstance(result, Tensor):
        return _shape(result)
    places = [f"{path} {_shape(value)}" for path, value in _places(result) if path]
    more = f", and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return f"a {type(result).__name__}" + (f" with {', '.join(places[:SHOWN])}{more}" if places else "")


def _shape(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"({type(value).__name__})"
    return f"{tuple(value.shape)}" + ("" if value.is_floating_point() else f" of {value.dtype}")


def _advice(result: Any) -> str:
    """Return what to pass: the places that could be an embedding, or a function."""
    fits = [
        f"output={path if path.isdigit() else repr(path)}"
        for path, value in _places(result)
        if path and isinstance(value, Tensor) and value.ndim >= 2 and value.is_floating_point()
    ]
    return f"Pass {', '.join([*fits[:4], 'output=lambda result: ...'])} to pick the embedding out of what it returns."


def _name(output: Output) -> str:
    return describe_output(output)["function"] if callable(output) else repr(output)
