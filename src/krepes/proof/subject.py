"""What a proof is about: rows, a recipe that trains encoders on some of them, and outcomes of samples held out.

Labels, where there are any, define one of the outcomes and nothing else: training, views and fits never see them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from krepes.attribution import Attribution, kernel_similarity
from krepes.batches import Batch
from krepes.encoders import PretrainResult
from krepes.encoders.call import call, cast, home
from krepes.encoders.losses import Loss
from krepes.kernels.base import Kernel
from krepes.model import Krepes
from krepes.views import ViewStream

MARGIN, NEIGHBOURS, PAIR = "margin", "pull of neighbours", "pair similarity"
"""Outcomes: a sample's cosine to its group in the reference minus that to the others, and the cosine of a pair. The
group is the sample's class, or its nearest neighbours by the encoder that is explained."""


class Subject(ABC):
    """The samples of a proof and how their encoders are trained.

    Attributes:
        test: ``(2t, ...)``: the first ``t`` have a margin, and sample ``i`` is compared with sample ``t + i``.
        reference: ``(r, ...)``, whose mean embedding is the origin.
        loss: Of the training: a name, or a function ``(Z_a, Z_b, w)``.
        seed: Of everything that is drawn.
        first: Name of the first outcome, `MARGIN` or `NEIGHBOURS`.
        lazy_draws: Passes of a lazy replay; ``None`` for those of `krepes.proof.scores`.
    """

    test: Any
    reference: Any
    loss: str | Loss
    seed: int
    first: str = MARGIN
    lazy_draws: int | None = None

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of training rows."""

    @property
    @abstractmethod
    def group(self) -> Tensor:
        """Which reference samples are of each test sample's group, ``(t, r)``."""

    @property
    @abstractmethod
    def same_class(self) -> Tensor | None:
        """Which rows have the class of each test sample, ``(n, t)``, or ``None`` without labels."""

    @abstractmethod
    def train(self, places: Tensor, seed: int) -> nn.Module:
        """Return an encoder trained on the rows ``places`` ``(b,)``; weights and views follow from ``seed``."""

    @abstractmethod
    def record(self, member: int) -> PretrainResult:
        """Return an encoder trained on all rows and its recording; each ``member`` has weights and views of its own."""

    @abstractmethod
    def stream(self, member: int) -> ViewStream:
        """Return the views that a member trained on all rows sees."""

    @abstractmethod
    def views(self) -> ViewStream:
        """Return the views of all rows that replays from the encoder see."""

    @abstractmethod
    def embedded(self, encoder: nn.Module) -> Tensor:
        """Return the embeddings of all rows, ``(n, d)``."""

    @abstractmethod
    def model(self, encoder: nn.Module) -> Krepes:
        """Return the fitted surrogate of an encoder, on some copies of the rows."""

    @abstractmethod
    def tangent(self, encoder: nn.Module, count: int) -> tuple[Kernel, Batch]:
        """Return the kernel and the landmark points, about ``count``, that an encoder is linearised with."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Return plain values that tell one subject from another, kept beside its retrained halves."""

    def kernel(self, model: Krepes, attribution: Attribution) -> Tensor:
        """Return the kernel of test samples and rows, ``(2t, n)``; here every row is a landmark, in order."""
        return kernel_similarity(attribution)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two outcomes."""
        return self.first, PAIR

    @property
    def t(self) -> int:
        """Outcomes of each kind."""
        return len(self.group)

    def outcomes(self, encoder: nn.Module) -> dict[str, Tensor]:
        """Return both outcomes ``(t,)`` of the embeddings by ``encoder``."""
        where = home(encoder)
        return self.measured(call(encoder, cast(self.test, *where)), call(encoder, cast(self.reference, *where)))

    def measured(self, Z_test: Tensor, Z_reference: Tensor) -> dict[str, Tensor]:
        """Return both outcomes ``(t,)`` of embeddings ``(2t, d)`` and ``(r, d)``."""
        return dict(zip(self.names, measure(Z_test, Z_reference, self.group), strict=True))


def measure(Z_test: Tensor, Z_reference: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Return both outcomes of embeddings; cosines are centred at the mean of the reference.

    Args:
        Z_test: ``(2t, d)``.
        Z_reference: ``(r, d)``.
        group: Which reference samples are of each sample's group, ``(t, r)``.

    Returns:
        Of each of the first ``t`` the mean cosine to the reference samples of its group minus that to the others; and
        the cosine of sample ``i`` and sample ``t + i``; ``(t,)`` each.
    """
    mean = Z_reference.mean(0)
    U, V = normalize(Z_test - mean, dim=1), normalize(Z_reference - mean, dim=1)
    first, second = U.chunk(2)
    same = group.to(U)
    weights = _shares(same) - _shares(1 - same)
    return (first @ V.T * weights).sum(1), (first * second).sum(1)


def nearest(Z_test: Tensor, Z_reference: Tensor, k: int) -> Tensor:
    """Return which ``k`` reference samples lie nearest to each of the first ``t``, ``(t, r)``, by centred cosine."""
    mean = Z_reference.mean(0)
    C = normalize(Z_test.chunk(2)[0] - mean, dim=1) @ normalize(Z_reference - mean, dim=1).T
    return torch.zeros_like(C, dtype=torch.bool).scatter(1, C.topk(k, dim=1).indices, True)


def _shares(chosen: Tensor) -> Tensor:
    """Return zeros and ones ``(t, r)`` as weights that sum to one in each line, or to zero where none is chosen."""
    return chosen / chosen.sum(1, keepdim=True).clamp(min=1.0)


def mixed(*numbers: int) -> int:
    """Return a seed that is as good as independent for each tuple of numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
