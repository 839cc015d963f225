"""An encoder of a run trained again, by the run's own recipe, on some of its training samples."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from krepes.encoders.losses import Loss
from krepes.encoders.recording import Recording
from krepes.encoders.training import mix
from krepes.errors import InvalidInputError
from krepes.influence import How
from krepes.runs.adapting import has_weights
from krepes.runs.augment import LOOKED_AT, augmentation
from krepes.runs.encoder import record_encoder, train_encoder
from krepes.runs.losses import is_own_loss, require_loss
from krepes.runs.recipe import Recipe
from krepes.runs.workspace import Workspace
from krepes.views import Augmentation, ViewStream


def require_recipe(space: Workspace) -> Recipe:
    """Return how the encoder of a run was trained, or refuse before any work if it cannot be trained again.

    Args:
        space: The run.

    Returns:
        The recipe.

    Raises:
        InvalidInputError: If the run has a kernel without a network, weights or an encoder of unknown training, or
            weights that were trained on other samples than those of the run.
    """
    recipe = _recipe(space)
    if recipe.stream:
        found = training_stream(space, torch.arange(len(space.train)), recipe.settings.seed).fingerprint()
        if found != recipe.stream:
            raise InvalidInputError(
                f"the weights of this run were trained on other samples or views than those of the run (fingerprints "
                f"{recipe.stream[:12]} and {found[:12]}). Pretrain and fit with the same data, --seed, --holdout and "
                f"--max-rows."
            )
    return recipe


def _recipe(space: Workspace) -> Recipe:
    """Return the recipe of a run if anybody knows it."""
    if space.recipe is not None:
        return space.recipe
    if not isinstance(space.model.kernel, nn.Module):
        raise InvalidInputError(
            f"this run has the kernel {space.settings.kernel!r} and no encoder: there is no training to repeat. Fit a "
            f"run with an encoder."
        )
    if not has_weights(space.settings):
        raise InvalidInputError(
            "this run was opened with an encoder that is already built: fresh weights cannot be drawn for it. Name its "
            "factory, --encoder module:factory (in Python: encoder='module:factory')."
        )
    given = space.settings.weights or space.settings.encoder
    raise InvalidInputError(
        f"this run was fitted from weights, {given}, that do not say how they were trained, so the "
        f"training cannot be repeated. Fit it with weights that `krepes pretrain` wrote, or without --weights."
    )


def training_views(space: Workspace) -> Augmentation:
    """Return the augmentation that the encoder of a run was trained with."""
    settings = _recipe(space).settings
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
    batch_size = _recipe(space).settings.batch_size
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
    stream = training_stream(space, places, seed)
    return train_encoder(replace(_recipe(space).settings, seed=seed), space.data, stream, progress=progress).encoder


def recordings(space: Workspace, members: int = 1) -> tuple[tuple[Recording, ...], ViewStream]:
    """Return what a replay of a run's training needs: nothing is trained, first weights follow from the seeds.

    Args:
        space: The run.
        members: Trainings to replay: that of the run, and others by its recipe with seeds of their own.

    Returns:
        The recordings, and the views that all of them saw.
    """
    stream = training_stream(space, torch.arange(len(space.train)), require_recipe(space).settings.seed)
    return tuple(recording(space, stream, member) for member in range(members)), stream


def recording(space: Workspace, stream: ViewStream, member: int) -> Recording:
    """Return the recording of one member on the training's views: the run's own is the first, 0."""
    settings = _recipe(space).settings
    seed = mix(settings.seed, 2, member) if member else settings.seed
    return record_encoder(replace(settings, seed=seed), space.data, stream)


def training_loss(space: Workspace) -> str | Loss:
    """Return the loss that the encoder of a run was trained by, or that its settings name where nobody knows."""
    settings = space.settings if space.recipe is None else space.recipe.settings
    loss = require_loss(settings)
    return loss if loss is not None and (settings.loss_options or is_own_loss(settings)) else settings.training_loss


def how_to_replay(space: Workspace, method: str, *, members: int, seconds: float) -> tuple[How, ViewStream]:
    """Return what influence by a method needs of a run beside its model.

    Args:
        space: The run.
        method: As `krepes.influence.influence_of` takes it.
        members: Trainings that a replay averages.
        seconds: What ``"auto"`` may take.

    Returns:
        Loss and, where they are wanted and can be made, recordings; and the stream to pass over. ``"auto"`` is offered
        recordings if they saw the very views of the fit, for it may end at the surrogate.
    """
    how = How(loss=training_loss(space), seconds=seconds)
    recipe = space.recipe
    alike = recipe is not None and recipe.stream in {"", space.stream.fingerprint()}
    if method == "replay" or (method == "auto" and alike):
        found, stream = recordings(space, members)
        return replace(how, recordings=found), stream
    return how, space.stream
