"""Random changes of colour of images ``(b, C, H, W)`` with values in [0, 1].

Three channels are red, green, blue. One channel is grey: what only moves colours (saturation, hue, grey) leaves it as
it is. Any other number of channels is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes._checks import require_range
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation
from krepes.views.crop import require_images
from krepes.views.noise import Noise

LUMA = (0.299, 0.587, 0.114)
FIXED_POINT = 2.0**32


def _require_colours(X: Tensor, name: str) -> None:
    require_images(X, name)
    if X.shape[1] not in {1, 3}:
        raise InvalidInputError(
            f"{name} takes 1 (grey) or 3 (red, green, blue) channels, got {X.shape[1]}. "
            f"Leave it out of the recipe for other channels."
        )


def _blend(X: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """Return ``factor · X + (1 - factor) · other`` inside [0, 1]; ``factor`` ``(b,)`` may exceed one."""
    factor = factor[:, None, None, None]
    return (factor * X + (1 - factor) * other).clamp(0.0, 1.0)


def grey(X: Tensor) -> Tensor:
    """Return the luma, ``(b, 1, H, W)``, of ITU-R 601; one channel stays as it is."""
    if X.shape[1] == 1:
        return X
    red, green, blue = X.split(1, dim=1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def adjust_brightness(X: Tensor, factor: Tensor) -> Tensor:
    """Blend with black."""
    return _blend(X, torch.zeros_like(X), factor)


def adjust_contrast(X: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean luma of the image."""
    # Integers add up to the same sum in any order, so the mean does not depend on how a batch is cut into threads.
    total = (grey(X).double() * FIXED_POINT).round().long().sum((1, 2, 3))
    mean = (total.double() / (FIXED_POINT * X.shape[2] * X.shape[3])).to(X.dtype)
    return _blend(X, mean[:, None, None, None], factor)


def adjust_saturation(X: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image."""
    return X if X.shape[1] == 1 else _blend(X, grey(X), factor)


def adjust_hue(X: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue by ``turns`` ``(b,)`` of the colour circle, at the same saturation and value."""
    if X.shape[1] == 1:
        return X
    red, green, blue = X.split(1, dim=1)
    value, low = X.amax(1, keepdim=True), X.amin(1, keepdim=True)
    chroma = value - low
    safe = torch.where(chroma > 0, chroma, 1.0)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = sector / 6 + turns[:, None, None, None]
    return torch.cat([value - chroma * _ramp(hue + offset / 6) for offset in (5, 3, 1)], dim=1)


def _ramp(hue: Tensor) -> Tensor:
    """Return how much of the chroma a channel lacks, by its distance round the colour circle."""
    k = 6 * (hue - hue.floor())
    return torch.minimum(k, 4 - k).clamp(0.0, 1.0)


Change = Callable[[Tensor, Tensor], Tensor]
CHANGES: tuple[Change, ...] = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)


def _on_some(X: Tensor, chosen: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``X`` with the samples ``chosen`` ``(b,)`` changed, and only those computed."""
    changed = X.clone()
    changed[chosen] = change(X[chosen])
    return changed


@dataclass(frozen=True)
class ColourJitter(Augmentation):
    """Change brightness, contrast, saturation and hue by random factors, in an order drawn for each sample.

    Attributes:
        brightness: The factor is uniform in ``[max(0, 1 - brightness), 1 + brightness]``.
        contrast: As for brightness.
        saturation: As for brightness.
        hue: Turns of the colour circle are uniform in ``[-hue, hue]``; at most one half.
        probability: That a sample is changed at all.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1
    probability: float = 0.8

    def __post_init__(self) -> None:
        """Refuse strengths that are negative, more than half a turn, and what is no probability."""
        for name in ("brightness", "contrast", "saturation"):
            require_range(getattr(self, name), name, low=0.0)
        require_range(self.hue, "hue", low=0.0, high=0.5)
        require_range(self.probability, "probability", low=0.0, high=1.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, most of them changed."""
        _require_colours(X, "ColourJitter")
        chosen = noise.uniform("choose") < self.probability  # (b,)
        order = noise.bits("order", 4).argsort(dim=1)  # (b, 4)
        amounts = self._amounts(noise.uniform("amount", 4, dtype=X.dtype))  # (b, 4)
        X = X.clone()
        for position in range(4):
            for number, change in enumerate(CHANGES):
                rows = (chosen & (order[:, position] == number)).nonzero().squeeze(1)
                if len(rows):
                    X[rows] = change(X[rows], amounts[rows, number])
        return X

    def _amounts(self, u: Tensor) -> Tensor:
        """Scale uniform numbers ``(b, 4)`` to three factors and the turns of the hue."""
        strengths = (self.brightness, self.contrast, self.saturation)
        low = u.new_tensor([*(max(0.0, 1 - s) for s in strengths), -self.hue])
        high = u.new_tensor([*(1 + s for s in strengths), self.hue])
        return low + (high - low) * u


@dataclass(frozen=True)
class Grey(Augmentation):
    """Take the colours away and keep the channels.

    Attributes:
        probability: That a sample is changed.
    """

    probability: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        require_range(self.probability, "probability", low=0.0, high=1.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, some of them grey."""
        _require_colours(X, "Grey")
        chosen = noise.uniform("choose") < self.probability
        return _on_some(X, chosen, lambda some: grey(some).expand_as(some))


@dataclass(frozen=True)
class Solarize(Augmentation):
    """Invert the values from ``threshold`` upwards.

    Attributes:
        probability: That a sample is changed.
        threshold: Values from here on are inverted.
    """

    probability: float = 0.2
    threshold: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        require_range(self.probability, "probability", low=0.0, high=1.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return the images, ``(b, C, H, W)``, some of them solarized."""
        require_images(X, "Solarize")
        chosen = noise.uniform("choose") < self.probability
        return _on_some(X, chosen, lambda some: torch.where(some >= self.threshold, 1 - some, some))
