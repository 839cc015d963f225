"""How exact a float32 tangent kernel is, against float64 autograd on the same side of every kink.

A ReLU whose input is nearer to zero than float32 resolves has a slope of 0 or 1 by rounding, in any method: the
derivative jumps there, and one such unit among a million shows in the fifth digit. So the reference, which computes in
float64, takes at these units the side that the float32 pass took, and nowhere else; they are counted, and the error
against the reference that takes its own side stands beside, with that of plain float32 autograd over the same batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from krepes.kernels.entk import EmpiricalNTK

KINKS: dict[Callable[..., Any], tuple[float, ...]] = {
    **dict.fromkeys([F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, F.leaky_relu], (0.0,)),
    F.relu6: (0.0, 6.0),
    **dict.fromkeys([F.hardswish, F.hardsigmoid], (-3.0, 3.0)),
}
"""Functions whose slope jumps, and where."""


class Inputs(TorchFunctionMode):
    """Keeps what each function with kinks was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func in KINKS or func is F.max_pool2d:
            self.seen.append(args[0].detach().clone())
        return func(*args, **(kwargs or {}))


class Sides(TorchFunctionMode):
    """Puts a pass on the side of each kink on which another pass was, and counts the units that this moves.

    Args:
        inputs: What the other pass gave to the functions with kinks, in their order.
    """

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()
        self.inputs: Iterator[Tensor] = iter(inputs)
        self.moved = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in KINKS or func is F.max_pool2d:
            x, other = args[0], next(self.inputs).to(args[0])
            if func in KINKS:
                moved = torch.stack([(x > at) != (other > at) for at in KINKS[func]]).any(0)
            else:
                moved = _chosen(x, args, kwargs) != _chosen(other, args, kwargs)
            self.moved += int(moved.sum())
            args = (torch.where(moved, other + (x - x.detach()), x), *args[1:])
        return func(*args, **kwargs)


def _chosen(x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return which entries of ``x`` a max-pooling takes."""
    _, places = F.max_pool2d(x.detach(), *args[1:], **kwargs | {"return_indices": True})
    return torch.zeros_like(x).flatten(2).scatter_(2, places.flatten(2), 1.0).reshape(x.shape)


def exactness(network: nn.Module, X: Tensor) -> dict[str, float]:
    """Return errors relative to the largest entry, the kinks between the types, and the share on the slow route.

    Args:
        network: In float32.
        X: Samples, ``(n, ...)``.

    Returns:
        ``error`` of float32 on its own side of the kinks; ``kinks``, the units that have another side in float64;
        the error ``across kinks``, of ours and of ``autograd in float32``; that of our rules ``in float64``.
    """
    kernel = EmpiricalNTK(network)
    kernel.tangent.probe(X)
    with Inputs() as narrow:
        K = kernel(X, X).double()  # both sides go through the network together, rows first
    w, wide, n = kernel.tangent.cotangents[0].double(), copy.deepcopy(network).double(), len(X)
    wide_X = X.double() if X.is_floating_point() else X
    own = [_feature(wide, wide(wide_X[i : i + 1])[0], w) for i in range(n)]
    same, moved = _on_the_same_side(wide, wide_X, w, own, narrow.seen)
    exact = EmpiricalNTK(wide)
    exact.tangent.probe(wide_X)
    exact.tangent.cotangents = w.unsqueeze(0)
    Z = network(torch.cat([X, X]))
    plain = [_feature(network, Z[i], w.float()).double() for i in range(n)]
    coverage = kernel.coverage()
    slow = sum(entry.size for entry in coverage if entry.rule.startswith("per-sample"))
    reference = _gram(own, own)
    return {
        "error": _error(K, _gram(same[:n], same[n:])),
        "kinks": float(moved),
        "across kinks": _error(K, reference),
        "autograd in float32": _error(_gram(plain, plain), reference),
        "in float64": _error(exact(wide_X, wide_X), reference),
        "slow share": slow / sum(entry.size for entry in coverage),
    }


def _on_the_same_side(
    wide: nn.Module, X: Tensor, w: Tensor, own: list[Tensor], inputs: list[Tensor]
) -> tuple[list[Tensor], int]:
    """Return the features of ``X`` and of ``X`` once more, each on the side that ``inputs`` took, and the units moved.

    Args:
        wide: The network in float64.
        X: Samples, ``(n, ...)``.
        w: The head.
        own: The features of the samples on the side that float64 takes.
        inputs: Of functions with kinks over ``2 n`` samples.
    """
    found, moved = [], 0
    for i in range(2 * len(X)):
        j = i % len(X)
        with Sides([_part(x, i, 2 * len(X)) for x in inputs]) as sides:
            z = wide(X[j : j + 1])[0]
        found.append(_feature(wide, z, w) if sides.moved else own[j])
        moved += sides.moved
    return found, moved


def _part(x: Tensor, i: int, n: int) -> Tensor:
    """Return what sample ``i`` of ``n`` had of a tensor; one that is made of parameters alone is the same for all."""
    return x.unflatten(0, (n, -1))[i] if len(x) % n == 0 else x


def _feature(network: nn.Module, z: Tensor, w: Tensor) -> Tensor:
    """Return the tangent feature ``(P,)`` of a sample by plain autograd, from its embedding ``(d,)``."""
    leaves = [parameter.requires_grad_() for parameter in network.parameters()]
    found = torch.autograd.grad(z @ w, leaves, retain_graph=True, allow_unused=True)
    return torch.cat([*[g.flatten() for g in found if g is not None], z.detach(), z.new_ones(1)])


def _gram(left: list[Tensor], right: list[Tensor]) -> Tensor:
    return torch.stack([torch.stack([a @ b for b in right]) for a in left])


def _error(K: Tensor, reference: Tensor) -> float:
    return float((K - reference).abs().max() / reference.abs().max())
