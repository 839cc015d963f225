"""Concepts: directions of the latent space, whether they are real, and whether landmarks pull samples along them."""

from __future__ import annotations

import torch

from krepes.concepts import ConceptVector, Significance, aggregate_significance
from krepes.report.content import Cell, Headline, Section, Table
from krepes.report.evidence import Evidence
from krepes.report.wording import cell, count, heads, listing, missing, number, percent, signed, text

KEY, TITLE = "concepts", "Concepts"
LEVEL = 0.05


def concepts(evidence: Evidence) -> Section:
    """Return the section on concepts and their significance."""
    if not evidence.concepts:
        what = "whether ideas of your own have a direction in the latent space"
        return missing(KEY, TITLE, what, "concepts=[ConceptVector.fit(...), ...]")
    real = [f"“{text(concept.name)}”" for concept in evidence.concepts if _is_real(concept, len(evidence.concepts))]
    best = max(evidence.concepts, key=lambda concept: float(concept.accuracies.mean()))
    least = float(best.random_accuracies.mean())
    stands = f"{listing(real)} can be told apart beyond chance" if real else "none can be told apart beyond chance"
    finding = (
        f"Of {count(len(evidence.concepts), 'concept')}, {stands}; the clearest is “{text(best.name)}”, told apart in "
        f"{percent(float(best.accuracies.mean()))} of held-out samples (random concepts: {percent(least)})."
    )
    return Section(
        KEY,
        TITLE,
        finding,
        "A direction exists between any two sets of samples, so each concept is compared with random ones. That it can "
        "be told apart does not mean that the encoder uses it.",
        (_table(evidence), _pulls(evidence)),
        Headline(f"{len(real)} of {len(evidence.concepts)}", "concepts that can be told apart beyond chance"),
    )


def _is_real(concept: ConceptVector, tests: int) -> bool:
    """Return whether its held-out accuracy is above that of random concepts, corrected for the number of concepts."""
    accuracy = concept.accuracy
    return float(accuracy.p_value) <= LEVEL / tests and float(accuracy.value) > float(accuracy.null.mean())


def _table(evidence: Evidence) -> Table:
    rows = []
    for concept in evidence.concepts:
        accuracy = concept.accuracy
        values = (float(accuracy.value), float(accuracy.null.mean()))
        rows.append((
            cell(concept.name),
            *(Cell(percent(value), value) for value in values),
            *(Cell(number(float(p), 2), float(p)) for p in (accuracy.p_value, accuracy.p_rank)),
            Cell(number(concept.stability, 2), concept.stability),
            cell(concept.sizes[0]),
        ))
    columns = ("concept", "held-out accuracy", "random concepts", "p (t\u2011test)", "p (rank)", "stability", "samples")
    caption = "Balanced accuracy against random concepts; stability is the mean cosine between draws of negatives"
    return Table(caption, heads(*columns), tuple(rows))


def _pulls(evidence: Evidence) -> Table:
    """Return how far each sample's strongest landmarks pull it along each concept, beside random concepts."""
    rows = []
    for concept in evidence.concepts:
        pulls = aggregate_significance(evidence.attribution, concept, k=evidence.k)
        rows.append((cell(concept.name), *_pull_cells(concept, pulls, evidence)))
    columns = heads("concept", "mean pull Ψ", "random concepts, typical", "p (rank)", "pulled most")
    caption = f"How far the {evidence.k} strongest landmarks pull the samples shown along each concept"
    return Table(caption, columns, tuple(rows))


def _pull_cells(concept: ConceptVector, pulls: Significance, evidence: Evidence) -> tuple[Cell, ...]:
    mean = pulls.mean()
    typical = float(torch.as_tensor(mean.null).abs().median())
    strongest = evidence.sample_ids[int(pulls.value.argmax())]
    return (
        Cell(signed(float(mean.value)), float(mean.value)),
        Cell(f"±{number(typical)}", typical),
        Cell(number(float(mean.p_rank), 2), float(mean.p_rank)),
        cell(strongest),
    )
