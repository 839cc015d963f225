"""The loss that some settings train by: a name of this package, or ``module:function`` of the user's own.

Naming a function of one's own imports its module, which runs code. A fit and a pretraining do so, for their user named
it; opening a run that names one asks for trust first (`krepes.runs.opening`).
"""

from __future__ import annotations

import inspect

from krepes.data.values import shown
from krepes.encoders.factory import imported
from krepes.encoders.losses import Loss
from krepes.encoders.pretrain import chosen_loss
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings, flag


def is_own_loss(settings: Settings) -> bool:
    """Say whether some settings train by a function that their user wrote."""
    return ":" in settings.training_loss


def named_loss(settings: Settings) -> str | Loss:
    """Return the loss of some settings, without its options.

    Args:
        settings: Whose ``loss`` may be ``module:function``; the module may lie in the current directory.

    Returns:
        A name of this package, or the function.

    Raises:
        InvalidInputError: If there is no such function, or it cannot be called with two projections.
    """
    name = settings.training_loss
    if not is_own_loss(settings):
        return name
    found = imported(name)
    try:
        inspect.signature(found).bind(None, None)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{flag('loss')}: {shown(name)} cannot be called with two projections Z_a, Z_b ({error}). Name a function "
            f"(Z_a, Z_b, w) that returns a scalar; w are row weights, which causes need."
        ) from error
    return found


def require_loss(settings: Settings) -> Loss | None:
    """Return the loss with its options filled in, or refuse one that does not exist or does not take them."""
    return chosen_loss(named_loss(settings), settings.loss_options)
