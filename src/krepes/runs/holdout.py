"""Which samples are fitted, and which are kept to be explained."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings


def split(n: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Return training rows of ``range(n)``, shuffled, and held-out rows, sorted; at least one of each.

    Shuffled, because objectives that compare the samples of a batch take them in order: a folder sorted by class would
    give batches of one class.

    Args:
        n: Number of samples.
        settings: Their ``seed``, ``max_rows`` and ``holdout``.

    Returns:
        Two vectors of rows.

    Raises:
        InvalidInputError: If there are fewer than two samples.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(settings.seed))[: settings.max_rows]
    if len(order) < 2:
        raise InvalidInputError(
            f"{settings.data} has {n} sample: at least 2 are required, one to fit and one to explain."
        )
    held = min(max(1, round(len(order) * settings.holdout)), len(order) - 1)
    return order[held:], order[:held].sort().values
