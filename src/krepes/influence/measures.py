r"""Numbers of the embeddings of some samples, by torch operations, so that outcomes can be made of them.

spread            root mean square distance from the mean
group distance    mean over pairs of groups of |mean of one - mean of the other|, over the spread
class margin      mean cosine to the other samples of one's class minus that to the rest, about the mean embedding
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from krepes.errors import InvalidInputError


def spread(Z: Tensor) -> Tensor:
    """Return the root mean square distance of embeddings ``Z`` ``(t, d)`` from their mean, a scalar."""
    return (Z - Z.mean(0)).square().sum(1).mean().sqrt()


def relative_group_distance(Z: Tensor, codes: Tensor) -> Tensor:
    """Return how far the means of groups lie apart, over the spread; mean over pairs of groups.

    Args:
        Z: Embeddings, ``(t, d)``.
        codes: Group of each sample, ``(t,)``, numbers from zero without a gap, two groups or more.

    Returns:
        A scalar; zero if all groups have one mean, and it does not change with the scale of the embeddings.

    Example:
        >>> Z = torch.tensor([[0.0], [0.0], [2.0], [2.0]])
        >>> float(relative_group_distance(Z, torch.tensor([0, 0, 1, 1])))
        2.0
    """
    _require_several(codes, "groups")
    member = one_hot(codes).to(Z)
    means = (member.T @ Z) / member.sum(0)[:, None]
    i, j = torch.triu_indices(len(means), len(means), 1)
    return torch.linalg.vector_norm(means[i] - means[j], dim=1).mean() / spread(Z)


def class_margin(Z: Tensor, codes: Tensor) -> Tensor:
    """Return how much closer samples lie to others of their class than to the rest, as a mean difference of cosines.

    Args:
        Z: Embeddings, ``(t, d)``; cosines are taken about their mean.
        codes: Class of each sample, ``(t,)``, numbers from zero without a gap, two classes or more.

    Returns:
        A scalar between -2 and 2; samples that are alone in their class do not count.
    """
    _require_several(codes, "classes")
    U = normalize(Z - Z.mean(0), dim=1)
    S, same = U @ U.T, (codes[:, None] == codes[None, :]).to(Z)
    others = same - torch.eye(len(Z), dtype=Z.dtype, device=Z.device)
    counted = others.sum(1) > 0
    inside = (S * others).sum(1) / others.sum(1).clamp(min=1)
    outside = (S * (1 - same)).sum(1) / (1 - same).sum(1)
    return (inside - outside)[counted].mean()


def _require_several(codes: Tensor, what: str) -> None:
    found = int(codes.max()) + 1 if len(codes) else 0
    if found < 2:
        raise InvalidInputError(f"there are {found} {what} among {len(codes)} samples: at least two are required.")
