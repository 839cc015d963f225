"""Augmentations of rows of numbers ``(b, d)``: Gaussian noise, dropped features, SCARF corruption.

A categorical column that was one-hot encoded spans several of the d columns. ``groups`` names them, so that such a
feature is dropped or replaced as a whole and a view never shows half a category.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from krepes._checks import require_finite, require_range
from krepes.errors import InvalidInputError
from krepes.views.base import Augmentation
from krepes.views.noise import Noise

Groups = Sequence[Sequence[int]]
"""Column numbers of each feature that spans several columns; a column in no group is a feature of its own."""


def feature_of_column(d: int, groups: Groups) -> Tensor:
    """Return the feature number of each of ``d`` columns.

    Args:
        d: Columns.
        groups: Columns of each feature that spans several; columns in no group are features of their own.

    Returns:
        ``(d,)``, numbers from 0 without gaps: the groups first, in order, then the other columns.

    Raises:
        InvalidInputError: If a column is out of range or named twice.

    Example:
        >>> feature_of_column(5, groups=[[1, 2, 3]])
        tensor([1, 0, 0, 0, 2])
    """
    named = [column for group in groups for column in group]
    if len(set(named)) < len(named) or any(not 0 <= c < d for c in named) or not all(map(len, groups)):
        raise InvalidInputError(
            f"groups must name each column at most once, between 0 and {d - 1}, and none be empty, got "
            f"{[list(group) for group in groups]}. Each group lists the one-hot columns of one categorical feature."
        )
    feature = torch.full((d,), -1)
    for number, group in enumerate(groups):
        feature[list(group)] = number
    single = feature < 0
    feature[single] = len(groups) + torch.arange(int(single.sum()))
    return feature


def _require_rows(X: Tensor, name: str) -> None:
    if not isinstance(X, Tensor) or X.ndim != 2 or not X.is_floating_point():
        found = f"{tuple(X.shape)} {X.dtype}" if isinstance(X, Tensor) else type(X).__name__
        raise InvalidInputError(
            f"{name} takes rows of real numbers (b, d), got {found}. Encode and flatten the data first; "
            f"of a dict or tuple, name the fields to augment with OnFields."
        )


def _require_width(values: Tensor, d: int, what: str) -> None:
    if values.ndim > 0 and values.shape[-1] != d:
        raise InvalidInputError(f"{what} has {values.shape[-1]} columns, the samples have {d}. They must be the same.")


@dataclass(frozen=True, eq=False)
class GaussianNoise(Augmentation):
    """Add ``scale · ε`` with ``ε`` standard normal.

    Attributes:
        scale: One number, or one for each column ``(d,)``: zero leaves a column, such as a one-hot one, as it is.
    """

    scale: float | Tensor

    def __post_init__(self) -> None:
        """Refuse scales that are negative or not finite."""
        require_finite(torch.as_tensor(self.scale), "scale")
        require_range(float(torch.as_tensor(self.scale).min()), "scale", low=0.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return ``X + scale · ε``, ``(b, d)``."""
        _require_rows(X, "GaussianNoise")
        scale = torch.as_tensor(self.scale, dtype=X.dtype, device=X.device)
        _require_width(scale, X.shape[1], "scale")
        return X + scale * noise.normal("noise", X.shape[1], dtype=X.dtype)


@dataclass(frozen=True, eq=False)
class FeatureDrop(Augmentation):
    """Replace each feature, with probability ``rate``, by a value that says nothing.

    Attributes:
        rate: Probability that a feature is dropped, for each feature and sample on its own.
        fill: That value: zero, or the columns' means ``(d,)``.
        groups: Columns that are dropped together.
    """

    rate: float
    fill: float | Tensor = 0.0
    groups: Groups = ()

    def __post_init__(self) -> None:
        """Refuse a rate that is no probability."""
        require_range(self.rate, "rate", low=0.0, high=1.0)

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return ``X``, ``(b, d)``, with features dropped."""
        _require_rows(X, "FeatureDrop")
        feature = feature_of_column(X.shape[1], self.groups).to(X.device)
        fill = torch.as_tensor(self.fill, dtype=X.dtype, device=X.device)
        _require_width(fill, X.shape[1], "fill")
        dropped = noise.uniform("drop", int(feature.max()) + 1) < self.rate  # (b, M)
        return torch.where(dropped[:, feature], fill, X)


@dataclass(frozen=True, eq=False)
class Scarf(Augmentation):
    """Replace ``⌊rate · M⌋`` of a sample's M features by draws from their empirical marginals (Bahri et al. 2022).

    Which features is uniform for each sample; each replacement comes from a row of ``reference`` drawn for that sample
    and that feature alone, so corrupted features are independent of each other as well as of the sample.

    Attributes:
        reference: Training rows, ``(n, d)``.
        rate: Part of the features to corrupt.
        both: Corrupt every view; by default view 0 stays clean, as in the paper.
        groups: Columns that are replaced together, from one row.
    """

    reference: Tensor
    rate: float = 0.6
    both: bool = False
    groups: Groups = ()

    def __post_init__(self) -> None:
        """Refuse a rate that is no part of a whole, and a reference that cannot be drawn from."""
        require_range(self.rate, "rate", low=0.0, high=1.0)
        _require_rows(self.reference, "Scarf's reference")
        require_range(len(self.reference), "rows of Scarf's reference", low=1)
        require_finite(self.reference, "Scarf's reference")

    def __call__(self, X: Tensor, noise: Noise) -> Tensor:
        """Return ``X``, ``(b, d)``, clean or corrupted."""
        if noise.view == 0 and not self.both:
            return X
        _require_rows(X, "Scarf")
        _require_width(self.reference, X.shape[1], "Scarf's reference")
        feature = feature_of_column(X.shape[1], self.groups).to(X.device)
        M = int(feature.max()) + 1
        k = int(self.rate * M + 1e-9)  # 0.29 * 100 is 28.999..., and means 29
        # 64-bit keys have no ties in practice, so the lowest k of them are a uniform choice.
        chosen = noise.bits("choose", M).topk(k, dim=1, largest=False, sorted=False).indices
        corrupt = torch.zeros(len(X), M, dtype=torch.bool, device=X.device).scatter_(1, chosen, True)
        rows = noise.integers("row", len(self.reference), M)[:, feature].to(self.reference.device)  # (b, d)
        drawn = self.reference.gather(0, rows).to(X)
        return torch.where(corrupt[:, feature], drawn, X)
