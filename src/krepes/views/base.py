"""What an augmentation is: a pure function of a batch and its noise; and the ways to put several together.

A new one is a frozen dataclass with a ``__call__``:

    @dataclass(frozen=True)
    class Scale(Augmentation):
        spread: float

        def __call__(self, X, noise):
            return X * (1 + self.spread * noise.normal("factor", 1))

It must not write into ``X``, and must take every random number from ``noise``: then its views can be replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from krepes._describe import Description, described, fields_of
from krepes.batches import Batch
from krepes.errors import InvalidInputError
from krepes.views.noise import Noise


class Augmentation(ABC):
    """A random change of samples that should not change what they are; a frozen dataclass of its settings."""

    @property
    def p(self) -> int:
        """Views a sample has unless the stream is told otherwise."""
        return 2

    @abstractmethod
    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return the view ``noise.view`` of the samples ``X`` ``(b, ...)``, whose indices are ``noise.indices``."""

    def plain(self, X: Batch) -> Batch:
        """Return un-augmented samples as the encoder expects them: only the steps that are no noise, if any."""
        return X

    def describe(self) -> Description:
        """Return name and settings as plain JSON values; a tensor is described by its shape and digest."""
        return described(type(self).__name__, fields_of(self))


@dataclass(frozen=True)
class Identity(Augmentation):
    """No change: one view, for objectives that need no augmentation, or the clean half of a pair."""

    @property
    def p(self) -> int:
        """One: further views would be copies."""
        return 1

    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return ``X``."""
        return X


@dataclass(frozen=True, init=False)
class Compose(Augmentation):
    """One augmentation after another, each with noise of its own."""

    parts: tuple[Augmentation, ...]

    def __init__(self, *parts: Augmentation) -> None:
        object.__setattr__(self, "parts", parts)

    @property
    def p(self) -> int:
        """The most that any part wants."""
        return max((part.p for part in self.parts), default=1)

    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return ``X`` after all parts, in order."""
        for position, part in enumerate(self.parts):
            X = part(X, noise.split(position))
        return X

    def plain(self, X: Batch) -> Batch:
        """Return ``X`` after the part of every part that is no noise."""
        for part in self.parts:
            X = part.plain(X)
        return X


@dataclass(frozen=True, init=False)
class PerView(Augmentation):
    """A different augmentation for each view: the asymmetric pairs of BYOL and Barlow Twins.

    Example:
        >>> PerView(Identity(), Identity()).p
        2
    """

    parts: tuple[Augmentation, ...]

    def __init__(self, *parts: Augmentation) -> None:
        if not parts:
            raise InvalidInputError("PerView got no augmentation. Pass one for each view.")
        object.__setattr__(self, "parts", parts)

    @property
    def p(self) -> int:
        """One view for each augmentation."""
        return len(self.parts)

    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return ``X`` after the augmentation of this view."""
        if noise.view >= len(self.parts):
            raise InvalidInputError(
                f"view {noise.view + 1} was asked of a PerView of {len(self.parts)} augmentations. "
                f"Give it one augmentation for each view, or ask the stream for p={len(self.parts)}."
            )
        return self.parts[noise.view](X, noise)

    def plain(self, X: Batch) -> Batch:
        """Return ``X`` as the first view's augmentation leaves it without noise."""
        return self.parts[0].plain(X)


@dataclass(frozen=True)
class OnFields(Augmentation):
    """An augmentation for each named field of a dict, or numbered field of a tuple; other fields stay as they are.

    Attributes:
        parts: Field to augmentation.
    """

    parts: Mapping[Any, Augmentation]

    def __call__(self, X: Batch, noise: Noise) -> Batch:
        """Return ``X`` with each named field augmented, each with noise of its own."""
        return self._replace(X, {key: part(X[key], noise.split(key)) for key, part in self.parts.items()})

    def plain(self, X: Batch) -> Batch:
        """Return ``X`` with each named field as its augmentation leaves it without noise."""
        return self._replace(X, {key: part.plain(X[key]) for key, part in self.parts.items()})

    @staticmethod
    def _replace(X: Batch, changed: dict[Any, Batch]) -> Batch:
        if isinstance(X, Mapping):
            return {**X, **changed}
        return tuple(changed.get(position, field) for position, field in enumerate(X))
