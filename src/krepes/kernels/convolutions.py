"""The rules of convolutions and transposed convolutions: gradients held as pictures, see `patches`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes.kernels.forms import Form, Vector
from krepes.kernels.layers import Affine, BatchLayout, Site
from krepes.kernels.patches import Patches, Window


class ConvRule(Affine):
    """``F.conv1d``, ``F.conv2d``, ``F.conv3d`` with stride, padding, dilation and groups."""

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.name = f"conv{axes}d"

    def bind(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Site:
        """Return the call's parts; ``padding="same"`` is done here, for it can be unequal on the two sides."""
        kernel, gap = tuple(weight.shape[2:]), self._tuple(dilation)
        if padding == "same":
            total = [g * (k - 1) for k, g in zip(kernel, gap, strict=True)]
            input = F.pad(input, [side for t in reversed(total) for side in (t // 2, t - t // 2)])
        around = self._tuple(0 if isinstance(padding, str) else padding)
        window = Window(kernel, self._tuple(stride), around, gap, groups)
        return Site(self, input, weight, bias, {"window": window})

    def _tuple(self, value: Any) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
        return values * self.axes if len(values) == 1 else values

    def lead(self, site: Site) -> torch.Size:
        """Return the picture axis."""
        return site.x.shape[:1] if site.x.ndim == self.axes + 2 else torch.Size([])

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return patches, or the summed output gradient for a bias alone."""
        D = torch.stack([layout.tokens(part, n, self.axes + 1) for part in d], dim=2)  # (n, f, r, O, *out)
        if not weight:
            return Vector(D.flatten(4).sum((1, 4)).flatten(1))
        return Patches(layout.tokens(site.x, n, self.axes + 1), D, site.settings["window"], bias=bias)


class TransposedRule(ConvRule):
    """``F.conv_transpose1d`` and its kind: a convolution from output to input, so that the two change places."""

    def __init__(self, axes: int) -> None:
        super().__init__(axes)
        self.name = f"conv_transpose{axes}d"

    def bind(  # type: ignore[override]
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Site:
        """Return the call's parts."""
        around = [self._tuple(value) for value in (stride, padding, dilation)]
        window = Window(tuple(weight.shape[2:]), around[0], around[1], around[2], groups)
        return Site(self, input, weight, bias, {"window": window})

    def form(self, site: Site, d: list[Tensor], n: int, layout: BatchLayout, *, weight: bool, bias: bool) -> Form:
        """Return patches of the output's gradient; for several heads, their written-out gradients."""
        x = layout.tokens(site.x, n, self.axes + 1).unsqueeze(2)  # (n, f, 1, I, *in)
        heads = [Patches(layout.tokens(part, n, self.axes + 1), x, site.settings["window"], bias=False) for part in d]
        return heads[0] if len(heads) == 1 else Vector(torch.cat([head.explicit() for head in heads], dim=1))
