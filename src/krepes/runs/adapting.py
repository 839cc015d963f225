"""Encoders of other packages in settings: what such a model says of its images stands in for what was not given."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from krepes import registry
from krepes.runs.settings import Settings

if TYPE_CHECKING:
    from krepes.encoders.adapters.adapted import Source

logger = logging.getLogger("krepes")


def source_of(settings: Settings) -> tuple[Source, str] | None:
    """Return the package that settings take their encoder from, and the name there; or ``None``."""
    found = registry.adapter(settings.encoder)
    return None if found is None else (registry.load(registry.ADAPTERS[found[0]]), found[1])


def has_weights(settings: Settings) -> bool:
    """Say whether weights are given: as a file, or in the folder that the encoder is named by."""
    found = registry.adapter(settings.encoder)
    return settings.weights is not None or (found is not None and found[0] in registry.WITH_WEIGHTS)


def adapter_options(settings: Settings) -> dict[str, Any]:
    """Return the arguments of an encoder of another package: its options, and the pooling that was asked for."""
    return {**settings.encoder_options, **({} if settings.output is None else {"output": settings.output})}


def completed(settings: Settings) -> Settings:
    """Return settings in which size, mean, deviation and pooling that were not given are those of the encoder.

    Args:
        settings: As given; what they say stays.

    Returns:
        The same, for an encoder of another package filled in, so that a run records what was used.
    """
    found = source_of(settings)
    if found is None:
        return settings
    source, name = found
    about = source.inputs(name, **settings.encoder_options)
    changes: dict[str, Any] = {} if settings.size is not None or about.size is None else {"size": about.size}
    if not settings.mean and about.mean:
        changes |= {"mean": about.mean, "std": about.std}
    if settings.output is None and source.output is not None:
        changes["output"] = source.output(name, **settings.encoder_options)
    if changes:
        logger.info("%s says: %s", settings.encoder, ", ".join(f"{key} {value}" for key, value in changes.items()))
    return replace(settings, **changes)
