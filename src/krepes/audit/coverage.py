r"""Class coverage: how many of the strongest landmarks it takes to meet every class.

    κ_C = min { κ :  Y ⊆ {y(x_π(1)), ..., y(x_π(κ))} },        ω_π(1) >= ω_π(2) >= ...,    ω_l = |dA_l|

Beside it stands what landmarks in random order would need: small κ_C means little where classes are few and balanced.

    p = (1 + #{orders with κ <= κ_C}) / (1 + orders)

Over several draws of landmarks, `coverage_of_draws` compares the mean of κ_C with that of shuffled classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from krepes._checks import require_finite
from krepes.audit.labels import Labels, require_count, shared_codes


@dataclass(frozen=True)
class Coverage:
    """Class coverage of a ranking of landmarks.

    Attributes:
        kappa: ``κ_C``, or ``None`` if some class has no landmark at all.
        missing: The classes that no landmark shows.
        random: Mean of ``κ_C`` over random orders of the same landmarks, or ``None`` likewise.
        random_low: Its 2.5 % quantile, or ``None``.
        random_high: Its 97.5 % quantile, or ``None``.
        p: Share of random orders that need no more, the observed one counted, or ``None``.
        orders: ``κ_C`` of every random order, ``(orders,)``, or ``None``.
        curve: One row per prefix: ``k``, ``covered`` classes, and the mean ``random`` number.
    """

    kappa: int | None
    missing: tuple[Any, ...]
    random: float | None
    random_low: float | None
    random_high: float | None
    p: float | None
    orders: Tensor | None
    curve: pd.DataFrame

    @property
    def verdict(self) -> str:
        """The result as a sentence."""
        if self.kappa is None:
            return f"undefined: no landmark shows {', '.join(map(str, self.missing))}."
        return (
            f"the {self.kappa} strongest landmarks show every class; in random order it takes {self.random:.1f} "
            f"({self.random_low:.0f} to {self.random_high:.0f}; p = {self.p:.2g})."
        )


def class_coverage(
    omega: Tensor, landmark_labels: Labels, *, classes: Labels | None = None, orders: int = 1000, seed: int = 0
) -> Coverage:
    """Count the strongest landmarks needed to span all classes.

    Args:
        omega: Strength of each landmark, ``ω_l``, ``(m,)``.
        landmark_labels: Their classes, ``(m,)``.
        classes: The set ``Y`` of classes to meet; by default those of the landmarks. Pass the classes of the data:
            only then can a class without any landmark show.
        orders: Random orders to compare with.
        seed: Seed of those orders.

    Returns:
        The coverage with its random baseline.

    Example:
        >>> class_coverage(torch.tensor([3.0, 1.0, 2.0]), ["a", "b", "a"]).kappa
        3
    """
    require_finite(omega, "omega")
    m = len(omega)
    names, (codes, wanted) = shared_codes(
        landmarks=landmark_labels, classes=landmark_labels if classes is None else classes
    )
    require_count(codes, m, "landmark labels")
    wanted = wanted.unique()
    place = torch.empty(m, dtype=torch.int64)
    place[omega.cpu().argsort(descending=True, stable=True)] = torch.arange(m)
    first = _first_places(place[None], codes, len(names))[0, wanted]  # (|Y|,)
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.rand(orders, m, generator=generator).argsort(1)
    random_first = _first_places(shuffled, codes, len(names))[:, wanted]  # (orders, |Y|)
    k = torch.arange(1, m + 1)
    curve = pd.DataFrame({
        "k": k,
        "covered": torch.searchsorted(first.sort().values, k),
        "random": torch.searchsorted(random_first.flatten().sort().values, k) / orders,
    })
    missing = tuple(names[int(c)] for c in wanted[first == m])
    if missing:
        return Coverage(None, missing, None, None, None, None, None, curve)
    kappas = (random_first.max(1).values + 1).to(torch.float64)
    low, high = torch.quantile(kappas, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    kappa = int(first.max()) + 1
    return Coverage(kappa, (), float(kappas.mean()), low, high, lower_p(kappa, kappas), kappas, curve)


def lower_p(observed: float, shuffled: Tensor) -> float:
    """Return the share of ``shuffled`` ``(orders,)`` that is no larger than ``observed``, itself counted."""
    return (1 + int((shuffled <= observed).sum())) / (1 + len(shuffled))


def coverage_of_draws(
    draws: Sequence[tuple[Tensor, Tensor]],
    landmark_labels: Labels,
    *,
    classes: Labels | None = None,
    orders: int = 1000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the mean of ``κ_C`` over draws of landmarks, that of shuffled classes, and its p-value.

    Draws share landmarks, so that one mean varies more than draws of their own would let it: classes are shuffled among
    all landmarks at once, and who was drawn and how strong stays.

    Args:
        draws: Of each, the places of its landmarks among all, and their strengths ``ω``, ``(m_d,)`` each.
        landmark_labels: Classes of all landmarks, ``(m,)``.
        classes: The set ``Y`` of classes to meet; by default those of the landmarks.
        orders: Shuffles.
        seed: Of those.

    Returns:
        Mean ``κ_C``, its mean over shuffles, and the share of shuffles whose mean is no larger, the observed one
        counted. Draws that miss a class are left out of the means, and count as one landmark more than there are
        where shuffles are compared; NaN if all miss one.
    """
    names, (codes, wanted) = shared_codes(
        landmarks=landmark_labels, classes=landmark_labels if classes is None else classes
    )
    ranked = [kept[omega.cpu().argsort(descending=True, stable=True)] for kept, omega in draws]
    generator = torch.Generator().manual_seed(seed)
    shuffled = codes[torch.rand(orders, len(codes), generator=generator).argsort(1)]

    def kappas(codes: Tensor) -> Tensor:
        """Return the number of each draw for each row of classes ``(orders, m)``, ``(draws, orders)``; NaN if unmet."""
        found = []
        for places in ranked:
            order = torch.arange(len(places)).expand(len(codes), -1)
            last = _first_places(order, codes[:, places], len(names))[:, wanted.unique()].max(1).values
            found.append(torch.where(last < len(places), last + 1.0, torch.nan))
        return torch.stack(found).double()

    def at_least(found: Tensor) -> Tensor:
        """Return means over draws in which a class that is not met takes one landmark more than there are."""
        beyond = torch.tensor([len(places) + 1.0 for places in ranked]).double()[:, None]
        return torch.where(found.isnan(), beyond, found).mean(0)

    ours, chance = kappas(codes[None]), kappas(shuffled)
    if bool(ours.isnan().all()):
        return (float("nan"),) * 3
    # A mean of the same numbers in another order is a tie, whatever round-off says.
    p = lower_p(float(at_least(ours)) + 1e-9, at_least(chance))
    return float(ours.nanmean()), float(chance.nanmean(0).nanmean()), p


def _first_places(places: Tensor, codes: Tensor, classes: int) -> Tensor:
    """Return ``(orders, classes)``: the place of the first landmark of each class, ``m`` if it has none."""
    orders, m = places.shape
    first = torch.full((orders, classes), m)
    return first.scatter_reduce(1, codes.expand(orders, m), places, "amin")
