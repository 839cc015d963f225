r"""Values made of parameters alone, on their way to the layers: views, slices, looked-up rows, normed weights.

A forward pass handles three kinds of tensors: *derived* ones, made of tracked parameters (and constants) alone, which
all samples share; *data*, the samples and what is made of them; and constants, which is everything else: buffers,
tables that a module keeps. A derived value ``D = h(p)`` is computed with its graph, so that a gradient in ``D`` becomes
one in ``p``, by ``J = ∂D/∂p``:

    g_p = Jᵀ g_D,      <g_p, g'_p> = <g_D, g'_D> where J Jᵀ = 1: entries of p moved, none twice (a view, a slice)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

PLAIN = frozenset([int, float, bool, str, slice, type(None), torch.dtype, torch.device, torch.Size])
"""Types of arguments that hold no tensor."""


@dataclass(frozen=True)
class Derived:
    """A value made of parameters.

    Attributes:
        value: The value, with its graph.
        leaves: The tracked parameters it is made of by name: the ends of that graph.
    """

    value: Tensor
    leaves: dict[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters it is made of."""
        return tuple(self.leaves)


class Known:
    """What is known of the tensors of one forward pass.

    Args:
        names: Name of each tracked parameter by its ``id``.
        parameters: All parameters: those that are not tracked are constants.
        samples: The tensors of the batch.
    """

    def __init__(self, names: dict[int, str], parameters: Iterable[Tensor], samples: Iterable[Any]) -> None:
        self._made: dict[int, tuple[Tensor, Derived]] = {}
        self._data: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self.note_data(list(samples))
        for parameter in parameters:
            name = names.get(id(parameter))
            if name is not None:
                leaf = parameter.detach().requires_grad_()
                self._made[id(parameter)] = parameter, Derived(leaf, {name: leaf})

    def held(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return those of the tensors that are made of parameters."""
        return [x for x in tensors if id(x) in self._made]

    def derived(self, x: Any) -> Derived | None:
        """Return how a tensor is made of parameters, or ``None`` if it is not."""
        found = self._made.get(id(x))
        return None if found is None else found[1]

    def shared(self, x: Tensor) -> bool:
        """Return whether a tensor is derived or constant: not data."""
        return id(x) in self._made or not (x.requires_grad or self._data.get(id(x)) is x)

    def note_data(self, out: Any) -> None:
        """Note the tensors in ``out`` as data: made of data, or overwritten with them; a graph alone tells it too."""
        for leaf in (out,) if isinstance(out, Tensor) else tensors_of(out):
            self._made.pop(id(leaf), None)
            if not leaf.requires_grad:
                self._data[id(leaf)] = leaf

    def derive(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of derived values and constants, and note its results as derived.

        Args:
            func: The function.
            args: Its arguments by position.
            kwargs: Its arguments by keyword.

        Returns:
            What it returned, without graphs.
        """
        leaves: dict[str, Tensor] = {}

        def with_graph(x: Tensor) -> Tensor:
            found = self.derived(x)
            if found is None:
                return x.detach() if x.requires_grad else x
            leaves.update(found.leaves)
            return found.value

        def without_graph(x: Any) -> Any:
            if not isinstance(x, Tensor) or not x.requires_grad:
                return x
            plain = x.detach()
            self._made[id(plain)] = plain, Derived(x, leaves)
            return plain

        out = func(*with_tensors(with_graph, args), **with_tensors(with_graph, kwargs))
        return without_graph(out) if isinstance(out, Tensor) else pytree.tree_map(without_graph, out)


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in what a function is given or gives back: in tuples, lists and dictionaries, in their order.

    Every call of a forward pass asks, so the general way of `torch.utils._pytree` would take a sixth of the time of a
    small network.
    """
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, (tuple, list, dict)):
        return []
    found: list[Tensor] = []
    for part in value.values() if isinstance(value, dict) else value:
        if type(part) in PLAIN:
            continue
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, (tuple, list, dict)):
            found += tensors_of(part)
    return found


def with_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return what a function is given with other tensors in it: in tuples, lists and dictionaries, as `tensors_of`."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) is tuple or type(value) is list:
        return type(value)(part if type(part) in PLAIN else with_tensors(function, part) for part in value)
    if type(value) is dict:
        return {key: part if type(part) in PLAIN else with_tensors(function, part) for key, part in value.items()}
    if isinstance(value, (tuple, list, dict)):  # a named tuple, an ordered dictionary
        return pytree.tree_map(lambda part: function(part) if isinstance(part, Tensor) else part, value)
    return value


def pull(value: Tensor, leaves: list[Tensor], g: Tensor) -> list[Tensor]:
    """Return ``Jᵀ g_i`` for each of ``n`` gradients.

    Args:
        value: A derived value, with its graph.
        leaves: Parameters it is made of.
        g: Gradients in the value, ``(n, *value.shape)``.

    Returns:
        Gradients in the parameters, ``(n, *leaf.shape)`` each.
    """
    if value.is_leaf:
        return [g if leaf is value else g.new_zeros(len(g), *leaf.shape) for leaf in leaves]
    found = torch.autograd.grad(value, leaves, g, is_grads_batched=True, retain_graph=True, allow_unused=True)
    zeros = (g.new_zeros(()).expand(len(g), *leaf.shape) for leaf in leaves)
    return [zero if part is None else part for part, zero in zip(found, zeros, strict=True)]


def push(value: Tensor, leaf: Tensor, u: Tensor) -> Tensor:
    """Return ``J u``, shaped like the value, for ``u`` shaped like the parameter: the derivative of ``v -> Jᵀ v``."""
    if value.is_leaf:
        return u
    v = torch.zeros_like(value, requires_grad=True)
    with torch.enable_grad():
        (back,) = torch.autograd.grad(value, [leaf], v, create_graph=True)
    (image,) = torch.autograd.grad(back, [v], u)
    return image


def related(one: Tensor, other: Tensor, leaf: Tensor) -> str:
    """Return how two values made of one parameter lie to each other.

    Args:
        one: A derived value, with its graph.
        other: Another one, or the same.
        leaf: The parameter.

    Returns:
        ``"same"`` if ``J' Jᵀ = 1``, ``"apart"`` if it is zero, ``"mixed"`` otherwise. Moved entries come back bit for
        bit, so one random direction tells.
    """
    if one.is_leaf and other.is_leaf:
        return "same"
    draw = torch.Generator().manual_seed(0)
    v = torch.rand(one.shape, generator=draw, dtype=torch.float64).to(one) + 1.0
    try:
        image = push(other, leaf, pull(one, [leaf], v.unsqueeze(0))[0][0])
    except RuntimeError:  # a function without second derivatives
        return "mixed"
    if image.shape == v.shape and torch.equal(image, v):
        return "same"
    return "mixed" if bool(image.any()) else "apart"
