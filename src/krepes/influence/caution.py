"""What was measured against an answer about causes: where a rung predicted little of what retraining did.

Figures are those of ``docs/findings.md``: rank correlations with retrained halves, and what repeated retraining itself
could reach. A proof of one's own run (``krepes prove``) says more than any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from krepes.encoders.losses import Loss
from krepes.encoders.pretrain import BYOL
from krepes.engine.init import ENCODER
from krepes.errors import InvalidInputError
from krepes.objectives import VICReg

NORMS = nn.modules.batchnorm._BatchNorm
TESTED = {
    "lazy": "lazy 0.06 to 0.12 of a possible 0.32 to 0.39 on margins, 0.13 to 0.31 of 0.34 to 0.49 on pairs",
    "warm": "warm 0.10 to 0.22 of a possible 0.32 to 0.39 on margins, 0.15 to 0.28 of 0.34 to 0.49 on pairs",
    "replay": "lazy and warm replays reached 0.2 to 0.7 of what can be known, that of a training was not tried",
}
"""What CIFAR-10 showed of each rung, by Barlow Twins, VICReg and SimCLR."""


def of_surrogate(objective: Any, init: str) -> str | None:
    """Return where the influence of rows through the kernel model predicted no retraining, and what did, or ``None``.

    Args:
        objective: The loss.
        init: Where the model starts.

    Returns:
        What to know of BYOL and VICReg; nothing is known against the others.
    """
    if objective.name == BYOL:
        return (
            "the influence of rows on BYOL through the kernel model predicted nothing of retrained halves in four "
            "studies (at most 0.1). Use the method warm, which predicted 0.2 to 0.3 in three of them."
        )
    if not isinstance(objective, VICReg):
        return None
    trained = objective.inv_reduction == "nh"
    if trained and init == ENCODER:
        return None
    why = (
        "started at principal components it predicted 0.12 and 0.29 of margins, but 0.10 and 0.10 of pairs"
        if trained
        else "with inv_reduction='n' the invariance weighs h times as much as in the loss that encoders are trained "
        "with, and from any start it predicted nothing (at most 0.07)"
    )
    return (
        f"the influence of rows on VICReg through the kernel model was tested by retraining on digits and MNIST: {why} "
        f"of a possible 0.57 and 0.79. Use inv_reduction 'nh' and var_halved of VICReg with init 'encoder' (0.16 and "
        f"0.31, pairs 0.20 and 0.21), or the method lazy or warm, which replay the loss of the training."
    )


def require_prediction(objective: Any, init: str, asked_by: str) -> None:
    """Refuse the influence of rows through the kernel model where it predicted nothing from any start.

    Args:
        objective: The loss.
        init: Where the model starts.
        asked_by: What asked for it, such as a flag.

    Raises:
        InvalidInputError: With what was measured, and what to use instead.
    """
    if isinstance(objective, VICReg) and objective.inv_reduction != "nh":
        raise InvalidInputError(f"{asked_by}: {of_surrogate(objective, init)}")


def of_replay(encoder: nn.Module, loss: str | Loss, method: str) -> str | None:
    """Return where replays predicted little, or ``None`` where nothing is known against them.

    Args:
        encoder: What is replayed.
        loss: Of its training.
        method: The rung: ``"lazy"``, ``"warm"`` or ``"replay"``.

    Returns:
        What to know of batch norms among convolutions, and of BYOL.
    """
    parts = list(encoder.modules())
    if any(isinstance(part, NORMS) for part in parts) and any(isinstance(part, nn.Conv2d) for part in parts):
        return (
            f"of convolutions with batch norm little was predicted where it was tested, on CIFAR-10: {TESTED[method]}. "
            f"Take such rows for suspects, not for causes, until retraining has spoken"
        )
    if loss == BYOL:
        sizes = "" if method == "replay" else ", and sizes came out several times too small"
        return f"under BYOL two trainings on the same rows agree little (a possible 0.2 to 0.4){sizes}"
    return None


def beside_a_proof(details: Mapping[str, Any]) -> str:
    """Return how an answer differs from those that ``krepes prove`` judges, or nothing.

    Args:
        details: Of the influence.

    Returns:
        One sentence, or an empty text.
    """
    why = details.get("no rewinds")
    return "" if why is None else f"What retraining judges is a warm replay with its rewinds; this one has none: {why}."
