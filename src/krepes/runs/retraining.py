"""An encoder of a run trained again, by the run's own recipe, on some of its training samples."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from krepes.encoders import PretrainResult
from krepes.errors import InvalidInputError
from krepes.runs.augment import LOOKED_AT, augmentation
from krepes.runs.encoder import train_encoder
from krepes.runs.recipe import Recipe
from krepes.runs.workspace import Workspace
from krepes.views import Augmentation, ViewStream


def require_recipe(space: Workspace) -> Recipe:
    """Return how the encoder of a run was trained, or refuse before any work if nobody knows.

    Args:
        space: The run.

    Returns:
        The recipe.

    Raises:
        InvalidInputError: If the run has a kernel without a network, or weights or an encoder of unknown training.
    """
    if space.recipe is not None:
        return space.recipe
    if not isinstance(space.model.kernel, nn.Module):
        raise InvalidInputError(
            f"this run has the kernel {space.settings.kernel!r} and no encoder: there is no training to repeat. Fit a "
            f"run with an encoder."
        )
    if space.settings.weights is None:
        raise InvalidInputError(
            "this run was opened with an encoder that is already built: fresh weights cannot be drawn for it. Name its "
            "factory, --encoder module:factory (in Python: encoder='module:factory')."
        )
    raise InvalidInputError(
        f"this run was fitted from weights, {space.settings.weights}, that do not say how they were trained, so the "
        f"training cannot be repeated. Fit it with weights that `krepes pretrain` wrote, or without --weights."
    )


def training_views(space: Workspace) -> Augmentation:
    """Return the augmentation that the encoder of a run was trained with."""
    settings = require_recipe(space).settings
    return augmentation(settings, space.data, space.data.take(space.train[:LOOKED_AT]))


def training_stream(space: Workspace, places: Tensor, seed: int) -> ViewStream:
    """Return the views that a training on some training samples sees.

    Args:
        space: The run.
        places: Of the samples in the stream of the run, ``(b,)``.
        seed: Of the views.

    Returns:
        The stream, in batches of the training.
    """
    batch_size = require_recipe(space).settings.batch_size
    samples = space.data.part(space.train[places])
    return ViewStream(samples, training_views(space), seed=seed, batch_size=batch_size)


def retrained(space: Workspace, places: Tensor, seed: int, *, progress: bool = False) -> nn.Module:
    """Train the encoder of a run again on some of its training samples, by the run's own recipe.

    Args:
        space: The run.
        places: Of the samples in the stream of the run, ``(b,)``; their order decides that of the batches.
        seed: Of first weights, order and views. The same places and seed give the same weights.
        progress: Show a bar.

    Returns:
        The encoder, in eval mode. What `require_recipe` refuses is refused here too.
    """
    return trained_again(space, training_stream(space, places, seed), seed, progress=progress).encoder


def trained_again(
    space: Workspace, stream: ViewStream, seed: int, *, record: bool = False, progress: bool = False
) -> PretrainResult:
    """Return a training by the recipe of a run on a stream, with its recording if it is asked for."""
    settings = replace(require_recipe(space).settings, seed=seed)
    return train_encoder(settings, space.data, stream, record=record, progress=progress)
