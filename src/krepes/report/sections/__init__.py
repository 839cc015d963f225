"""The sections of a report that are no audits, and the one way to make a section of an audit."""

from krepes.report.sections.audits import audited, section
from krepes.report.sections.counterfactual import counterfactual
from krepes.report.sections.landmarks import landmarks
from krepes.report.sections.provenance import provenance
from krepes.report.sections.samples import samples

BEFORE = (provenance,)
"""Sections before those of the audits."""
AFTER = (samples, landmarks, counterfactual)
"""Sections after those of the audits, in the order of the page."""

__all__ = ["AFTER", "BEFORE", "audited", "section"]
