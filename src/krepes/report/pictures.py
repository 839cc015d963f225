"""Pictures for a report: small PNGs of samples, and figures as files, the same bytes for the same content."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.figures import render
from krepes.report.blocks import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pixels of the longer side: sharp at the size of a card, and a thousand of them still make a small page.
LONGEST_SIDE = 96
HEAVY = 4000
"""Bytes of a PNG from which on a JPEG is tried, which suits photographs."""


def thumbnail(image: Tensor, alt: str) -> Picture:
    """Return a sample as a small PNG, a photograph as a small JPEG.

    Args:
        image: ``(H, W)``, ``(1, H, W)`` or ``(3, H, W)``; values outside [0, 1] are stretched to it.
        alt: What it shows.

    Returns:
        The picture.

    Raises:
        InvalidInputError: If it is no image.
    """
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or len(image) not in (1, 3) or image.numel() == 0 or image.is_complex():
        raise InvalidInputError(f"a sample of shape {tuple(image.shape)} is no image (H, W), (1, H, W) or (3, H, W).")
    pixels = image.detach().cpu().double()
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = (pixels - low) / ((high - low) or 1.0)
    values = (255 * pixels).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    content, photo = BytesIO(), BytesIO()
    picture.save(content, format="PNG", optimize=True)
    if len(content.getvalue()) > HEAVY:
        picture.save(photo, format="JPEG", quality=88)
        if 2 * len(photo.getvalue()) < len(content.getvalue()):
            return Picture(photo.getvalue(), "image/jpeg", alt)
    return Picture(content.getvalue(), "image/png", alt)


def drawn(figure: Figure, alt: str, caption: str = "") -> Picture:
    """Return a figure as SVG, whose text stays text, with fonts of the same widths for machines without the first."""
    content = render(figure, format="svg").replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")
    return Picture(content, "image/svg+xml", alt, caption)
