"""Typed forward and reverse products: the only place that imports `torch.func` (its own signatures are untyped).

J v  = jvp,      Jᵀ w = vjp,      ∇f,      ∇²f v = the derivative of the gradient along v
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.func
from torch import Tensor, nn

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


def with_parameters(module: nn.Module, parameters: dict[str, Tensor]) -> Callable[..., Any]:
    """Return the module's forward pass with the named parameters replaced; the module itself is left alone."""
    return lambda *args, **kwargs: torch.func.functional_call(module, parameters, args, kwargs)


def per_sample_jacobian(
    function: Callable[[dict[str, Tensor], Any], Tensor], parameters: dict[str, Tensor], X: Any
) -> dict[str, Tensor]:
    """Return the Jacobians of ``function(parameters, x)`` ``(r,)`` at each sample: ``(n, r, *shape)`` per parameter."""
    # Some networks draw numbers in eval mode that change nothing (a layer's chance of being dropped).
    return torch.func.vmap(lambda x: torch.func.jacrev(function)(parameters, x), randomness="same")(X)
