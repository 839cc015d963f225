"""Concepts: directions of the latent space, whether they are real, and whether landmarks pull samples along them."""

from __future__ import annotations

import pandas as pd
import torch

from krepes.audit.base import Audit, Estimate, Exhibit, Finding, Verdict, View
from krepes.audit.study import Study
from krepes.audit.wording import count, listing, number, percent, quoted, text
from krepes.concepts import aggregate_significance

LEVEL = 0.05


def measure(study: Study) -> Exhibit:
    """Return accuracy, stability and pull of every concept, each against random concepts."""
    rows = []
    for concept in study.concepts:
        accuracy = concept.accuracy
        pulls = aggregate_significance(study.attribution, concept, k=study.k)
        mean = pulls.mean()
        rows.append({
            "concept": concept.name,
            "accuracy": float(accuracy.value),
            "random": float(accuracy.null.mean()),
            "p_value": float(accuracy.p_value),
            "p_rank": float(accuracy.p_rank),
            "stability": concept.stability,
            "samples": concept.sizes[0],
            "pull": float(mean.value),
            "random_pull": float(torch.as_tensor(mean.null).abs().median()),
            "pull_p": float(mean.p_rank),
            "pulled_most": study.sample_ids[int(pulls.value.argmax())],
        })
    return Exhibit(pd.DataFrame(rows))


def real(table: pd.DataFrame) -> pd.DataFrame:
    """Return the concepts told apart better than random ones, corrected for their number."""
    return table[(table["p_value"] <= LEVEL / len(table)) & (table["accuracy"] > table["random"])]


def sentence(table: pd.DataFrame) -> str:
    """Return which concepts can be told apart, and the clearest of all."""
    found = [quoted(name) for name in real(table)["concept"]]
    best = table.iloc[int(table["accuracy"].argmax())]
    stands = f"{listing(found)} can be told apart beyond chance" if found else "none can be told apart beyond chance"
    return (
        f"Of {count(len(table), 'concept')}, {stands}; the clearest is {quoted(best['concept'])}, told apart in "
        f"{percent(best['accuracy'])} of held-out samples (random concepts: {percent(best['random'])})."
    )


def headline(table: pd.DataFrame) -> tuple[str, str]:
    """Return how many concepts can be told apart."""
    return f"{len(real(table))} of {len(table)}", "concepts that can be told apart beyond chance"


def verdict(table: pd.DataFrame) -> Verdict:
    """Return neither: whether a concept ought to be there is for the reader to say."""
    return "neutral"


def views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return accuracy and pull of every concept."""
    told = tuple(
        (
            text(row["concept"]),
            *(Estimate(row[name], unit="share") for name in ("accuracy", "random")),
            *(number(row[name], 2) for name in ("p_value", "p_rank", "stability")),
            int(row["samples"]),
        )
        for _, row in table.iterrows()
    )
    pulled = tuple(
        (
            text(row["concept"]),
            Estimate(row["pull"], unit="gap"),
            f"±{number(row['random_pull'])}",
            number(row["pull_p"], 2),
            text(row["pulled_most"]),
        )
        for _, row in table.iterrows()
    )
    heads = ("concept", "held-out accuracy", "random concepts", "p (t\u2011test)", "p (rank)", "stability", "samples")
    pulls = ("concept", "mean pull Ψ", "random concepts, typical", "p (rank)", "pulled most")
    return (
        View("Balanced accuracy against random concepts; stability is the mean cosine between draws", heads, told),
        View("How far the strongest landmarks pull the samples shown along each concept", pulls, pulled),
    )


def plain(table: pd.DataFrame) -> str:
    """Return which concepts can be told apart."""
    found = [quoted(name) for name in real(table)["concept"]]
    if not found:
        return f"None of {count(len(table), 'concept')} can be told apart in the latent space beyond chance."
    return f"Of {count(len(table), 'concept')}, {listing(found)} can be told apart in the latent space beyond chance."


def findings(table: pd.DataFrame) -> tuple[Finding, ...]:
    """Return for every concept whether it can be told apart."""
    names = set(real(table)["concept"])
    return tuple(
        Finding(
            f"{quoted(row['concept'])} can be told apart",
            Estimate(float(row["accuracy"]), unit="share"),
            row["concept"] in names,
        )
        for _, row in table.iterrows()
    )


CONCEPTS = Audit(
    name="concepts",
    title="Concepts: ideas of your own in the latent space",
    asks="whether ideas of your own have a direction in the latent space",
    needs=("concepts",),
    compute=measure,
    sentence=sentence,
    verdict=verdict,
    views=views,
    plain=plain,
    findings=findings,
    headline=headline,
    caveat="A direction exists between any two sets of samples, so each concept is compared with random ones. That it "
    "can be told apart does not mean that the encoder uses it.",
    explains_step=False,
)
