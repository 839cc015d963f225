"""How much data and work a reproduction takes."""

from __future__ import annotations

from dataclasses import dataclass

from krepes.errors import InvalidInputError


@dataclass(frozen=True)
class Scale:
    """Sizes of a reproduction; `krepes.reproduce.recipes` has those of the encoders.

    Attributes:
        name: On the command line.
        seeds: Repetitions: each draws its own rows, weights, views and landmarks.
        m: Landmarks.
        h: Embedding dimension.
        wide: Embedding dimension of the targets that take many, as the paper's 250.
        test: Test samples that an audit looks at, at most.
        rows: Training rows that a kernel model is fitted on, at most.
        images: Training images that a kernel model of a convolutional encoder is fitted on, at most.
        streamed: Training rows that an objective without moments (SimCLR, BYOL) is fitted on, at most.
        halves: Random halves of the training rows to retrain on, of an intervention.
        retrainings: Encoders trained on each half.
    """

    name: str
    seeds: int
    m: int
    h: int
    wide: int
    test: int
    rows: int
    images: int
    streamed: int
    halves: int
    retrainings: int


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "quick",
            seeds=1,
            m=200,
            h=32,
            wide=64,
            test=1_000,
            rows=4_000,
            images=1_500,
            streamed=1_500,
            halves=20,
            retrainings=2,
        ),
        Scale(
            "standard",
            seeds=3,
            m=400,
            h=64,
            wide=128,
            test=3_000,
            rows=10_000,
            images=2_000,
            streamed=2_000,
            halves=60,
            retrainings=2,
        ),
        Scale(
            "full",
            seeds=3,
            m=1_000,
            h=250,
            wide=250,
            test=1_000_000,
            rows=10_000_000,
            images=1_000_000,
            streamed=1_000_000,
            halves=150,
            retrainings=4,
        ),
    )
}
"""Sizes by name."""


def find_scale(name: str) -> Scale:
    """Return the scale of a name.

    Args:
        name: As on the command line.

    Returns:
        The scale.

    Raises:
        InvalidInputError: If there is none.
    """
    if name not in SCALES:
        raise InvalidInputError(f"scale={name!r} is unknown: choose one of {', '.join(SCALES)}.")
    return SCALES[name]
