"""Free parameters that a network adds, multiplies or repeats: class tokens, positions, layer scales.

The parameter is stretched over the batch, so its gradient at one sample is the output's gradient there (times the other
operand for a product), summed over the axes along which it was stretched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from krepes.kernels.forms import Form, Vector
from krepes.kernels.layers import BatchLayout, Rule, Site, layouts


class BroadcastRule(Rule):
    """``p + x``, ``p * x`` or ``p.expand(...)`` for a free parameter ``p``."""

    def __init__(self, name: str, result: Callable[..., Tensor], *, scaled: bool = False) -> None:
        self.name, self.result, self.scaled = f"free parameter ({name})", result, scaled

    def bind(self, *args: Any, **kwargs: Any) -> Site:
        """Return the parameter as the weight and the other operand, if there is one, as the input."""
        free = [arg for arg in args if isinstance(arg, nn.Parameter)]
        if len(free) != 1 or kwargs:
            raise TypeError("no rule for two parameters in one operation, or for its other options")
        other = next((arg for arg in args if isinstance(arg, Tensor) and arg is not free[0]), free[0])
        with torch.no_grad():
            shape = self.result(*(arg.detach() if isinstance(arg, Tensor) else arg for arg in args)).shape
        return Site(self, other, free[0], None, {"shape": shape})

    def layouts(self, site: Site, n: int) -> list[BatchLayout]:
        """Return the whole axes of size ``n`` along which the parameter is stretched."""
        p = self._aligned(site)
        return [option for option in layouts(self.lead(site), n) if option.kind == "whole" and p[option.axis] == 1]

    def lead(self, site: Site) -> torch.Size:
        """Return all axes of the result."""
        return torch.Size(site.settings["shape"])

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the written-out gradient, summed over the stretched axes."""
        p = self._aligned(site)
        axes = [1 + i for i, size in enumerate(p[: layout.axis] + p[layout.axis + 1 :]) if size == 1]
        pieces = []
        for part in d:
            g = (part * site.x if self.scaled else part).movedim(layout.axis, 0)
            pieces.append((g.sum(axes) if axes else g).reshape(n, -1))
        return Vector(torch.cat(pieces, dim=1))

    def _aligned(self, site: Site) -> torch.Size:
        """Return the parameter's shape with ones in front, as long as the result's."""
        assert site.weight is not None
        return torch.Size([1] * (len(site.settings["shape"]) - site.weight.ndim) + list(site.weight.shape))


ADDED, MULTIPLIED = BroadcastRule("added", torch.add), BroadcastRule("multiplied", torch.mul, scaled=True)
BROADCAST_RULES: dict[Any, Rule] = {
    **dict.fromkeys([torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__], ADDED),
    **dict.fromkeys([torch.mul, torch.multiply, Tensor.mul, Tensor.__mul__, Tensor.__rmul__], MULTIPLIED),
    Tensor.expand: BroadcastRule("expanded", Tensor.expand),
    Tensor.repeat: BroadcastRule("repeated", Tensor.repeat),
}
"""The operations through which a free parameter is served without a pass of its own."""
