r"""The k-NN of deletion tests: who votes, and with which weight.

- ``uniform``: the k nearest by Euclidean distance, one vote each.
- ``weighted``: the k nearest by cosine, with weights exp(cos / T), T = 0.07, by which encoders are usually judged.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.errors import InvalidInputError

Vote = Literal["uniform", "weighted"]
"""How neighbours vote; see `VOTES`."""
VOTES: tuple[Vote, ...] = get_args(Vote)
"""Every way to vote."""
TEMPERATURE = 0.07
# Rows of distances held at once.
PIECE = 2048


def voters(E_test: Tensor, E_landmarks: Tensor, k: int, *, vote: Vote = "uniform") -> tuple[Tensor, Tensor]:
    """Return the ``k`` nearest landmarks of each sample, nearest first, and the weights of their votes.

    Args:
        E_test: Embeddings of the samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        k: Neighbours, at most ``m``.
        vote: One of `VOTES`.

    Returns:
        Indices and weights, ``(t, k)`` each.

    Raises:
        InvalidInputError: If an embedding is not finite, or nobody votes like that.
    """
    if vote not in VOTES:
        raise InvalidInputError(f"vote={vote!r} is unknown: choose one of {', '.join(VOTES)}.")
    require_finite(E_test, "the test embeddings")
    require_finite(E_landmarks, "the landmark embeddings")
    found = [_voters(E, E_landmarks.double(), k, vote) for E in E_test.double().split(PIECE)]
    near, weights = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    return near, weights


def _voters(E: Tensor, E_landmarks: Tensor, k: int, vote: Vote) -> tuple[Tensor, Tensor]:
    if vote == "uniform":
        near = torch.cdist(E, E_landmarks).topk(k, dim=1, largest=False).indices
        return near, torch.ones(near.shape, dtype=torch.float64)
    cosine = torch.nn.functional.normalize(E, dim=1) @ torch.nn.functional.normalize(E_landmarks, dim=1).T
    top = cosine.topk(k, dim=1)
    return top.indices, torch.exp((top.values - top.values[:, :1]) / TEMPERATURE)


def shares(found: Tensor, weights: Tensor, classes: int) -> Tensor:
    """Return the share of each class in the votes, ``(t, classes)``.

    Args:
        found: Classes of the neighbours, ``(t, k)``.
        weights: Of their votes, ``(t, k)``; zero where a neighbour does not vote.
        classes: Number of classes.

    Returns:
        Shares that sum to one.
    """
    votes = torch.zeros(len(found), classes, dtype=torch.float64).scatter_add_(1, found, weights)
    return votes / weights.sum(1, keepdim=True)
