"""Landmark strips: test images and the landmark images that attract or repel them, beside or below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.figures.style import (
    ATTRACTIVE,
    BLUE,
    INK,
    ORANGE,
    REPULSIVE,
    WIDTH,
    fixed,
    literal,
    new_figure,
    shorten,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST = 16
"""Letters of a name over a picture."""
HEADING, GAP = 0.16, 0.3
"""Height of the headings in inches, and the gap between what attracts and what repels in widths of a picture."""


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
    attracting: int | None = None,
) -> Figure:
    """Draw a row of landmarks for each test image, framed green where they attract and red where they repel.

    Args:
        samples: Test images, ``(t, H, W)`` or ``(t, C, H, W)`` with one or three channels.
        landmarks: Landmark images, ``(m, ...)`` alike.
        indices: Landmarks to show, ``(t, k)``, as in `krepes.attribution.Top`.
        scores: Their influence scores, ``(t, k)``; all are written to the same digit.
        sample_names: Written over the test images, ``t`` of them.
        sample_notes: Written under the test images, ``t`` of them.
        landmark_names: Written over the landmarks, ``m`` of them: ids, or classes in an audit.
        attracting: So many of the ``k`` are those that attract most and the others those that repel most: they stand
            apart, each under a heading.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If the images are no images, or the numbers do not fit.
    """
    _require_images(samples, indices)
    t, k = indices.shape
    if scores.shape != indices.shape or not (attracting is None or 0 < attracting < k):
        raise InvalidInputError(
            f"scores must be as many as indices {tuple(indices.shape)} and attracting between 1 and {k - 1}, got "
            f"scores {tuple(scores.shape)} and attracting={attracting}."
        )
    figure, panels = _panels(t, k, attracting)
    written = fixed(scores.flatten().tolist())
    for row, axes in enumerate(panels):
        name = "" if sample_names is None else _legible(sample_names[row])
        told = name if attracting else f"test: {name}" if name else "test"
        _draw(axes[0], samples[row], told, INK)
        if sample_notes is not None:
            axes[0].set_xlabel(literal(sample_notes[row]), color=INK, fontweight="bold", labelpad=3)
        for column, ax in enumerate(axes[1:]):
            l, score = int(indices[row, column]), float(scores[row, column])
            colour = ATTRACTIVE if score >= 0 else REPULSIVE
            _draw(ax, landmarks[l], "" if landmark_names is None else _legible(landmark_names[l]), colour)
            ax.set_xlabel(written[row * k + column], color=colour, fontweight="bold", labelpad=3)
    if attracting is not None:
        _settle(figure)
    return figure


@styled
def landmark_columns(
    samples: Tensor,
    landmarks: Tensor,
    indices: Tensor,
    *,
    sample_names: Sequence[Any],
    landmark_names: Sequence[Any],
) -> Figure:
    """Draw test images in a row and below each its landmarks, framed by whether they have its name; about ten fit.

    Args:
        samples: Test images, ``(t, H, W)`` or ``(t, C, H, W)`` with one or three channels.
        landmarks: Landmark images, ``(m, ...)`` alike.
        indices: Landmarks to show, best first, ``(t, k)``.
        sample_names: Classes of the test images, ``t`` of them.
        landmark_names: Classes of the landmarks, ``m`` of them.

    Returns:
        The figure.
    """
    _require_images(samples, indices)
    t, k = indices.shape
    figure = new_figure((k + 1) * (WIDTH / (t + 0.5) + 0.2) + 0.3)
    panels = figure.subplots(k + 1, t, squeeze=False)
    for column in range(t):
        own = sample_names[column]
        _draw(panels[0, column], samples[column], _legible(own), INK, size=8, frame=1.8)
        for row in range(k):
            l, ax = int(indices[column, row]), panels[row + 1, column]
            _draw(ax, landmarks[l], "", BLUE if landmark_names[l] == own else ORANGE, frame=1.8)
            ax.set_xlabel(_legible(landmark_names[l]), fontsize=8, labelpad=2)
    for row in range(k + 1):
        panels[row, 0].set_ylabel("test" if row == 0 else f"{row}.", fontsize=8, rotation=0, ha="right", va="center")
    _key(figure)
    return figure


def _key(figure: Figure) -> None:
    """Say what the frames mean."""
    from matplotlib.patches import Patch

    kinds = (BLUE, "landmark of the test image's class"), (ORANGE, "of another class")
    frames = [Patch(facecolor="white", edgecolor=colour, linewidth=1.8, label=label) for colour, label in kinds]
    figure.legend(handles=frames, loc="outside lower center", ncols=2)


def _require_images(samples: Tensor, indices: Tensor) -> None:
    if samples.ndim not in (3, 4) or indices.ndim != 2 or len(samples) != len(indices):
        raise InvalidInputError(
            f"images must be (t, H, W) or (t, C, H, W) with indices (t, k), got images {tuple(samples.shape)} and "
            f"indices {tuple(indices.shape)}."
        )


def _panels(t: int, k: int, attracting: int | None) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure and its axes, row by row: the sample's first; where signs stand apart, headings over them."""
    split = attracting is not None
    widths = [1.0] * (k + 1) if attracting is None else [1.0] * (attracting + 1) + [GAP] + [1.0] * (k - attracting)
    each = WIDTH / sum(widths) + 0.42
    figure = new_figure(0.1 + t * each + HEADING * split)
    heights = [HEADING] * split + [each] * t
    grid = figure.add_gridspec(len(heights), len(widths), width_ratios=widths, height_ratios=heights)
    columns = [place for place, width in enumerate(widths) if width == 1.0]
    if attracting is not None:
        for place, words, colour in (
            (0, "test", INK),
            (1, "attract most", ATTRACTIVE),
            (attracting + 2, "repel most", REPULSIVE),
        ):
            ax = figure.add_subplot(grid[0, place])
            ax.axis("off")
            ax.text(0, 0.5, words, color=colour, fontweight="bold", va="center").set_in_layout(False)
    rows = range(split, t + split)
    return figure, [[figure.add_subplot(grid[row, column]) for column in columns] for row in rows]


def _settle(figure: Figure) -> None:
    """Lay out for good: over columns of unequal width the solver differs in the last digit from call to call."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        x, y, width, height = ax.get_position(original=True).bounds
        ax.set_position((round(x, 6), round(y, 6), round(width, 6), round(height, 6)))


def _draw(ax: Axes, image: Tensor, title: str, colour: str, size: float = 9, frame: float = 2.5) -> None:
    ax.imshow(_pixels(image), cmap="gray", interpolation="nearest")
    ax.set_title(title, fontsize=size, pad=3)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(visible=True, edgecolor=colour, linewidth=frame)


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
