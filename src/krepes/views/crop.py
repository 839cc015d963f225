"""Random resized crop and flip of images ``(b, C, H, W)``, each sample with its own box.

Cropping and resizing is one separable resampling: the antialiased bicubic filter of Pillow (a = -1/2, widened when it
shrinks, renormalised at the border of the box), written as a few gathered, weighted columns and then rows. Only
element-wise operations, so a sample's pixels do not depend on the batch it came in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation
from krepes.views.noise import Noise

ATTEMPTS = 10


def require_images(X: Tensor, name: str) -> None:
    """Raise `InvalidInputError` unless ``X`` is ``(b, C, H, W)`` with real values in [0, 1]."""
    if not isinstance(X, Tensor) or X.ndim != 4 or not X.is_floating_point():
        found = f"{tuple(X.shape)} {X.dtype}" if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInputError(
            f"{name} takes images (b, C, H, W) of real numbers, got {found}. "
            f"Divide bytes by 255; of a dict or tuple, name the fields to augment with OnFields."
        )
    low, high = (float(end) for end in X.aminmax())
    if low < -1e-3 or high > 1 + 1e-3:
        raise InvalidInputError(
            f"{name} takes values between 0 and 1, got {low:g} to {high:g}. "
            f"Divide bytes by 255, and put Normalise last: colours have no meaning after it."
        )


def _cubic(x: Tensor) -> Tensor:
    """Return Keys' cubic filter with a = -1/2, zero beyond 2."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _taps(start: Tensor, length: Tensor, size: int, limit: int) -> tuple[Tensor, Tensor]:
    """Return which pixels of an axis of ``limit`` make each of ``size`` new ones, and their weights.

    Args:
        start: First pixel of each sample's box, ``(b,)``.
        length: Pixels in it, ``(b,)``.
        size: Pixels wanted.
        limit: Pixels the axis has.

    Returns:
        Positions and weights, ``(taps, b, size)`` both; weights sum to one over the taps.
    """
    start, length = start.double()[:, None], length.double()[:, None]
    scale = length / size
    widening = scale.clamp(min=1.0)
    centre = start + (torch.arange(size, device=start.device) + 0.5) * scale  # (b, size)
    first = (centre - 2 * widening + 0.5).floor()
    taps = math.ceil(4 * max(limit / size, 1.0))
    positions = [first + tap for tap in range(taps)]
    inside = [(start <= position) & (position < start + length) for position in positions]
    weights = [_cubic((x + 0.5 - centre) / widening) * mask for x, mask in zip(positions, inside, strict=True)]
    total = sum(weights, torch.zeros_like(centre))
    return torch.stack(positions).clamp(0, limit - 1).long(), torch.stack([w / total for w in weights])


def crop_and_resize(X: Tensor, box: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut a box out of each image and resize it, bicubic with antialiasing, clipped to [0, 1].

    Args:
        X: Images, ``(b, C, H, W)``.
        box: ``(b, 4)`` integers: top, left, height, width.
        size: Height and width wanted.

    Returns:
        Images, ``(b, C, *size)``.
    """
    top, left, height, width = box.unbind(1)
    Y = _resample(X, *_taps(left, width, size[1], X.shape[3]))
    Z = _resample(Y.mT, *_taps(top, height, size[0], X.shape[2])).mT
    return Z.clamp(0.0, 1.0)


def _resample(X: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of pixels along the last axis of ``X`` ``(b, C, H, W)``, as ``(b, C, H, size)``."""
    X = X.contiguous()  # gathering along a strided axis takes four times as long
    shape = (*X.shape[:3], positions.shape[-1])
    Y = X.new_zeros(shape)
    for position, weight in zip(positions, weights.to(X.dtype), strict=True):
        Y += X.gather(3, position[:, None, None, :].expand(shape)) * weight[:, None, None, :]
    return Y


@dataclass(frozen=True)
class RandomResizedCrop(Augmentation):
    """A box of random area and shape, resized.

    A box of area ``scale · H · W`` and log-uniform ``ratio`` is drawn up to ten times until it fits, else the largest
    central box of an allowed ratio is taken.

    Attributes:
        size: Height and width of the result; by default those of the image.
        scale: Smallest and largest part of the area.
        ratio: Smallest and largest width over height.
    """

    size: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        """Refuse ranges that are empty or not positive."""
        require_range(self.scale[0], "scale[0]", low=1e-6, high=self.scale[1])
        require_range(self.scale[1], "scale[1]", low=self.scale[0], high=1.0)
        require_range(self.ratio[0], "ratio[0]", low=1e-6, high=self.ratio[1])

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return a crop of each image, ``(b, C, size, size)``."""
        require_images(X, "RandomResizedCrop")
        H, W = X.shape[2:]
        return crop_and_resize(X, self.boxes(noise, H, W), (self.size or H, self.size or W))

    def plain(self, X: Tensor) -> Tensor:
        """Return the whole image, resized."""
        require_images(X, "RandomResizedCrop")
        b, _, H, W = X.shape
        size = (self.size or H, self.size or W)
        whole = torch.tensor([0, 0, H, W], device=X.device).expand(b, 4)
        return X if size == (H, W) else crop_and_resize(X, whole, size)

    def boxes(self, noise: Noise, H: int, W: int) -> Tensor:
        """Return the boxes, ``(b, 4)`` integers: top, left, height, width."""
        u = noise.uniform("box", ATTEMPTS, 4, dtype=torch.float64)
        area = H * W * (self.scale[0] + (self.scale[1] - self.scale[0]) * u[..., 0])
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = (low + (high - low) * u[..., 1]).exp()
        height, width = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
        top, left = (u[..., 2] * (H - height + 1)).floor(), (u[..., 3] * (W - width + 1)).floor()
        fits = (height >= 1) & (height <= H) & (width >= 1) & (width <= W)  # (b, attempts)
        drawn = torch.stack([top, left, height, width], dim=-1).long()
        # The fallback stands last and always fits; the first that fits has the largest countdown.
        candidates = torch.cat([drawn, self._central(H, W).to(u.device).expand(len(u), 1, 4)], dim=1)
        countdown = torch.arange(ATTEMPTS, 0, -1, device=u.device) * fits
        first = torch.where(fits.any(1), countdown.argmax(1), ATTEMPTS)
        return candidates[torch.arange(len(u), device=u.device), first]

    def _central(self, H: int, W: int) -> Tensor:
        height = min(H, max(1, round(W / self.ratio[0])))
        width = min(W, max(1, round(H * self.ratio[1])))
        return torch.tensor([(H - height) // 2, (W - width) // 2, height, width])


@dataclass(frozen=True)
class HorizontalFlip(Augmentation):
    """Mirror left and right.

    Attributes:
        probability: That a sample is mirrored.
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        require_range(self.probability, "probability", low=0.0, high=1.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, some of them mirrored."""
        flipped = noise.uniform("flip") < self.probability
        return torch.where(flipped[:, None, None, None], X.flip(3), X)
