"""Exact per-sample gradients of a few parameters: for free parameters and for layers that no rule knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from krepes import batches
from krepes._autodiff import per_sample_jacobian
from krepes.encoders.frozen import FrozenEncoder


class PerSample:
    """Gradients of the head outputs in the named parameters, one sample at a time, in one vectorised pass if possible.

    Args:
        encoder: The network.
        names: The parameters to differentiate.
    """

    def __init__(self, encoder: FrozenEncoder, names: list[str]) -> None:
        self.encoder, self.names = encoder, names
        self.vectorised = True

    def __call__(self, X: Any, cotangents: Tensor) -> Tensor:
        """Return ``(n, r P)``, the heads side by side.

        Args:
            X: A batch of ``n`` samples.
            cotangents: Head weights, ``(r, d)``.

        Returns:
            The written-out gradients.
        """
        parameters = self.encoder.parameters
        chosen = {name: parameters[name].detach() for name in self.names}
        self.encoder.count(batches.count(X))
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
        return cotangents @ self.encoder.embed(X, chosen)[0]

    def _one(self, chosen: dict[str, Tensor], X: Any, cotangents: Tensor) -> Tensor:
        """Return ``(1, r P)`` by plain autograd."""
        leaves = {name: value.clone().requires_grad_() for name, value in chosen.items()}
        pair = batches.take(
            X, torch.zeros(2, dtype=torch.long)
        )  # torch's batch norm goes back wrongly through one alone
        outputs = cotangents @ self.encoder.embed(pair, leaves)[0]
        if not outputs.requires_grad:  # none of them has a say in this sample
            return torch.cat([value.new_zeros(1, value.numel()) for _ in outputs for value in chosen.values()], dim=1)
        heads = [
            torch.autograd.grad(out, list(leaves.values()), retain_graph=True, materialize_grads=True)
            for out in outputs
        ]
        return torch.cat([g.reshape(1, -1) for gradients in heads for g in gradients], dim=1)

    def _flat(self, gradients: dict[str, Tensor]) -> Tensor:
        """Return ``(n, r P)`` of tensors ``(n, r, *shape)``."""
        parts = [gradients[name].reshape(*gradients[name].shape[:2], -1) for name in self.names]
        return torch.cat(parts, dim=2).flatten(1)
