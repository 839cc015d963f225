"""One forward and one backward a head: what each layer was given and how the output depends on what it gave back.

A `torch.overrides.TorchFunctionMode` watches every function the encoder calls. Where a value made of tracked parameters
(see `derived`) meets data, a rule knows the function, or the function is rewritten by others that rules know, or the
value is handed over as a fresh tensor whose gradient is collected. Parameters for which none of this holds are found
when the rules are checked against autograd, and served by per-sample gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from krepes import batches
from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import UnsupportedEncoderError
from krepes.kernels.broadcast import SHARED, stretched
from krepes.kernels.derived import Derived, Known, tensors_of, with_tensors
from krepes.kernels.layers import Site
from krepes.kernels.refusals import require_watchable
from krepes.kernels.rewrites import REWRITES, SHAPED_AFTER
from krepes.kernels.rules import LAYER_RULES


@dataclass
class Call:
    """One watched call: its site, its values made of tracked parameters, one output gradient a head.

    Attributes:
        site: The rule, the input and the settings.
        weight: What the site's weight is made of, or ``None``.
        bias: What the site's bias is made of, or ``None``.
        version: Of the input, to notice that it was overwritten.
        shape: Of the tensor whose gradient is collected.
        fresh: That tensor where it is an end of the graph, or ``None`` where a hook collects.
        gradients: By head.
    """

    site: Site
    weight: Derived | None
    bias: Derived | None
    version: int
    shape: torch.Size
    fresh: Tensor | None = None
    gradients: dict[int, Tensor] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that take part."""
        return tuple(name for part in (self.weight, self.bias) if part is not None for name in part.names)

    @property
    def signature(self) -> tuple[str, tuple[str, ...]]:
        """What the call must be on every batch."""
        return self.site.rule.name, self.names

    def output_gradients(self, heads: int) -> list[Tensor]:
        """Return ``heads`` gradients; zero where the encoder's output does not depend on this call."""
        missing = self.site.x.new_zeros(()) if self.site.x.is_floating_point() else torch.zeros(())
        return [self.gradients.get(r, missing.expand(self.shape)) for r in range(heads)]


@dataclass(frozen=True)
class Captured:
    """What one batch gave.

    Attributes:
        Z: Embeddings, ``(n, d)``.
        calls: The watched calls in the order they were made.
        switched_off: Parameters that were used while gradients were switched off.
        singles: Of each attention, in order, whether it was taken as that of a single token.
    """

    Z: Tensor
    calls: list[Call]
    switched_off: set[str]
    singles: list[bool]


class Watch(TorchFunctionMode):
    """Records the calls in which values made of tracked parameters meet data."""

    def __init__(self, known: Known, anchor: Tensor, singles: list[bool] | None = None) -> None:
        super().__init__()
        self.known, self.anchor, self.planned = known, anchor, singles
        self.autocasts = torch.amp.is_autocast_available(anchor.device.type)
        self.singles: list[bool] = []
        self.calls: list[Call] = []
        self.switched_off: set[str] = set()
        self.head = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, known = kwargs or {}, self.known
        tensors = tensors_of(args) + tensors_of(kwargs) if kwargs else tensors_of(args)
        held = known.held(tensors)
        no_data = all(known.shared(x) for x in tensors)
        if not held:
            out = func(*args, **kwargs)
            return out if no_data else self._data(func, args, out)
        if not torch.is_grad_enabled() or (self.autocasts and torch.is_autocast_enabled(self.anchor.device.type)):
            require_watchable(min(self._names(held)), self.anchor.device)
        if not torch.is_grad_enabled():
            return self._without_gradients(func, args, kwargs, held, no_data)
        if no_data or (func in SHAPED_AFTER and args[0] is held[0]):
            return self._derive(func, args, kwargs)
        if func in REWRITES:
            with self:  # its calls come back to this watch
                result = REWRITES[func](self, *args, **kwargs)
            if result is not None:
                return result
        return self._meet(func, args, kwargs, held, tensors)

    def __call__(self, x: Any) -> bool:
        """Return whether a tensor is made of parameters, for the functions that are rewritten."""
        return self.known.derived(x) is not None

    def alone(self, single: bool) -> bool:
        """Return whether the next attention is taken as that of a single token: as on the first samples."""
        place = len(self.singles)
        planned = self.planned is None or (place < len(self.planned) and self.planned[place])
        self.singles.append(single and planned)
        return self.singles[-1]

    def _data(self, func: Callable[..., Any], args: Any, out: Any) -> Any:
        """Note a result of data as data, and what they were written into."""
        self.known.note_data(out)
        if args and _overwrites(func):
            self.known.note_data(args[0])
        return out

    def _without_gradients(
        self, func: Callable[..., Any], args: Any, kwargs: Any, held: list[Tensor], no_data: bool
    ) -> Any:
        """Call the function and note whom it concerns: what gives a value back has no gradient from here on."""
        out = func(*args, **kwargs)
        if tensors_of(out):
            self.switched_off |= self._names(held)
        return out if no_data else self._data(func, args, out)

    def _names(self, held: list[Tensor]) -> set[str]:
        return {name for x in held if (made := self.known.derived(x)) is not None for name in made.names}

    def _derive(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return self.known.derive(func, args, kwargs)
        except RuntimeError:  # overwrites a parameter in place, which autograd forbids: the check will find it
            return func(*args, **kwargs)

    def _meet(self, func: Callable[..., Any], args: Any, kwargs: Any, held: list[Tensor], tensors: list[Tensor]) -> Any:
        """Call a function of derived values and data, by its rule or with fresh tensors."""
        if any(x.is_complex() for x in held):  # rules are of real numbers: its parameters go sample by sample
            out = func(*args, **kwargs)
            alone = isinstance(out, Tensor) and not out.requires_grad  # nothing upstream needs a gradient
            return self._data(func, args, out + self.anchor if alone else out)
        site = None if any(x.is_complex() for x in tensors) else self._site(func, args, kwargs)
        served = set() if site is None else {id(site.weight), id(site.bias)}
        fresh: dict[int, Tensor] = {}
        for x in held:
            if id(x) in served or (args and x is args[0] and _overwrites(func)):
                continue
            if id(x) not in fresh:
                fresh[id(x)] = stretched(func, tensors, x).requires_grad_()
                self._note(SHARED.bind(fresh[id(x)], x), fresh[id(x)].shape, fresh[id(x)])
        if fresh:
            args, kwargs = with_tensors(lambda x: fresh.get(id(x), x), (args, kwargs))
        out = func(*args, **kwargs)
        return self._data(func, args, out if site is None else self._record(site, out))

    def _site(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Site | None:
        rule = LAYER_RULES.get(func)
        if rule is None:
            return None
        try:
            site = rule.bind(*args, **kwargs)
        except TypeError:  # an option the rule does not serve
            return None
        made = [self.known.derived(part) for part in (site.weight, site.bias)]
        return site if any(made) and self.known.derived(site.x) is None else None

    def _note(self, site: Site, shape: torch.Size, fresh: Tensor | None = None) -> Call:
        site = replace(site, x=site.x.detach())  # keeps the version counter, frees the graph
        weight, bias = self.known.derived(site.weight), self.known.derived(site.bias)
        call = Call(site, weight, bias, site.x._version, shape, fresh)
        self.calls.append(call)
        return call

    def _record(self, site: Site, out: Tensor) -> Tensor:
        # The first layers have nothing upstream that needs a gradient: the anchor, a zero, gives the hook a graph.
        site = site.rule.with_result(site, out)
        out = out if out.requires_grad else out + self.anchor
        call = self._note(site, out.shape)
        out.register_hook(lambda gradient: call.gradients.__setitem__(self.head, gradient))
        return out

    def go_back(self, Z: Tensor, w: Tensor, *, last: bool) -> None:
        """Collect the gradients of the head ``w`` ``(d,)``."""
        waiting = [call for call in self.calls if call.fresh is not None]
        ends = [self.anchor, *[call.fresh for call in waiting if call.fresh is not None]]
        found = torch.autograd.grad(Z, ends, w.expand_as(Z), retain_graph=not last, allow_unused=True)
        for call, gradient in zip(waiting, found[1:], strict=True):
            if gradient is not None:
                call.gradients[self.head] = gradient
        self.head += 1


@cache
def _overwrites(func: Callable[..., Any]) -> bool:
    """Return whether a function writes into its first argument: ``add_``, ``__iadd__``, ``__setitem__``."""
    name = str(getattr(func, "__name__", ""))
    return (name.endswith("_") and not name.endswith("__")) or name.startswith(("__i", "__setitem__"))


def capture(
    encoder: FrozenEncoder, X: Batch, names: dict[int, str], cotangents: Tensor, singles: list[bool] | None = None
) -> Captured:
    """Run the encoder once and go back once a head.

    Args:
        encoder: The network.
        X: A batch of ``n`` samples.
        names: Name of each tracked parameter by its ``id``.
        cotangents: Head weights, ``(r, d)``: the scalar outputs are ``cotangents @ encoder(x)``.
        singles: Which attentions had a single token on the first samples; ``None`` for those themselves.

    Returns:
        The embeddings, the watched calls, and what ran without gradients.

    Raises:
        UnsupportedEncoderError: If a captured input was overwritten in place later in the forward pass.
    """
    anchor = torch.zeros((), dtype=cotangents.dtype, device=cotangents.device, requires_grad=True)
    known = Known(names, encoder.module.parameters(), batches.leaves(X))
    watch = Watch(known, anchor, singles)
    with watch:
        Z = encoder.embed(X)
    for call in watch.calls:
        if call.site.x._version != call.version:
            raise UnsupportedEncoderError(
                f"the input of '{call.names[0]}' ({call.site.rule.name}, shape {tuple(call.site.x.shape)}) "
                f"was overwritten in place after the layer had read it, so its gradient is lost. "
                f"Build the encoder with inplace=False there, or write x = x + y instead of x += y."
            )
    if Z.requires_grad:
        for r, w in enumerate(cotangents):
            watch.go_back(Z, w, last=r == len(cotangents) - 1)
    return Captured(Z.detach(), watch.calls, watch.switched_off, watch.singles)
