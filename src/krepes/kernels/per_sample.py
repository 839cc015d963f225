"""Exact per-sample gradients of a few parameters: for free parameters and for layers that no rule knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from krepes import batches
from krepes._autodiff import per_sample_jacobian, with_parameters
from krepes.kernels.capture import apply


class PerSample:
    """Gradients of the head outputs in the named parameters, one sample at a time, in one vectorised pass if possible.

    Args:
        encoder: The network, in eval mode during calls.
        names: The parameters to differentiate.
        output: Picks the embedding out of what the encoder returns, or ``None``.
    """

    def __init__(self, encoder: nn.Module, names: list[str], output: Callable[[Any], Tensor] | None) -> None:
        self.encoder, self.names, self.output = encoder, names, output
        self.vectorised = True

    def __call__(self, X: Any, cotangents: Tensor) -> Tensor:
        """Return ``(n, r P)``, the heads side by side.

        Args:
            X: A batch of ``n`` samples.
            cotangents: Head weights, ``(r, d)``.

        Returns:
            The written-out gradients.
        """
        parameters = dict(self.encoder.named_parameters())
        chosen = {name: parameters[name].detach() for name in self.names}
        if self.vectorised:
            try:
                return self._flat(
                    per_sample_jacobian(lambda leaves, x: self._outputs(leaves, x, cotangents), chosen, X)
                )
            except RuntimeError:  # a layer that vmap cannot batch, such as nn.GRU
                self.vectorised = False
        n = batches.count(X)
        singles = (batches.take(X, slice(i, i + 1)) for i in range(n))
        return torch.cat([self._one(chosen, x, cotangents) for x in singles])

    def _outputs(self, chosen: dict[str, Tensor], x: Any, cotangents: Tensor) -> Tensor:
        """Return the ``(r,)`` head outputs of one sample without its sample axis."""
        X = batches.map_tensors(lambda leaf: leaf.unsqueeze(0), x)
        return cotangents @ apply(with_parameters(self.encoder, chosen), X, self.output)[0]

    def _one(self, chosen: dict[str, Tensor], X: Any, cotangents: Tensor) -> Tensor:
        """Return ``(1, r P)`` by plain autograd."""
        leaves = {name: value.clone().requires_grad_() for name, value in chosen.items()}
        outputs = cotangents @ apply(with_parameters(self.encoder, leaves), X, self.output)[0]
        heads = [torch.autograd.grad(out, list(leaves.values()), retain_graph=True) for out in outputs]
        return torch.cat([g.reshape(1, -1) for gradients in heads for g in gradients], dim=1)

    def _flat(self, gradients: dict[str, Tensor]) -> Tensor:
        """Return ``(n, r P)`` of tensors ``(n, r, *shape)``."""
        parts = [gradients[name].reshape(*gradients[name].shape[:2], -1) for name in self.names]
        return torch.cat(parts, dim=2).flatten(1)
