"""Audits: what the latent space preserves, whom it conflates, and how far the surrogate can be trusted.

Labels and groups enter here and nowhere before. Each audit works on plain arrays; `rankings` and the functions that
take a model make those arrays in one streamed pass, with the baselines beside.
"""

from krepes.audit.alignment import Alignment, AlignmentSum, alignment_gap, alignment_of
from krepes.audit.consistency import label_consistency
from krepes.audit.coverage import Coverage, class_coverage
from krepes.audit.deletion import confidence_drop, confidence_drop_of
from krepes.audit.faithfulness import faithfulness, faithfulness_of
from krepes.audit.features import FeatureSpace, fold_one_hot
from krepes.audit.groups import CrossGroup, cross_group
from krepes.audit.intervals import Interval, RunningMean, mean_interval, share_interval, wilson_interval
from krepes.audit.rankings import rankings
from krepes.audit.spectrum import Selection, rankme, select_by_spectrum, spectral_entropy

__all__ = [
    "Alignment",
    "AlignmentSum",
    "Coverage",
    "CrossGroup",
    "FeatureSpace",
    "Interval",
    "RunningMean",
    "Selection",
    "alignment_gap",
    "alignment_of",
    "class_coverage",
    "confidence_drop",
    "confidence_drop_of",
    "cross_group",
    "faithfulness",
    "faithfulness_of",
    "fold_one_hot",
    "label_consistency",
    "mean_interval",
    "rankings",
    "rankme",
    "select_by_spectrum",
    "share_interval",
    "spectral_entropy",
    "wilson_interval",
]
