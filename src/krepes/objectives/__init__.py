"""The self-supervised objectives, one file each, and the table of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from krepes import registry
from krepes.errors import InvalidInputError
from krepes.objectives.barlow_twins import BarlowTwins
from krepes.objectives.base import MomentObjective, Objective, RowObjective
from krepes.objectives.byol import BYOL
from krepes.objectives.custom import InnerOuter, LeastSquares
from krepes.objectives.kae import KernelAutoencoder
from krepes.objectives.kpca import KernelPCA
from krepes.objectives.simclr import SimCLR
from krepes.objectives.simple import SimpleContrastive
from krepes.objectives.spectral import SpectralContrastive
from krepes.objectives.triplets import SpectralTriplets
from krepes.objectives.vicreg import VICReg

__all__ = [
    "BYOL",
    "OBJECTIVES",
    "BarlowTwins",
    "InnerOuter",
    "KernelAutoencoder",
    "KernelPCA",
    "LeastSquares",
    "MomentObjective",
    "Objective",
    "RowObjective",
    "SimCLR",
    "SimpleContrastive",
    "SpectralContrastive",
    "SpectralTriplets",
    "VICReg",
    "make_objective",
]

OBJECTIVES: dict[str, Callable[..., Objective[Any]]] = registry.loaded(registry.OBJECTIVES)
"""Objectives by name, built with their default settings."""


def make_objective(objective: str | dict[str, Any] | Objective[Any]) -> Objective[Any]:
    """Return the objective, made with its default settings if only its name is given.

    Args:
        objective: A key of `OBJECTIVES`, what an objective's ``describe`` returned, or an objective.

    Returns:
        The objective.

    Raises:
        InvalidInputError: If the name is unknown.
    """
    if isinstance(objective, Objective):
        return objective
    settings = {"name": objective} if isinstance(objective, str) else dict(objective)
    name = settings.pop("name")
    if name not in OBJECTIVES:
        raise InvalidInputError(f"objective={name!r} is unknown: choose one of {sorted(OBJECTIVES)}.")
    return OBJECTIVES[name](**settings)
