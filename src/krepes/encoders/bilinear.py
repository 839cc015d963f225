r"""Convolutions whose second derivatives are convolutions again, each by its own fast routine.

A convolution is bilinear, and so are its two derivatives; each of the three is the derivative of the others:

    C(x, w) = y,      B(g, w) = ∂<g, C>/∂x,      W(x, g) = ∂<g, C>/∂w,      <g, C(x, w)> = <x, B(g, w)> = <w, W(x, g)>

Torch knows second derivatives of convolutions too, by convolutions with kernels as large as pictures. A replay takes
little else: with these three, carrying a cotangent back through a step of an encoder of three convolutions takes two
thirds to three quarters of the time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

How = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, whether transposed, output padding and groups, as ``aten::convolution`` takes them."""
Gradients = tuple[Tensor | None, Tensor | None, None, None]
CONVOLUTIONS: dict[Callable[..., Any], int] = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}
"""By function, how many axes it slides along."""
SIGNATURE = inspect.signature(lambda input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1: None)


class BilinearConvolutions(TorchFunctionMode):
    """Inside it, convolutions of real numbers are computed by the three maps."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Pass every call on, but for convolutions."""
        if func not in CONVOLUTIONS or torch._C._are_functorch_transforms_active():
            return func(*args, **kwargs or {})
        given = SIGNATURE.bind(*args, **kwargs or {})
        given.apply_defaults()
        x, w, bias, stride, padding, dilation, groups = given.arguments.values()
        axes = CONVOLUTIONS[func]
        whole = isinstance(x, Tensor) and x.ndim == axes + 2 and x.dtype == w.dtype and x.dtype.is_floating_point
        if not whole or isinstance(padding, str) or torch.is_autocast_enabled(x.device.type):
            return func(*args, **kwargs or {})
        sizes = [[size] * axes if isinstance(size, int) else list(size) for size in (stride, padding, dilation)]
        how: How = (sizes[0], sizes[1], sizes[2], False, [0] * axes, groups)
        y: Tensor = _Forward.apply(x, w, how)  # type: ignore[no-untyped-call]
        return y if bias is None else y + bias.reshape(-1, *[1] * axes)


class _Forward(torch.autograd.Function):
    """``C(x, w)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, how: How) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.how = how
        return torch.convolution(x, w, None, *how)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        of_x, of_w = ctx.needs_input_grad[:2]
        back = _Backward.apply(g, w, x.shape, ctx.how) if of_x else None  # type: ignore[no-untyped-call]
        return back, _Weight.apply(x, g, w.shape, ctx.how) if of_w else None, None  # type: ignore[no-untyped-call]


class _Backward(torch.autograd.Function):
    """``B(g, w)``."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, w: Tensor, shape: torch.Size, how: How) -> Tensor:
        ctx.save_for_backward(g, w)
        ctx.how = how
        return _derivative(g, g.new_empty(1).expand(shape), w, how, 0)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Gradients:
        g, w = ctx.saved_tensors
        of_g, of_w = ctx.needs_input_grad[:2]
        along = _Forward.apply(x, w, ctx.how) if of_g else None  # type: ignore[no-untyped-call]
        return along, _Weight.apply(x, g, w.shape, ctx.how) if of_w else None, None, None  # type: ignore[no-untyped-call]


class _Weight(torch.autograd.Function):
    """``W(x, g)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, shape: torch.Size, how: How) -> Tensor:
        ctx.save_for_backward(x, g)
        ctx.how = how
        return _derivative(g, x, g.new_empty(1).expand(shape), how, 1)

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> Gradients:
        x, g = ctx.saved_tensors
        of_x, of_g = ctx.needs_input_grad[:2]
        back = _Backward.apply(g, w, x.shape, ctx.how) if of_x else None  # type: ignore[no-untyped-call]
        return back, _Forward.apply(x, w, ctx.how) if of_g else None, None, None  # type: ignore[no-untyped-call]


def _derivative(g: Tensor, x: Tensor, w: Tensor, how: How, which: int) -> Tensor:
    """Return torch's first derivative of ``<g, C(x, w)>``, in ``x`` (0) or in ``w`` (1); its own value is not read."""
    asked = [which == 0, which == 1, False]
    found: Tensor = torch.ops.aten.convolution_backward(g, x, w, None, *how, asked)[which]
    return found
