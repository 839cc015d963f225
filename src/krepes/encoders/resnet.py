"""Residual networks (He et al. 2016) with the parameter names of torchvision, timm and solo-learn.

The embedding is the pooled output of the last stage; there is no classifier. `krepes.encoders.load_encoder` fills them
from checkpoints of these projects and of lightly.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from krepes._checks import require_range


def _downsample(fan_in: int, fan_out: int, stride: int) -> nn.Module:
    """Return the projection of a skip connection whose shape changes, else the identity."""
    if stride == 1 and fan_in == fan_out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a skip connection."""

    expansion: ClassVar[int] = 1

    def __init__(self, fan_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _downsample(fan_in, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(b, planes, H / stride, W / stride)``."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1, the stride on the middle one, and a skip connection."""

    expansion: ClassVar[int] = 4

    def __init__(self, fan_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.downsample = _downsample(fan_in, 4 * planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(b, 4 * planes, H / stride, W / stride)``."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


Block = type[BasicBlock] | type[Bottleneck]


def _stage(block: Block, fan_in: int, planes: int, depth: int, stride: int) -> nn.Sequential:
    """Return ``depth`` blocks, of which the first changes width and size."""
    rest = [block(planes * block.expansion, planes, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(fan_in, planes, stride), *rest)


class ResNet(nn.Module):
    """A stem, four stages that double the width and halve the image, and the mean over positions.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: Blocks of each stage.
        cifar_stem: For small images: a 3x3 convolution of stride one and no pooling, instead of 7x7, stride two and a
            max-pool.
        cifar_padding: Padding of that convolution: 2 in solo-learn, whose checkpoints need it, 1 in most others.
        width: Channels of the first stage.
        in_channels: Channels of the image.

    Raises:
        InvalidInputError: If a size is not positive.
    """

    def __init__(
        self,
        block: Block,
        depths: tuple[int, int, int, int],
        *,
        cifar_stem: bool = True,
        cifar_padding: int = 2,
        width: int = 64,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        require_range(width, "width", low=1)
        require_range(in_channels, "in_channels", low=1)
        require_range(cifar_padding, "cifar_padding", low=0)
        self.config: dict[str, int | str] | None = None
        self.conv1 = (
            nn.Conv2d(in_channels, width, 3, stride=1, padding=cifar_padding, bias=False)
            if cifar_stem
            else nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if cifar_stem else nn.MaxPool2d(3, stride=2, padding=1)
        c = width * block.expansion
        self.layer1 = _stage(block, width, width, depths[0], stride=1)
        self.layer2 = _stage(block, c, 2 * width, depths[1], stride=2)
        self.layer3 = _stage(block, 2 * c, 4 * width, depths[2], stride=2)
        self.layer4 = _stage(block, 4 * c, 8 * width, depths[3], stride=2)
        self.out = 8 * c
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings, ``(b, out)``, of images ``x`` ``(b, in_channels, H, W)``."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean((2, 3))


def _named(name: str, block: Block, depths: tuple[int, int, int, int], **settings: Any) -> ResNet:
    """Return a network that knows how it was made, so that its file can say so."""
    encoder = ResNet(block, depths, **settings)
    encoder.config = {"name": name, **settings}
    return encoder


def resnet18(*, cifar_stem: bool = True, cifar_padding: int = 2, width: int = 64, in_channels: int = 3) -> ResNet:
    """Return a ResNet-18, whose embedding has ``8 · width`` numbers."""
    stem = {"cifar_stem": cifar_stem, "cifar_padding": cifar_padding}
    return _named("resnet18", BasicBlock, (2, 2, 2, 2), **stem, width=width, in_channels=in_channels)


def resnet34(*, cifar_stem: bool = True, cifar_padding: int = 2, width: int = 64, in_channels: int = 3) -> ResNet:
    """Return a ResNet-34, whose embedding has ``8 · width`` numbers."""
    stem = {"cifar_stem": cifar_stem, "cifar_padding": cifar_padding}
    return _named("resnet34", BasicBlock, (3, 4, 6, 3), **stem, width=width, in_channels=in_channels)


def resnet50(*, cifar_stem: bool = True, cifar_padding: int = 2, width: int = 64, in_channels: int = 3) -> ResNet:
    """Return a ResNet-50, whose embedding has ``32 · width`` numbers."""
    stem = {"cifar_stem": cifar_stem, "cifar_padding": cifar_padding}
    return _named("resnet50", Bottleneck, (3, 4, 6, 3), **stem, width=width, in_channels=in_channels)
