"""Counterfactual influence: which training samples, weighted up, would change this outcome, and by how much?"""

from krepes.influence.compute import influence_of
from krepes.influence.ladder import How
from krepes.influence.outcomes import (
    AugmentedRows,
    Outcome,
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
    "AugmentedRows",
    "custom",
    "group_distance",
    "influence_of",
    "loss",
    "pull",
    "rows",
    "similarity",
    "toward",
]
