"""The sections of a report, in the order of the page: each module makes one from the evidence."""

from krepes.report.sections.concepts import concepts
from krepes.report.sections.counterfactual import counterfactual
from krepes.report.sections.features import features
from krepes.report.sections.groups import groups
from krepes.report.sections.landmarks import landmarks
from krepes.report.sections.provenance import provenance
from krepes.report.sections.samples import samples
from krepes.report.sections.spectrum import spectrum
from krepes.report.sections.trust import trust

SECTIONS = (provenance, trust, landmarks, samples, features, groups, concepts, counterfactual, spectrum)

__all__ = ["SECTIONS"]
