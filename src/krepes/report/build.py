"""From a study to a report: verdict, what was audited, every audit in the order of its news, then samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from krepes import registry
from krepes.audit.base import Audit, AuditResult, run_audits
from krepes.audit.study import Study
from krepes.batches import Batch
from krepes.model import Krepes
from krepes.report.content import Part, Report, Section
from krepes.report.desk import Desk
from krepes.report.front import by_news, front
from krepes.report.sections import ABOUT_SAMPLES, provenance, section, stability


def build_report(model: Krepes, *, X_test: Batch, title: str = "KREPES report", **material: Any) -> Report:
    """Audit a model and write down what was found.

    Nothing but the model and samples to explain is required; a section that lacks its input says what to pass.

    Args:
        model: A fitted model.
        X_test: Samples to explain, not augmented, ``(t, ...)``.
        title: Of the report and its part.
        **material: Whatever else is known, as `krepes.audit.Study` takes it: ``test_ids``, ``train_ids``, ``stream``,
            ``tables``, ``groups``, ``labels``, ``hidden``, ``predictions``, ``concepts``, ``inputs``, ``shown``, ``k``,
            ``counterfactual``, ``seed``.

    Returns:
        The report: plain data, for `krepes.report.render`.

    Example:
        >>> import torch
        >>> from krepes.kernels.classic import RBF
        >>> from krepes.views import GaussianNoise
        >>> X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = Krepes(RBF(2.0), m=20, h=5, augment=GaussianNoise(0.1), progress=False).fit(X)
        >>> report = build_report(model, X_test=X[:40])
        >>> [section.key for section in report.parts[0].sections if section.missing][:3]
        ['features', 'groups', 'proxy']
    """
    return report_of(Study(model, X_test, title=title, **material))


Audited = tuple[dict[str, AuditResult], dict[str, str]]
"""Results by the name of the audit, and for those that could not be asked why."""


def report_of(study: Study, audits: Iterable[Audit] | None = None, results: Audited | None = None) -> Report:
    """Return the report of a study.

    Args:
        study: What is audited.
        audits: Which questions to ask, in order; by default all of `krepes.registry.AUDITS`.
        results: Of these audits, where they were run before; see `krepes.audit.base.run_audits`.

    Returns:
        The report.
    """
    chosen = registry.loaded(registry.AUDITS).values() if audits is None else audits
    asked = {audit.name: audit for audit in chosen}
    found, missing = results or run_audits(study, asked)
    standing = study.standing
    sections = [provenance(study), *([] if standing is None else [stability(standing)])]
    sections += [section(one, standing.mark(one.name) if standing else "") for one in by_news(found)]
    desk = Desk(study)
    sections += [make(desk) for make in ABOUT_SAMPLES]
    sections += [Section(name, asked[name].title, why) for name, why in missing.items()]
    sections.sort(key=lambda one: one.missing)  # stable: what could not be asked comes last
    return Report(study.title, (Part(study.title, tuple(sections), front(study, found, missing)),))
