"""One look for all figures: colours that the colour-blind can tell apart, sizes that hold at 700 pixels, equal bytes.

matplotlib is imported when a figure is drawn and not before; no global state of pyplot is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from io import BytesIO
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from krepes.data.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito (2008): distinguishable with any of the common colour vision deficiencies.
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
# In place of their yellow, which fades on white.
OLIVE = "#8C7A00"
INK, GREY, PALE = "#222222", "#767676", "#D9D9D9"
ATTRACTIVE, REPULSIVE = GREEN, RED
SERIES = (BLUE, ORANGE, PURPLE, SKY, GREY, INK, OLIVE, GREEN, RED)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", ">", "<")

SPELLED = {
    "barlow_twins": "Barlow Twins",
    "vicreg": "VICReg",
    "simclr": "SimCLR",
    "byol": "BYOL",
    "spectral": "spectral",
    "kpca": "kernel PCA",
    "kae": "KAE",
    "adult": "Adult",
    "bank": "Bank",
    "covertype": "Covertype",
    "higgs": "HIGGS",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fairface": "FairFace",
}
"""How losses and data sets are written in the literature, by what they are called on the command line."""

WIDTH = 7.0
"""Inches: 700 pixels at 100 dots an inch."""

RC: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "krepes",
    "svg.fonttype": "none",
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Return ``draw`` run under the look of this package, whatever the user's matplotlib settings are."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(RC)
            return draw(*args, **kwargs)

    return wrapped


def new_figure(height: float) -> Figure:
    """Return an empty figure of the common width and a height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=100, layout="constrained")


@styled
def render(figure: Figure, *, format: str = "png", dpi: int = 200) -> bytes:
    """Return a figure as the bytes of a file, the same for the same figure: no date, no version, no random ids.

    Args:
        figure: What a function of this package returned.
        format: ``png``, ``svg`` or ``pdf``.
        dpi: Dots an inch; 200 makes 1400 pixels, sharp at 700.

    Returns:
        The content of the file.

    Example:
        >>> render(new_figure(1.0)) == render(new_figure(1.0))
        True
    """
    unwanted = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    content = BytesIO()
    figure.savefig(content, format=format, dpi=dpi, metadata={unwanted[format]: None}, facecolor="white")
    return content.getvalue()


def spelled(name: str) -> str:
    """Return the name of a loss or of a data set as the literature writes it, any other name as it is."""
    return SPELLED.get(name, name)


def fixed(values: Sequence[float]) -> list[str]:
    """Return numbers with their signs, a true minus, all to the same digit: the largest has three that count.

    Example:
        >>> fixed([0.0112, -0.00928])
        ['+0.0112', '−0.0093']
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    digits = max(0, 2 - math.floor(math.log10(largest))) if largest else 2
    form = f"+.{digits}f" if digits <= 6 else "+.2e"
    return [f"{value:{form}}".replace("-", "−") for value in values]


def shorten(value: object, length: int) -> str:
    """Return a value as text of at most ``length`` characters, to be drawn as it stands."""
    text = printable(f"{value:,.5g}" if isinstance(value, float) else value)
    return literal(text if len(text) <= length else text[: length - 1] + "…")


def literal(text: object) -> str:
    r"""Return text that matplotlib draws letter by letter, whatever it holds.

    Two dollar signs would make a formula of what lies between, and a legend leaves out what starts with an underscore.

    Example:
        >>> print(literal("$a_b$"), repr(literal("_hidden")))
        \$a_b\$ ' _hidden'
    """
    shown = printable(text, lines=True).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
