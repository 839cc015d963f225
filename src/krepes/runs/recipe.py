"""How the encoder of a run was trained: the settings that train it again, kept behind its weights and in its run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from krepes import registry
from krepes.errors import InvalidInputError
from krepes.runs.adapting import has_weights
from krepes.runs.settings import Settings
from krepes.storage.tensorfile import read_header

logger = logging.getLogger("krepes")
RECIPE = "recipe.json"


@dataclass(frozen=True)
class Recipe:
    """What a training can be made again from: first weights, order and views all follow from the seed.

    Attributes:
        settings: Encoder, loss, schedule and views of the training.
        stream: Fingerprint of the views it saw, by which other data are refused; empty if it is not known.
    """

    settings: Settings
    stream: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"settings": self.settings.to_dict(), "stream": self.stream}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Recipe:
        """Return a recipe from what `to_dict` gave.

        Args:
            values: Plain values, perhaps of a file that others wrote.
            source: The file, for messages.

        Returns:
            The recipe.

        Raises:
            InvalidInputError: If they are no recipe.
        """
        settings, stream = values.get("settings"), values.get("stream")
        if not isinstance(settings, Mapping) or not isinstance(stream, str):
            raise InvalidInputError(f"{source} holds no recipe of a training of ours. Pretrain again.")
        return cls(Settings.from_dict(settings, source), stream)


def on_the_spot(settings: Settings) -> bool:
    """Say whether a fit of some settings trains its encoder itself."""
    return not has_weights(settings) and settings.kernel not in registry.KERNELS


def recipe_of(settings: Settings) -> Recipe | None:
    """Return how the encoder of a fit comes to be trained.

    Args:
        settings: Of the fit.

    Returns:
        The settings themselves if the encoder is trained on the spot; what `krepes pretrain` left in the header of the
        weights, with the encoder that the settings name; ``None`` for other weights and for kernels.

    Raises:
        InvalidInputError: If the weights were trained by a loss of their user's own, and the settings name none.
    """
    if on_the_spot(settings):
        return Recipe(settings)
    if settings.weights is None or settings.kernel in registry.KERNELS:
        return None
    left = read_header(settings.weights).get("recipe")
    if not isinstance(left, Mapping):
        return None
    try:
        found = Recipe.from_dict(left, settings.weights)
    except InvalidInputError as error:
        logger.warning("the recipe in %s cannot be used: %s", settings.weights, error)
        return None
    # A file may say how weights were trained, but not which code to import: encoder and own loss are those of the fit.
    own = replace(found.settings, encoder=settings.encoder, encoder_options=settings.encoder_options, weights=None)
    loss = own.training_loss
    if ":" in loss and settings.loss is None:
        raise InvalidInputError(
            f"{settings.weights} was trained by a loss of its user's own, {loss!r}. A file may not import code: name "
            f"the loss by --loss, this one if you trust it, or the one that replays shall follow."
        )
    return known_loss(replace(found, settings=own), settings)


def known_loss(recipe: Recipe, settings: Settings) -> Recipe | None:
    """Return a recipe, or nothing if it trains by code that the settings of the fit do not name.

    Args:
        recipe: As a file has it.
        settings: Of the fit, which its user gave.

    Returns:
        The recipe, or ``None``: nobody here can repeat the training.
    """
    loss = recipe.settings.training_loss
    if ":" not in loss or loss == settings.loss:
        return recipe
    logger.warning(
        "the encoder was trained by a loss of its user's own, %r, which a file may not import: without it nobody can "
        "repeat the training. If you trust it, name it in the fit: --loss.",
        loss,
    )
    return None
