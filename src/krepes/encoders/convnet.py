"""A small convolutional network that learns much in few epochs: its first layer is fixed and whitens patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from krepes._checks import require_range

PATCH = 2
SMALLEST = 5e-4
"""Added to the variances of patches of pixels in [0, 1], so that directions without any are not blown up."""


class ConvNet(nn.Module):
    """Patches of 2 x 2 pixels, whitened, then three stages of two convolutions, and the mean over positions.

    Convolutions are 3 x 3 with batch norm and ReLU; the very last is 1 x 1, which widens the embedding at little cost.
    The whitening has both signs of each direction and is no parameter: nothing trains it and no tangent kernel sees it.
    `whiten` sets it from samples without labels; before that it passes the pixels of a patch on as they are.

    Args:
        in_channels: Channels of the image.
        width: Channels of the first stage; the others have two and four times as many.
        out: Embedding dimension.

    Raises:
        InvalidInputError: If a size is not positive.
    """

    whitening: Tensor

    def __init__(self, *, in_channels: int = 3, width: int = 48, out: int = 384) -> None:
        super().__init__()
        for name, size in (("in_channels", in_channels), ("width", width), ("out", out)):
            require_range(size, name, low=1)
        self.config = {"name": "convnet", "in_channels": in_channels, "width": width, "out": out}
        inputs = in_channels * PATCH * PATCH
        self.register_buffer("whitening", _both(torch.eye(inputs), in_channels))
        sizes = (2 * inputs, width, width, 2 * width, 2 * width, 4 * width, out)
        kernels = (3, 3, 3, 3, 3, 1)
        self.convs = nn.ModuleList(map(_conv, sizes[:-1], sizes[1:], kernels))
        self.norms = nn.ModuleList(nn.BatchNorm2d(fan_out) for fan_out in sizes[1:])

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings, ``(b, out)``, of images ``x`` ``(b, in_channels, H, W)``."""
        x = F.relu(F.conv2d(x.contiguous(memory_format=torch.channels_last), self.whitening))
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = conv(x)
            if place % 2 == 0:  # the first of a stage halves the image, as soon as it can
                x = F.max_pool2d(x, 2)
            x = F.relu(norm(x))
        return x.mean((2, 3))

    @torch.no_grad()
    def whiten(self, X: Tensor) -> None:
        """Fix the first layer to the whitening of the patches of images ``X`` ``(n, in_channels, H, W)``."""
        patches = F.unfold(X.double(), PATCH).mT.flatten(0, 1)  # (n positions, inputs)
        variances, directions = torch.linalg.eigh(patches.T.cov())
        W = directions / (variances.clamp(min=0) + SMALLEST).sqrt()
        self.whitening.copy_(_both(W.T.to(self.whitening), X.shape[1]))


def _conv(fan_in: int, fan_out: int, kernel: int) -> nn.Conv2d:
    conv = nn.Conv2d(fan_in, fan_out, kernel, padding=kernel // 2, bias=False)
    conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)  # on a CPU 1.5 times as fast
    return conv


def _both(W: Tensor, channels: int) -> Tensor:
    """Return directions ``(k, inputs)`` and their opposites as the filters of a convolution."""
    return torch.cat([W, -W]).unflatten(1, (channels, PATCH, PATCH)).contiguous()
