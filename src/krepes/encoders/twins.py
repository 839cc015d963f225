"""What is trained on two views: encoder and projector, and for BYOL a predictor and a slowly following target."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from krepes.batches import Batch
from krepes.encoders.call import call, cast, home
from krepes.encoders.duplicate import duplicate
from krepes.encoders.losses import Loss, cosine_distance
from krepes.encoders.outputs import Output


def head(like: Tensor, *widths: int) -> nn.Sequential:
    """Return linear layers of ``widths`` on ``like`` ``(b, d)``, with batch norm and ReLU between them."""
    sizes = [like.shape[1], *widths]
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(fan_in, fan_out), nn.BatchNorm1d(fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-2]).to(device=like.device, dtype=like.dtype)


class Twins(nn.Module):
    """Two views through one encoder and one projector, compared by a symmetric loss.

    Args:
        encoder: ``(b, ...) -> (b, d)``.
        Y: Some embeddings, ``(b, d)``: the heads have their size, type and device.
        widths: Of the projector; none leaves the embedding itself.
        compare: The loss of two projections ``(b, h)``.
        output: Where in the encoder's result the embedding is.
    """

    output: Output
    precision: torch.dtype | None = None
    """Type in which the encoder's layers are computed while training; heads and loss keep that of the weights."""

    def __init__(
        self, encoder: nn.Module, Y: Tensor, widths: tuple[int, ...], compare: Loss, output: Output = None
    ) -> None:
        super().__init__()
        self.encoder, self.projector, self.compare = encoder, head(Y, *widths), compare
        object.__setattr__(self, "output", output)  # even if it is a module, it is not a part of what is trained

    def embed(self, encoder: nn.Module, X: Batch) -> Tensor:
        """Return the embeddings ``(b, d)`` of samples by an encoder of this kind, in its mode and with its graph."""
        device, dtype = home(encoder)
        if self.precision is None:
            return call(encoder, cast(X, device, dtype), self.output)
        with torch.autocast(device.type, self.precision):
            return call(encoder, cast(X, device, dtype), self.output).to(dtype)

    def forward(self, x_a: Batch, x_b: Batch, *w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, with row weights ``w`` ``(b,)`` if given, and the embeddings ``(b, d)`` of one view."""
        Y_a, Y_b = self.embed(self.encoder, x_a), self.embed(self.encoder, x_b)
        return self.compare(self.projector(Y_a), self.projector(Y_b), *w), Y_a

    def follow(self, progress: float) -> None:
        """Do what a step leaves to do, when the part ``progress`` of the training is done: nothing."""


class Bootstrap(Twins):
    r"""BYOL: the prediction from one view meets the other view's projection by a target (Grill et al. 2020).

    The target is a moving average, :math:`\xi \leftarrow \tau \xi + (1 - \tau) \theta`, whose :math:`\tau` rises from
    ``momentum`` to one along a cosine. Its batch norms see the batch, as the trained ones do.

    Args:
        encoder: ``(b, ...) -> (b, d)``.
        Y: Some embeddings, ``(b, d)``: the heads have their size, type and device.
        widths: Of the projector; the predictor has its first and its last.
        momentum: :math:`\tau` at the start.
        output: Where in the encoder's result the embedding is.
    """

    def __init__(
        self, encoder: nn.Module, Y: Tensor, widths: tuple[int, ...], momentum: float, output: Output = None
    ) -> None:
        super().__init__(encoder, Y, widths, cosine_distance, output)
        widths = widths or (Y.shape[1],)
        self.predictor = head(Y.new_empty(1, widths[-1]), widths[0], widths[-1])
        self.target = duplicate(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)
        self.momentum = momentum

    def forward(self, x_a: Batch, x_b: Batch, *w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, over both orders of the views, and the embeddings ``(b, d)`` of the first view."""
        Y_a, Y_b = self.embed(self.encoder, x_a), self.embed(self.encoder, x_b)
        P_a, P_b = (self.predictor(self.projector(Y)) for Y in (Y_a, Y_b))
        # The target asks for no gradient, so none is computed in training; a replay differentiates through it.
        encoder, projector = self.target
        T_a, T_b = (projector(self.embed(encoder, x)) for x in (x_a, x_b))
        return self.compare(P_a, T_b, *w) + self.compare(P_b, T_a, *w), Y_a

    def rate(self, progress: float) -> float:
        r"""Return :math:`\tau` when the part ``progress`` of the training is done."""
        return 1 - (1 - self.momentum) * (1 + math.cos(math.pi * progress)) / 2

    @torch.no_grad()
    def follow(self, progress: float) -> None:
        """Move the target's parameters towards the trained ones."""
        trained = (*self.encoder.parameters(), *self.projector.parameters())
        for xi, theta in zip(self.target.parameters(), trained, strict=True):
            xi.lerp_(theta, 1 - self.rate(progress))
