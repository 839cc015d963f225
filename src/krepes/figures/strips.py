"""Landmark strips: a test image and the landmark images that attract or repel it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.figures.style import ATTRACTIVE, INK, REPULSIVE, WIDTH, literal, new_figure, shorten, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST = 16
"""Letters of a name over a picture."""


@styled
def landmark_strips(
    samples: Tensor,
    landmarks: Tensor,
    indices: Tensor,
    scores: Tensor,
    *,
    sample_names: Sequence[Any] | None = None,
    sample_notes: Sequence[str] | None = None,
    landmark_names: Sequence[Any] | None = None,
) -> Figure:
    """Draw a row of landmarks for each test image, framed green where they attract, red and dashed where they repel.

    Args:
        samples: Test images, ``(t, H, W)`` or ``(t, C, H, W)`` with one or three channels.
        landmarks: Landmark images, ``(m, ...)`` alike.
        indices: Landmarks to show, ``(t, k)``, as in `krepes.attribution.Top`.
        scores: Their influence scores, ``(t, k)``.
        sample_names: Written over the test images, ``t`` of them.
        sample_notes: Written under the test images, ``t`` of them.
        landmark_names: Written over the landmarks, ``m`` of them: ids, or classes in an audit.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If the images are no images, or the numbers do not fit.
    """
    t, k = indices.shape
    if samples.ndim not in (3, 4) or len(samples) != t or scores.shape != indices.shape:
        raise InvalidInputError(
            f"images must be (t, H, W) or (t, C, H, W) with indices and scores (t, k), got images "
            f"{tuple(samples.shape)}, indices {tuple(indices.shape)} and scores {tuple(scores.shape)}."
        )
    figure = new_figure(0.1 + t * (WIDTH / (k + 1) + 0.42))
    axes = figure.subplots(t, k + 1, squeeze=False)
    for row in range(t):
        name = "" if sample_names is None else _legible(sample_names[row])
        _draw(axes[row, 0], samples[row], f"test: {name}" if name else "test", INK, "solid")
        if sample_notes is not None:
            axes[row, 0].set_xlabel(literal(sample_notes[row]), color=INK, fontweight="bold", labelpad=3)
        for column in range(k):
            l, score = int(indices[row, column]), float(scores[row, column])
            colour, line = (ATTRACTIVE, "solid") if score >= 0 else (REPULSIVE, "dashed")
            title = "" if landmark_names is None else _legible(landmark_names[l])
            _draw(axes[row, column + 1], landmarks[l], title, colour, line)
            axes[row, column + 1].set_xlabel(f"{score:+#.3g}", color=colour, fontweight="bold", labelpad=3)
    return figure


def _draw(ax: Axes, image: Tensor, title: str, colour: str, line: str) -> None:
    ax.imshow(_pixels(image), cmap="gray", interpolation="nearest")
    ax.set_title(title, fontsize=9, pad=3)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(visible=True, edgecolor=colour, linewidth=2.5, linestyle=line)


def _legible(name: Any) -> str:
    """Return a name that fits over a picture: of a path its end, which tells files apart."""
    text = str(name)
    return shorten(f"…{text[-(LONGEST - 1) :]}" if "/" in text and len(text) > LONGEST else text, LONGEST)


def _pixels(image: Tensor) -> np.ndarray[Any, Any]:
    """Return ``(H, W)`` or ``(H, W, 3)`` between 0 and 1; a normalised image is stretched to that range."""
    pixels = image.detach().cpu().double()
    if pixels.ndim == 3:
        pixels = pixels[0] if pixels.shape[0] == 1 else pixels.permute(1, 2, 0)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = (pixels - low) / ((high - low) or 1.0)
    return pixels.numpy()
