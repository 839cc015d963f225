"""Which landmarks is this embedding made of? The decomposition of a shift, held at once or streamed, and baselines."""

from krepes.attribution.baselines import compared_scores, kernel_similarity, latent_cosine, random_scores
from krepes.attribution.result import RANKINGS, Attribution, Ranking, Top
from krepes.attribution.stream import attribute, attribute_stream, attributions
from krepes.attribution.words import Agreements, NoTokenTableError, TokenTable, agreements

__all__ = [
    "RANKINGS",
    "Agreements",
    "Attribution",
    "NoTokenTableError",
    "Ranking",
    "TokenTable",
    "Top",
    "agreements",
    "attribute",
    "attribute_stream",
    "attributions",
    "compared_scores",
    "kernel_similarity",
    "latent_cosine",
    "random_scores",
]
