"""The loss that some settings train by: a name of this package, or ``module:function`` of the user's own.

Naming a function of one's own imports its module, which runs code. A fit and a pretraining do so, for their user named
it; opening a run that names one asks for trust first (`krepes.runs.opening`).
"""

from __future__ import annotations

import hashlib
import inspect

import torch
from torch import Tensor

from krepes import registry
from krepes.data.files import foreign
from krepes.data.values import shown
from krepes.encoders.factory import imported
from krepes.encoders.losses import Loss
from krepes.encoders.pretrain import chosen_loss
from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings, flag
from krepes.runs.texts import imports_code

SHAPE = (
    "A loss is a function (Z_a, Z_b, w=None) of two projections (b, h) that returns one finite number; w are row "
    "weights (b,), which causes need."
)
FEW = 8
"""Rows of the projections that a loss is tried on."""


def is_own_loss(settings: Settings) -> bool:
    """Say whether some settings train by a function that their user wrote."""
    return ":" in settings.training_loss


def code_named_by(settings: Settings) -> list[str]:
    """Return the ``module:name`` of encoder, loss and tokenizer that some settings would import, or nothing."""
    encoder = settings.encoder
    own = [encoder] if encoder is not None and ":" in encoder and registry.adapter(encoder) is None else []
    own += [settings.training_loss] if is_own_loss(settings) else []
    return own + ([str(settings.tokenizer)] if imports_code(settings) else [])


def named_loss(settings: Settings) -> str | Loss:
    """Return the loss of some settings, without its options.

    Args:
        settings: Whose ``loss`` may be ``module:function``; the module may lie in the current directory.

    Returns:
        A name of this package, or the function.

    Raises:
        InvalidInputError: If there is no such function.
    """
    name = settings.training_loss
    if not is_own_loss(settings):
        return name
    found = imported(name)
    if not callable(found):
        raise InvalidInputError(f"{flag('loss')}: {shown(name)} is a {type(found).__name__}. {SHAPE}")
    return found


def require_loss(settings: Settings) -> Loss | None:
    """Return the loss with its options filled in, or refuse one that does not exist, take them or give a number."""
    loss = chosen_loss(named_loss(settings), settings.loss_options)
    if loss is not None and is_own_loss(settings):
        _require_number(loss, settings)
    return loss


def _require_number(loss: Loss, settings: Settings) -> None:
    """Refuse a loss that cannot be called with two projections, or gives no finite scalar that can be followed back."""
    name, width = shown(settings.training_loss), settings.projector[-1] if settings.projector else 0
    try:
        inspect.signature(loss).bind(None, None)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{flag('loss')}: {name} cannot be called with two projections ({error}). {SHAPE}"
        ) from error
    if not settings.projector:
        return  # nobody knows yet how wide the embedding is, and a loss may want that width
    draw = torch.Generator().manual_seed(0)
    Z_a, Z_b = (torch.randn(FEW, width, generator=draw).requires_grad_() for _ in range(2))
    with foreign(f"{flag('loss')}: {name} failed on two projections of {FEW} rows and {width} columns", SHAPE):
        value = loss(Z_a, Z_b)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.isfinite().all() or not value.requires_grad:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        told = " that is not finite, or has no gradient" if isinstance(value, Tensor) and value.numel() == 1 else ""
        raise InvalidInputError(f"{flag('loss')}: {name} returned {got}{told}. {SHAPE}")


def code_of_loss(settings: Settings) -> str:
    """Return the hash of the module that some settings take their own loss from; empty where its text is not known."""
    module = inspect.getmodule(named_loss(settings))
    try:
        text = "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):  # no file, such as a notebook's
        text = ""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
