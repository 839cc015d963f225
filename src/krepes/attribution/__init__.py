"""Which landmarks is this embedding made of? The decomposition of a shift, held at once or streamed, and baselines."""

from krepes.attribution.baselines import compared_scores, kernel_similarity, latent_cosine, random_scores
from krepes.attribution.result import RANKINGS, Attribution, Ranking, Top
from krepes.attribution.stream import attribute, attribute_stream, attributions

__all__ = [
    "RANKINGS",
    "Attribution",
    "Ranking",
    "Top",
    "attribute",
    "attribute_stream",
    "attributions",
    "compared_scores",
    "kernel_similarity",
    "latent_cosine",
    "random_scores",
]
