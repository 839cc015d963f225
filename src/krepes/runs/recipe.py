"""How the encoder of a run was trained: the settings that train it again, kept behind its weights and in its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from krepes import registry
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings

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
    return settings.weights is None and settings.kernel not in registry.KERNELS
