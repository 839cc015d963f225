"""Parameters that a network adds, multiplies or repeats: class tokens, positions, layer scales, bias tables.

All samples share such a value. It is handed to the operation as a fresh tensor, stretched to the result's shape where
the operation is elementwise; autograd's gradient in that tensor then has the samples along one axis, and the gradient
at one sample is its part there, summed over the other axes along which the value was stretched.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from krepes.kernels.forms import Form, Vector
from krepes.kernels.layers import BatchLayout, Rule, Site, layouts

ELEMENTWISE = frozenset(
    "add radd iadd sub subtract rsub isub mul multiply rmul imul div divide true_divide truediv rtruediv rdiv itruediv "
    "pow rpow maximum minimum where addcmul addcdiv lerp".split()
)
"""Operations that stretch their tensors to one shape, by their names without underscores."""


class SharedRule(Rule):
    """A value of parameters that meets data: the samples are along a stretched or a repeated axis."""

    name = "free parameter"

    def bind(self, *args: Any, **kwargs: Any) -> Site:
        """Return the site of a fresh tensor and the value that it was stretched from, the two arguments."""
        fresh, value = args
        return Site(self, fresh, value, None, {})

    def lead(self, site: Site) -> torch.Size:
        """Return all axes."""
        return site.x.shape

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return the written-out gradient, summed over the stretched axes."""
        p = self._aligned(site)
        rest = [*p[: layout.axis], *p[layout.axis + 1 :]]
        axes = [2 + i for i, size in enumerate(rest) if size == 1]
        if p[layout.axis] == 1:
            axes.append(1)
        pieces = []
        for part in d:
            g = self._samples_first(part, n, layout)
            pieces.append((g.sum(axes) if axes else g).reshape(n, -1))
        return Vector(torch.cat(pieces, dim=1))

    def value(self, site: Site, value: Tensor, n: int, layout: BatchLayout) -> Tensor:
        """Return the value for one sample: of one that was repeated along the sample axis, the first part."""
        p = self._aligned(site)
        if p[layout.axis] == 1:
            return value
        return self._samples_first(value.reshape(p), n, layout)[0]

    @staticmethod
    def _samples_first(x: Tensor, n: int, layout: BatchLayout) -> Tensor:
        """Return ``(n, k, *rest)``: the sample axis in front, then what was folded into it."""
        x = x.movedim(layout.axis, 0)
        return x.unflatten(0, (-1, n)).transpose(0, 1) if layout.kind == "minor" else x.unflatten(0, (n, -1))

    @staticmethod
    def _aligned(site: Site) -> torch.Size:
        """Return the value's shape with ones in front, as long as the result's."""
        assert site.weight is not None
        return torch.Size([1] * (site.x.ndim - site.weight.ndim) + list(site.weight.shape))

    def layouts(self, site: Site, n: int) -> list[BatchLayout]:
        """Return the axes that could hold the samples: stretched ones first, for heads may be as many as samples."""
        options = layouts(self.lead(site), n)
        p = self._aligned(site)
        return sorted(options, key=lambda option: (p[option.axis] != 1, option.kind != "whole"))


SHARED = SharedRule()
"""Serves whatever no other rule knows, as far as the samples can be told apart."""


def stretched(func: Any, tensors: list[Tensor], x: Tensor) -> Tensor:
    """Return ``x``, detached, in the shape that an elementwise function brings its tensors to, or as it is."""
    if str(getattr(func, "__name__", "")).split(".")[0].strip("_") not in ELEMENTWISE:
        return x.detach()
    return x.detach().expand(torch.broadcast_shapes(*[tensor.shape for tensor in tensors]))
