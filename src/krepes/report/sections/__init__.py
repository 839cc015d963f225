"""The sections of a report: what was audited, one for every audit, and those on single samples."""

from krepes.report.sections.audits import section
from krepes.report.sections.counterfactual import counterfactual
from krepes.report.sections.landmarks import landmarks
from krepes.report.sections.provenance import provenance
from krepes.report.sections.samples import samples
from krepes.report.sections.stability import stability

ABOUT_SAMPLES = (samples, landmarks, counterfactual)
"""Sections on single samples, in the order of the page."""

__all__ = ["ABOUT_SAMPLES", "provenance", "section", "stability"]
