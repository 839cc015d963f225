r"""Which landmarks pull a sample towards a concept, and how far together.

IS(l, t; v) = <c_tl, v>,      Ψ(t; v) = Σ_{l in top k} IS(l, t; v),      over all l:  <shift_t - Δγ, v>
"""

from __future__ import annotations

from torch import Tensor

from krepes._checks import require_finite
from krepes.attribution.result import Attribution, Ranking
from krepes.concepts.significance import Significance
from krepes.concepts.vector import ConceptVector
from krepes.errors import InvalidInputError


def concept_influence(attribution: Attribution, concept: ConceptVector | Tensor) -> Tensor:
    """Return ``<c_tl, v>``, ``(t, m)``: how far each landmark pulls each sample towards the concept, or away."""
    return attribution.toward(_vector(attribution, concept))


def aggregate(
    attribution: Attribution, concept: ConceptVector | Tensor, *, k: int = 5, by: Ranking = "score"
) -> Tensor:
    """Return Ψ: how far the top landmarks together pull each sample towards the concept.

    Args:
        attribution: Of ``t`` samples.
        concept: A concept, or a vector ``(h,)``.
        k: Landmarks per sample; with all ``m`` of them, Ψ is ``<shift - Δγ, v>``.
        by: What selects them; the concept does not, it only weighs.

    Returns:
        Ψ, ``(t,)``.
    """
    return attribution.partial_shift(attribution.top(k, by=by).indices) @ _vector(attribution, concept)


def aggregate_significance(
    attribution: Attribution, concept: ConceptVector, *, k: int = 5, by: Ranking = "score"
) -> Significance:
    """Return Ψ, ``(t,)``, against that of random concepts, ``(s, t)``; arguments are those of `aggregate`."""
    pulled = attribution.partial_shift(attribution.top(k, by=by).indices)
    return Significance(pulled @ _vector(attribution, concept), concept.random_directions @ pulled.T)


def _vector(attribution: Attribution, concept: ConceptVector | Tensor) -> Tensor:
    """Return ``v``, ``(h,)``."""
    v = concept.v if isinstance(concept, ConceptVector) else concept
    if v.shape != attribution.dgamma.shape:
        raise InvalidInputError(
            f"the concept has shape {tuple(v.shape)}, embeddings {tuple(attribution.dgamma.shape)}."
        )
    require_finite(v, "the concept")
    return v.to(attribution.dA)
