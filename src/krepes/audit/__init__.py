"""Audits: what the latent space preserves, whom it conflates, and how far the surrogate can be trusted.

Labels and groups enter here and nowhere before. Each audit works on plain arrays; `rankings` and the functions that
take a model make those arrays in one streamed pass, with the baselines beside. `run_audits` asks all questions of
`AUDITS` at once; each is one file in `krepes.audit.questions`.
"""

from krepes import registry
from krepes.audit.alignment import Alignment, AlignmentSum, alignment_gap, alignment_of
from krepes.audit.base import Audit, AuditResult, Estimate, Exhibit, View, run_audits
from krepes.audit.consistency import consistency_readings, label_consistency
from krepes.audit.coverage import Coverage, class_coverage, coverage_of_draws
from krepes.audit.decision import Decision, Trust, explain_decision
from krepes.audit.deletion import confidence_drop, confidence_drop_of
from krepes.audit.deletions import deletion_readings, deletion_readings_of
from krepes.audit.faithfulness import faithfulness, faithfulness_of
from krepes.audit.features import FeatureSpace, fold_one_hot
from krepes.audit.groups import CrossGroup, cross_group
from krepes.audit.intervals import Interval, RunningMean, mean_interval, share_interval, wilson_interval
from krepes.audit.probes import LinearProbe, predicted_labels
from krepes.audit.rankings import rankings
from krepes.audit.selection import Selection, select_by_spectrum, view_retrieval
from krepes.audit.spectrum import rankme, spectral_entropy
from krepes.audit.study import Study

AUDITS: dict[str, Audit] = registry.loaded(registry.AUDITS)
"""Every question that can be asked of a study, by name, in the order in which they are shown."""

__all__ = [
    "AUDITS",
    "Alignment",
    "AlignmentSum",
    "Audit",
    "AuditResult",
    "Coverage",
    "CrossGroup",
    "Decision",
    "Estimate",
    "Exhibit",
    "FeatureSpace",
    "Interval",
    "LinearProbe",
    "RunningMean",
    "Selection",
    "Study",
    "Trust",
    "View",
    "alignment_gap",
    "alignment_of",
    "class_coverage",
    "coverage_of_draws",
    "confidence_drop",
    "confidence_drop_of",
    "consistency_readings",
    "cross_group",
    "deletion_readings",
    "deletion_readings_of",
    "explain_decision",
    "faithfulness",
    "faithfulness_of",
    "fold_one_hot",
    "label_consistency",
    "mean_interval",
    "predicted_labels",
    "rankings",
    "rankme",
    "run_audits",
    "select_by_spectrum",
    "share_interval",
    "spectral_entropy",
    "view_retrieval",
    "wilson_interval",
]
