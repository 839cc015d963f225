"""Concepts as directions of the latent space, how sure one can be of them, and who pulls a sample along them."""

from krepes.concepts.influence import aggregate, aggregate_significance, concept_influence
from krepes.concepts.significance import Significance
from krepes.concepts.vector import ConceptSettings, ConceptVector

__all__ = [
    "ConceptSettings",
    "ConceptVector",
    "Significance",
    "aggregate",
    "aggregate_significance",
    "concept_influence",
]
