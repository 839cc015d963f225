r"""Outcomes ``o(Θ)``: any differentiable number of the representation, as a function of kernel rows it holds.

    similarity = cos(f(x1), f(x2))          pull = mean cos(f(x), group) - mean cos(f(x), others)
    toward = <f(x), v>                      group_distance = |mean f(group) - mean f(others)|
    loss = L(Θ) over the training data      custom = any torch function of Z

With a ``reference`` the embeddings are centred at its mean, which a cosine of embeddings with a common offset needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from krepes import _autodiff
from krepes._checks import require_finite
from krepes.batches import Batch
from krepes.errors import InvalidInputError, NotFittedError
from krepes.model import Krepes
from krepes.objectives import Objective
from krepes.views.source import all_of


class Outcome(ABC):
    """A number of the representation: it has a ``name``, a value and a gradient in ``theta`` ``(q + 1, h)``."""

    name: str

    @abstractmethod
    def value(self, theta: Tensor) -> Tensor:
        """Return ``o(Θ)``, a scalar."""

    @abstractmethod
    def gradient(self, theta: Tensor) -> Tensor:
        """Return ``∇o(Θ)``, ``(q + 1, h)``."""

    def of(self, embed: Callable[[Batch], Tensor]) -> Tensor:
        """Return the outcome of whatever embeds samples, a scalar.

        Args:
            embed: ``(t, ...) -> (t, d)``.

        Raises:
            InvalidInputError: If it is no function of embeddings.
        """
        raise InvalidInputError(f"outcome {self.name!r} belongs to the kernel model alone. Use the method surrogate.")


@dataclass(frozen=True, eq=False)
class AugmentedRows:
    """Augmented kernel rows of some samples, ``(t, q + 1)``, float64, made once and shared by many outcomes.

    Attributes:
        Kbar: The rows.
        X: The samples themselves, which replays embed in their own way; ``None`` if only rows are known.
        reference: Samples whose mean embedding is the origin, or ``None``.
    """

    Kbar: Tensor = field(repr=False)
    X: Batch | None = field(default=None, repr=False)
    reference: Batch | None = field(default=None, repr=False)

    def embedded(self, embed: Callable[[Batch], Tensor]) -> Tensor:
        """Return the embeddings of the samples about their origin, ``(t, d)``.

        Args:
            embed: ``(t, ...) -> (t, d)``.

        Returns:
            The embeddings.

        Raises:
            InvalidInputError: If only kernel rows are known.
        """
        if self.X is None:
            raise InvalidInputError("these outcomes hold kernel rows alone, and a replay embeds samples. Pass samples.")
        Z = embed(all_of(self.X))
        return Z if self.reference is None else Z - embed(self.reference).mean(0)


@dataclass(frozen=True)
class Function(Outcome):
    """``function(Z_1, Z_2, ...)`` with ``Z_j = K̄_j Θ`` ``(t_j, h)`` the embeddings of each of ``samples``."""

    name: str
    samples: tuple[AugmentedRows, ...]
    function: Callable[..., Tensor]

    def value(self, theta: Tensor) -> Tensor:
        """Return ``o(Θ)``, a scalar."""
        return self.function(*(part.Kbar @ theta for part in self.samples))

    def of(self, embed: Callable[[Batch], Tensor]) -> Tensor:
        """Return the outcome of whatever embeds samples, a scalar."""
        return self.function(*(part.embedded(embed) for part in self.samples))

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ``∇o(Θ)``, ``(q + 1, h)``.

        Args:
            theta: ``(q + 1, h)``.

        Returns:
            The gradient.

        Raises:
            InvalidInputError: If the function does not return a scalar, or the gradient is not finite.
        """
        value, pull_back = _autodiff.vjp(self.value, theta)
        if value.ndim:
            raise InvalidInputError(
                f"outcome {self.name!r} must be a scalar tensor, its function returned {tuple(value.shape)}."
            )
        g = pull_back(torch.ones_like(value))
        require_finite(g, f"the gradient of outcome {self.name!r}")
        return g


@dataclass(frozen=True)
class InModel(Function):
    """A function of embeddings by the kernel model that means nothing in another space, such as a direction in it."""

    of = Outcome.of


@dataclass(frozen=True)
class Loss(Outcome):
    """The objective over the training data, whose weights it keeps while the coefficients move."""

    name: str
    objective: Objective[Any]
    data: Any = field(repr=False)

    def value(self, theta: Tensor) -> Tensor:
        """Return ``L(Θ)``, a scalar."""
        return self.objective.value(self.data, theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return ``∇L(Θ)``, ``(q + 1, h)``."""
        return self.objective.gradient(self.data, theta)


Samples = Batch | AugmentedRows
"""Samples ``(t, ...)``, or the rows made of them before."""


def rows(model: Krepes, X: Samples, *, reference: Samples | None = None) -> AugmentedRows:
    """Return the augmented kernel rows of samples, to be used in many outcomes.

    Args:
        model: A fitted model.
        X: Samples ``(t, ...)``; rows that were made before are returned as they are.
        reference: Samples whose mean embedding becomes the origin: their mean row is subtracted.

    Returns:
        The rows.
    """
    if isinstance(X, AugmentedRows):
        return X
    Kbar = torch.nn.functional.pad(model.model_rows(X), (0, 1), value=1.0)
    if reference is None:
        return AugmentedRows(Kbar, X)
    origin = rows(model, reference)
    return AugmentedRows(Kbar - origin.Kbar.mean(0), X, origin.X)


def similarity(
    model: Krepes, x1: Samples, x2: Samples, *, reference: Samples | None = None, name: str = "similarity"
) -> Outcome:
    """Return the mean cosine of ``f(x1)`` and ``f(x2)``, pair by pair.

    Args:
        model: A fitted model.
        x1: Samples ``(t, ...)``, often one.
        x2: As many.
        reference: Samples whose mean embedding is the origin; none for the plain cosine.
        name: Of the outcome.

    Returns:
        The outcome.
    """
    pair = tuple(rows(model, x, reference=reference) for x in (x1, x2))
    return Function(name, pair, lambda Z1, Z2: (_unit(Z1) * _unit(Z2)).sum(-1).mean())


def pull(
    model: Krepes,
    x: Samples,
    group: Samples,
    others: Samples,
    *,
    reference: Samples | None = None,
    name: str = "pull",
) -> Outcome:
    """Return the margin of ``x``: its mean cosine to a group minus its mean cosine to the others.

    Args:
        model: A fitted model.
        x: Samples ``(t, ...)``, often one.
        group: Samples it may be close to.
        others: Samples to compare with.
        reference: Samples whose mean embedding is the origin; none for the plain cosine.
        name: Of the outcome.

    Returns:
        The outcome.
    """
    samples = tuple(rows(model, part, reference=reference) for part in (x, group, others))
    return Function(name, samples, lambda Z, G, O: (_unit(Z) @ (_unit(G).mean(0) - _unit(O).mean(0))).mean())


def toward(model: Krepes, x: Samples, v: Tensor, *, in_model: bool = False, name: str = "toward") -> Outcome:
    """Return the mean of ``<f(x), v>``: how far samples lie along a direction, such as a concept.

    Args:
        model: A fitted model.
        x: Samples ``(t, ...)``.
        v: Direction, ``(h,)``; for a replay ``(d,)``, in the encoder's space.
        in_model: Whether it is a direction of the model's space alone, such as a concept found there: no replay has it.
        name: Of the outcome.

    Returns:
        The outcome.
    """
    v = v.detach().to(torch.float64)
    kind = InModel if in_model else Function
    return kind(name, (rows(model, x),), lambda Z: (Z @ v.to(Z)).mean())


def group_distance(model: Krepes, group: Samples, others: Samples, *, name: str = "group distance") -> Outcome:
    """Return the distance of two groups' mean embeddings, for samples ``(t, ...)`` each."""
    samples = (rows(model, group), rows(model, others))
    return Function(name, samples, lambda G, O: torch.linalg.vector_norm(G.mean(0) - O.mean(0)))


def custom(
    model: Krepes,
    X: Samples,
    function: Callable[[Tensor], Tensor],
    *,
    reference: Samples | None = None,
    name: str = "custom",
) -> Outcome:
    """Return an outcome of one's own.

    Args:
        model: A fitted model.
        X: Samples ``(t, ...)``.
        function: From their embeddings ``Z`` ``(t, h)``, float64, to a scalar tensor, by torch operations.
        reference: Samples whose mean embedding is the origin; none leaves the embeddings as they are.
        name: Of the outcome.

    Returns:
        The outcome.
    """
    return Function(name, (rows(model, X, reference=reference),), function)


def loss(model: Krepes, *, name: str = "loss") -> Outcome:
    """Return the training loss itself, its targets where the fit had them."""
    return Loss(name, fitted_objective(model), model.data_)


def fitted_objective(model: Krepes) -> Objective[Any]:
    """Return the loss of a fit, with its targets where the fit had them.

    Args:
        model: A fitted model.

    Returns:
        The objective, which belongs to ``model.data_``.

    Raises:
        NotFittedError: If the model does not hold its loss, or the moments or rows it was fitted on.
    """
    if getattr(model, "data_", None) is None or not hasattr(model, "objective_"):
        raise NotFittedError(
            "influence needs the loss and the moments or kernel rows of the fit, and this model does not hold them. "
            "Fit it, or, if it was loaded, set model.data_ = RowStore.open(workdir / 'rows') and model.objective_."
        )
    return model.objective_.at(model.data_, model.solution_.theta0)


def _unit(Z: Tensor) -> Tensor:
    return normalize(Z, dim=-1)
