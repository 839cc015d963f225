"""Typed forward and reverse products: the only place that imports `torch.func` (its own signatures are untyped).

J v  = jvp,      Jᵀ w = vjp,      ∇f,      ∇²f v = the derivative of the gradient along v
"""

from __future__ import annotations

from collections.abc import Callable

import torch.func
from torch import Tensor

Function = Callable[[Tensor], Tensor]


def jvp(function: Function, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``function(x)`` and the directional derivative ``J v``, both shaped like the output."""
    out = torch.func.jvp(function, (x,), (v,))
    return out[0], out[1]


def vjp(function: Function, x: Tensor) -> tuple[Tensor, Function]:
    """Return ``function(x)`` and the map ``w -> Jᵀ w`` from the output's shape to the shape of ``x``."""
    out = torch.func.vjp(function, x)
    pull_back: Callable[[Tensor], tuple[Tensor]] = out[1]
    return out[0], lambda w: pull_back(w)[0]


def gradient(function: Function, x: Tensor) -> Tensor:
    """Return the gradient of a scalar ``function``, shaped like ``x``."""
    return torch.func.grad(function)(x)


def hessian_product(function: Function, x: Tensor, v: Tensor) -> Tensor:
    """Return ``∇²function(x) v`` of a scalar ``function``, forward over reverse, shaped like ``x``."""
    return torch.func.jvp(torch.func.grad(function), (x,), (v,))[1]
