r"""One forward and one backward a head: what each layer was given and how the output depends on what it gave back.

A `torch.overrides.TorchFunctionMode` watches every function the encoder calls. Where a rule knows the function and a
tracked parameter takes part, the input is kept and a hook collects the gradient of the output. Parameters that reach
any other function are noted as *loose*: they are served by per-sample gradients instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.errors import UnsupportedEncoderError
from krepes.kernels.attention import attention
from krepes.kernels.broadcast import BROADCAST_RULES
from krepes.kernels.layers import LAYER_RULES, Site

RULES = LAYER_RULES | BROADCAST_RULES


@dataclass
class Call:
    """One watched call: its site, the names of its tracked parameters, one output gradient a head."""

    site: Site
    weight: str | None
    bias: str | None
    version: int
    shape: torch.Size
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def output_gradients(self, heads: int) -> list[Tensor]:
        """Return ``heads`` gradients; zero where the encoder's output does not depend on this call."""
        missing = self.site.x.new_zeros(()) if self.site.x.is_floating_point() else torch.zeros(())
        return [self.gradients.get(r, missing.expand(self.shape)) for r in range(heads)]


class Watch(TorchFunctionMode):
    """Records the calls that tracked parameters take part in."""

    def __init__(self, names: dict[int, str], anchor: Tensor) -> None:
        super().__init__()
        self.names, self.anchor = names, anchor
        self.calls: list[Call] = []
        self.loose: set[str] = set()
        self.head = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        touched = {id(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if id(leaf) in self.names}
        if func is F.multi_head_attention_forward and touched:
            with self:  # its linear calls come back to this watch
                result = attention(*args, **kwargs)
            if result is not None:
                return result
        site = self._site(func, args, kwargs) if touched else None
        out = func(*args, **kwargs)
        if site is not None:
            touched -= {id(site.weight), id(site.bias)}
            out = self._record(site, out)
        if touched and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(out)):
            self.loose |= {self.names[key] for key in touched}
        return out

    def _site(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Site | None:
        rule = RULES.get(func)
        if rule is None:
            return None
        try:
            return rule.bind(*args, **kwargs)
        except TypeError:  # an option the rule does not serve
            return None

    def _record(self, site: Site, out: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            name = self.names.get(id(site.weight)) or self.names.get(id(site.bias))
            raise UnsupportedEncoderError(
                f"the layer of '{name}' runs with gradients switched off (torch.no_grad or torch.inference_mode inside "
                f"the forward pass), so it has no tangent. Switch them on there, or name the other parameters: "
                f"EmpiricalNTK(encoder, parameters=[...])."
            )
        # The first layers have nothing upstream that needs a gradient: the anchor, a zero, gives the hook a graph.
        out = out if out.requires_grad else out + self.anchor
        site = replace(site, x=site.x.detach())  # keeps the version counter, frees the graph
        call = Call(site, self.names.get(id(site.weight)), self.names.get(id(site.bias)), site.x._version, out.shape)
        out.register_hook(lambda gradient: call.gradients.__setitem__(self.head, gradient))
        self.calls.append(call)
        return out


def capture(
    encoder: FrozenEncoder, X: Batch, names: dict[int, str], cotangents: Tensor
) -> tuple[Tensor, list[Call], set[str]]:
    """Run the encoder once and go back once a head.

    Args:
        encoder: The network.
        X: A batch of ``n`` samples.
        names: Name of each tracked parameter by its ``id``.
        cotangents: Head weights, ``(r, d)``: the scalar outputs are ``cotangents @ encoder(x)``.

    Returns:
        The embeddings ``(n, d)``, the watched calls in the order they were made, and the loose parameters' names.

    Raises:
        UnsupportedEncoderError: If a captured input was overwritten in place later in the forward pass.
    """
    anchor = torch.zeros((), dtype=cotangents.dtype, device=cotangents.device, requires_grad=True)
    watch = Watch(names, anchor)
    with watch:
        Z = encoder.embed(X)
    for call in watch.calls:
        if call.site.x._version != call.version:
            raise UnsupportedEncoderError(
                f"the input of '{call.weight or call.bias}' ({call.site.rule.name}, shape {tuple(call.site.x.shape)}) "
                f"was overwritten in place after the layer had read it, so its gradient is lost. "
                f"Build the encoder with inplace=False there, or write x = x + y instead of x += y."
            )
    if Z.requires_grad:
        for r, w in enumerate(cotangents):
            watch.head = r
            last = r == len(cotangents) - 1
            torch.autograd.grad(Z, [anchor], w.expand_as(Z), retain_graph=not last, allow_unused=True)
    return Z.detach(), watch.calls, watch.loose
