"""Cross tangent kernels by other means: what users write today, and the libraries at hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

Method = Callable[[nn.Module, Tensor, Tensor, Tensor, int], Tensor]
"""``(encoder, head weights (d,), X, Y, chunk) -> K`` over the encoder's parameters."""


def torch_func(encoder: nn.Module, w: Tensor, X: Tensor, Y: Tensor, chunk: int) -> Tensor:
    """Contract Jacobians from ``vmap(grad)``, a chunk of each side at a time."""
    parameters = {name: p.detach() for name, p in encoder.named_parameters()}

    def scalar(leaves: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(encoder, leaves, (x.unsqueeze(0),))[0] @ w

    def jacobian(Z: Tensor) -> Tensor:
        gradients = vmap(grad(scalar), in_dims=(None, 0), randomness="same")(parameters, Z)
        return torch.cat([g.flatten(1) for g in gradients.values()], dim=1)

    return _contract(jacobian, X, Y, chunk)


def backward_loop(encoder: nn.Module, w: Tensor, X: Tensor, Y: Tensor, chunk: int) -> Tensor:
    """Contract Jacobians from one backward pass per sample."""
    parameters = [p.requires_grad_() for p in encoder.parameters()]

    def jacobian(Z: Tensor) -> Tensor:
        rows = []
        for z in Z:
            gradients = torch.autograd.grad(encoder(z.unsqueeze(0))[0] @ w, parameters, materialize_grads=True)
            rows.append(torch.cat([g.reshape(-1) for g in gradients]))
        return torch.stack(rows)

    return _contract(jacobian, X, Y, chunk)


def backpack(encoder: nn.Module, w: Tensor, X: Tensor, Y: Tensor, chunk: int) -> Tensor:
    """Contract Jacobians from BackPACK's per-sample gradients; it knows plain layers only."""
    from backpack import backpack as recording
    from backpack import extend
    from backpack.extensions import BatchGrad

    head = nn.Linear(len(w), 1, bias=False)
    head.weight.data.copy_(w.unsqueeze(0))
    for parameter in encoder.parameters():
        parameter.requires_grad_()
    network = extend(nn.Sequential(*encoder.children(), head))

    def jacobian(Z: Tensor) -> Tensor:
        with recording(BatchGrad()):
            network(Z).sum().backward()
        parts = [p.grad_batch.flatten(1) for layer in list(network)[:-1] for p in layer.parameters()]
        network.zero_grad()
        return torch.cat(parts, dim=1)

    return _contract(jacobian, X, Y, chunk)


def _contract(jacobian: Callable[[Tensor], Tensor], X: Tensor, Y: Tensor, chunk: int) -> Tensor:
    """Return ``J_X J_Yᵀ`` with both sides in chunks; the second side is kept, as a careful user would."""
    sides = [jacobian(y) for y in Y.split(chunk)]
    return torch.cat([torch.cat([J_x @ J_y.T for J_y in sides], dim=1) for J_x in map(jacobian, X.split(chunk))])


def installed(module: str) -> bool:
    """Return whether a rival library can be imported."""
    return importlib.util.find_spec(module) is not None
