"""Drawn pictures with a planted truth: a boat, a car, a house or a tree, mostly before the ground where it belongs.

    object      uniform over 4                                   what a person would sort by
    ground      that of the object with probability strength, else any of the four      what is easy to see
    colour      of the object, independent of both

An encoder that was never told what matters may sort by the ground: then a boat on a meadow lies with the houses. The
pictures are made by this file and stand under the licence of the package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from krepes._checks import require_range

OBJECTS = ("boat", "car", "house", "tree")
GROUNDS = ("sea", "road", "snow", "meadow")
COLOURS = {"red": (200, 48, 44), "yellow": (232, 186, 40), "violet": (122, 66, 160), "white": (240, 238, 232)}
SKIES = {"sea": (178, 214, 236), "road": (206, 208, 214), "snow": (214, 226, 240), "meadow": (190, 222, 244)}
EARTHS = {"sea": (26, 92, 150), "road": (86, 86, 92), "snow": (244, 247, 250), "meadow": (82, 150, 62)}
SIDE, FINE = 32, 4
"""Pixels of a picture, and by how much larger it is drawn before it is made smooth."""
Point = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Drawings:
    """Pictures and what is on them.

    Attributes:
        X: ``(n, 3, 32, 32)``, float32 between 0 and 1.
        frame: Columns ``object``, ``ground`` and ``colour``.
    """

    X: Tensor
    frame: pd.DataFrame


def drawings(n: int, *, seed: int = 0, strength: float = 0.7) -> Drawings:
    """Return ``n`` drawn pictures.

    Args:
        n: Pictures, at least 2.
        seed: Another seed draws others.
        strength: Probability that an object stands before its own ground; otherwise before any of the four.

    Returns:
        The pictures.

    Example:
        >>> found = drawings(8, seed=1)
        >>> tuple(found.X.shape), found.frame.columns.tolist()
        ((8, 3, 32, 32), ['object', 'ground', 'colour'])
    """
    require_range(n, "n", low=2)
    require_range(strength, "strength", low=0.0, high=1.0)
    rng = np.random.default_rng(seed)
    thing = rng.integers(4, size=n)
    place = np.where(rng.random(n) < strength, thing, rng.integers(4, size=n))
    frame = pd.DataFrame({
        "object": [OBJECTS[i] for i in thing],
        "ground": [GROUNDS[i] for i in place],
        "colour": rng.choice(list(COLOURS), size=n),
    })
    rows = zip(frame["object"], frame["ground"], frame["colour"], strict=True)
    pixels = np.stack([_drawn(what, where, colour, rng) for what, where, colour in rows])  # (n, 32, 32, 3)
    noisy = pixels / 255.0 + rng.normal(0.0, 0.02, size=pixels.shape)
    return Drawings(torch.from_numpy(noisy.clip(0, 1)).permute(0, 3, 1, 2).float().contiguous(), frame)


def _drawn(what: str, where: str, colour: str, rng: np.random.Generator) -> np.ndarray:
    """Return one picture, ``(32, 32, 3)``, 0 to 255."""
    side = SIDE * FINE
    image = Image.new("RGB", (side, side), _shade(SKIES[where], rng))
    pen = ImageDraw.Draw(image)
    horizon = side * rng.uniform(0.5, 0.62)
    pen.rectangle((0, horizon, side, side), fill=_shade(EARTHS[where], rng))
    _texture(pen, where, horizon, rng)
    size, x = side * rng.uniform(0.36, 0.5), side * rng.uniform(0.36, 0.64)
    _object(pen, what, x, horizon + 0.22 * size, size, _shade(COLOURS[colour], rng))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float64)


def _shade(rgb: tuple[int, int, int], rng: np.random.Generator) -> tuple[int, int, int]:
    light = rng.uniform(0.9, 1.08)
    red, green, blue = (int(min(255, max(0, light * value))) for value in rgb)
    return red, green, blue


def _texture(pen: ImageDraw.ImageDraw, where: str, horizon: float, rng: np.random.Generator) -> None:
    """Draw waves, the middle line of a road, drifts or grass."""
    side = SIDE * FINE
    for _ in range(14):
        x, y = rng.uniform(0, side), rng.uniform(horizon, side)
        if where == "sea":
            pen.arc((x - 9, y - 3, x + 9, y + 5), 200, 340, fill=(150, 196, 226), width=2)
        elif where == "snow":
            pen.ellipse((x - 12, y - 2, x + 12, y + 3), fill=(222, 230, 240))
        elif where == "meadow":
            pen.line((x, y, x + rng.uniform(-3, 3), y - 8), fill=(48, 112, 40), width=2)
    if where == "road":
        y = (horizon + 3 * side) / 4
        for x in range(-20, side, 40):
            pen.rectangle((x, y, x + 22, y + 4), fill=(236, 226, 170))


def _object(
    pen: ImageDraw.ImageDraw, what: str, x: float, foot: float, size: float, fill: tuple[int, int, int]
) -> None:
    """Draw an object of a size, whose foot stands at ``(x, foot)``."""

    def at(*points: Point) -> list[Point]:
        return [(x + size * u, foot - size * v) for u, v in points]

    dark, wood = (52, 50, 56), (110, 74, 44)
    if what == "boat":
        pen.polygon(at((-0.55, 0.25), (0.55, 0.25), (0.38, 0.0), (-0.38, 0.0)), fill=wood)
        pen.line(at((0.0, 0.25), (0.0, 1.0)), fill=dark, width=4)
        pen.polygon(at((0.04, 0.98), (0.04, 0.33), (0.5, 0.33)), fill=fill)
    elif what == "car":
        pen.rectangle([*at((-0.6, 0.38))[0], *at((0.6, 0.1))[0]], fill=fill)
        pen.polygon(at((-0.32, 0.38), (-0.2, 0.64), (0.2, 0.64), (0.34, 0.38)), fill=fill)
        pen.polygon(at((-0.2, 0.4), (-0.13, 0.58), (0.14, 0.58), (0.22, 0.4)), fill=(190, 220, 236))
        for u in (-0.34, 0.34):
            pen.ellipse([*at((u - 0.14, 0.24))[0], *at((u + 0.14, -0.04))[0]], fill=dark)
    elif what == "house":
        pen.rectangle([*at((-0.4, 0.5))[0], *at((0.4, 0.0))[0]], fill=fill)
        pen.polygon(at((-0.52, 0.5), (0.0, 0.95), (0.52, 0.5)), fill=(124, 58, 44))
        pen.rectangle([*at((-0.1, 0.28))[0], *at((0.1, 0.0))[0]], fill=dark)
    else:
        pen.rectangle([*at((-0.07, 0.4))[0], *at((0.07, 0.0))[0]], fill=wood)
        pen.ellipse([*at((-0.4, 1.05))[0], *at((0.4, 0.3))[0]], fill=(38, 100, 52))
        for u, v in ((-0.2, 0.6), (0.16, 0.78), (0.2, 0.5)):
            pen.ellipse([*at((u - 0.07, v + 0.07))[0], *at((u + 0.07, v - 0.07))[0]], fill=fill)
