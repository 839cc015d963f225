"""Counterfactual influence: which training rows, weighted up, would change this outcome, and by how much?"""

from krepes.influence.compute import influence
from krepes.influence.ladder import How
from krepes.influence.outcomes import (
    Outcome,
    Rows,
    custom,
    group_distance,
    loss,
    pull,
    rows,
    similarity,
    toward,
)
from krepes.influence.result import Influence

__all__ = [
    "How",
    "Influence",
    "Outcome",
    "Rows",
    "custom",
    "group_distance",
    "influence",
    "loss",
    "pull",
    "rows",
    "similarity",
    "toward",
]
