"""Blur and normalisation of images ``(b, C, H, W)``, and the recipes of solo-learn's CIFAR runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation, Compose, PerView
from krepes.views.colour import ColourJitter, Grey, Solarize
from krepes.views.crop import HorizontalFlip, RandomResizedCrop, require_images
from krepes.views.noise import Noise

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)


def blur(X: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Convolve each image with its own Gaussian, cut off at ``radius`` pixels; the border is repeated outwards.

    Args:
        X: Images, ``(b, C, H, W)``.
        sigma: Widths in pixels, ``(b,)``.
        radius: Pixels to each side.

    Returns:
        Images, ``(b, C, H, W)``.
    """
    offsets = range(-radius, radius + 1)
    weights = [(-(j * j) / (2 * sigma.double() * sigma.double())).exp() for j in offsets]
    total = sum(weights, torch.zeros_like(weights[0]))
    # Shifted sums instead of a grouped convolution, whose algorithm and last bits depend on the batch.
    w = [(weight / total).to(X.dtype)[:, None, None, None] for weight in weights]
    H, W = X.shape[2:]
    wide = F.pad(X, (radius, radius, 0, 0), mode="replicate")
    Y = sum((w[j] * wide[..., j : j + W] for j in range(len(w))), torch.zeros_like(X))
    tall = F.pad(Y, (0, 0, radius, radius), mode="replicate")
    return sum((w[j] * tall[..., j : j + H, :] for j in range(len(w))), torch.zeros_like(X))


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Blur by a width drawn for each sample.

    Attributes:
        probability: That a sample is blurred.
        sigma: Smallest and largest width, in pixels.
    """

    probability: float = 0.5
    sigma: tuple[float, float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        """Refuse what is no probability, and widths that are not positive."""
        require_range(self.probability, "probability", low=0.0, high=1.0)
        require_range(self.sigma[0], "sigma[0]", low=1e-3, high=self.sigma[1])

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, some of them blurred."""
        require_images(X, "GaussianBlur")
        rows = (noise.uniform("choose") < self.probability).nonzero().squeeze(1)
        low, high = self.sigma
        sigma = low + (high - low) * noise.uniform("sigma", dtype=torch.float64)
        if not len(rows):
            return X
        blurred = X.clone()
        blurred[rows] = blur(X[rows], sigma[rows], radius=math.ceil(3 * high))
        return blurred


@dataclass(frozen=True)
class Normalise(Augmentation):
    """Subtract a mean and divide by a standard deviation, channel by channel; no noise, so `plain` does it too.

    Attributes:
        mean: One for each channel.
        std: One for each channel.
    """

    mean: Sequence[float] = CIFAR10_MEAN
    std: Sequence[float] = CIFAR10_STD

    def __post_init__(self) -> None:
        """Refuse lengths that differ, and deviations that are not positive."""
        if len(self.mean) != len(self.std):
            raise InvalidInputError(f"Normalise got {len(self.mean)} means and {len(self.std)} deviations: one each.")
        require_range(min(self.std), "the smallest of std", low=1e-12)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, normalised."""
        return self.plain(X)

    def plain(self, X: Tensor) -> Tensor:
        """Return the images, ``(b, C, H, W)``, normalised."""
        require_images(X, "Normalise")
        if X.shape[1] != len(self.mean):
            raise InvalidInputError(
                f"Normalise has {len(self.mean)} means, the images {X.shape[1]} channels. Pass one mean and one "
                f"standard deviation for each channel (the recipes take them as mean=, std=)."
            )
        mean, std = X.new_tensor(list(self.mean)), X.new_tensor(list(self.std))
        return (X - mean[:, None, None]) / std[:, None, None]


def symmetric_cifar(mean: Sequence[float] = CIFAR10_MEAN, std: Sequence[float] = CIFAR10_STD) -> Compose:
    """Return solo-learn's symmetric CIFAR recipe (its SimCLR): strong jitter, blur on every second view."""
    return _recipe(ColourJitter(0.8, 0.8, 0.8, 0.2), (GaussianBlur(0.5),), mean, std)


def asymmetric_cifar(mean: Sequence[float] = CIFAR10_MEAN, std: Sequence[float] = CIFAR10_STD) -> PerView:
    """Return solo-learn's asymmetric CIFAR pair (its BYOL and Barlow Twins): weak jitter, one view solarized."""
    jitter = ColourJitter(0.4, 0.4, 0.2, 0.1)
    return PerView(_recipe(jitter, (), mean, std), _recipe(jitter, (Solarize(0.2),), mean, std))


def _recipe(
    jitter: ColourJitter, extra: tuple[Augmentation, ...], mean: Sequence[float], std: Sequence[float]
) -> Compose:
    """Return the order that all recipes share: crop, jitter, grey, the extra steps, flip, normalise."""
    return Compose(RandomResizedCrop(), jitter, Grey(0.2), *extra, HorizontalFlip(0.5), Normalise(mean, std))
