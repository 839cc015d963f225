"""Texts in a report: a sample and training samples in their own words, those on which they agree marked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from krepes.attribution import agreements
from krepes.audit.study import Study
from krepes.audit.wording import percent
from krepes.data.marks import MarkedText, shortened
from krepes.report.blocks import Block, Paragraph, Quote, Quotes
from krepes.report.desk import Bond, Desk

LONG = 400
"""Characters of a sample that is shown by itself."""


def quotable(study: Study) -> bool:
    """Say whether samples are texts that can be shown."""
    return study.texts is not None and study.tokenizer is not None and study.data is not None


def quoted(desk: Desk, caption: str, place: int, bonds: Sequence[Bond]) -> tuple[Block, ...]:
    """Return a test sample and training samples as texts; for a sample shown in depth, marked where they agree.

    Args:
        desk: A study of texts.
        caption: What is shown.
        place: Of the test sample.
        bonds: The training samples.

    Returns:
        The texts, and what their marks mean.
    """
    study = desk.study
    assert study.texts is not None
    deep = place in set(study.chosen.tolist())
    sample, others, said = _marked(desk, place, bonds) if deep else _plain(study, place, bonds)
    quotes = [Quote("this sample", shortened(sample, LONG), (desk.name(place),), "ours")]
    for bond, words in zip(bonds, others, strict=True):
        of_class = desk.class_of(bond.row)
        lines = (bond.said, *((f"class {of_class}",) if of_class else ()))
        quotes.append(Quote(desk.train_name(bond.row), shortened(words), lines, bond.tone, desk.link(bond.row)))
    return (Quotes(caption, tuple(quotes)), *((Paragraph(said),) if said else ()))


def quoted_row(desk: Desk, row: int, lines: Sequence[str] = (), length: int = LONG, link: str = "") -> Quote:
    """Return what a training row says, with a few words about it."""
    assert desk.study.texts is not None
    return Quote(desk.train_name(row), shortened(desk.study.texts[0][row], length), tuple(lines), "", link)


def _plain(study: Study, place: int, bonds: Sequence[Bond]) -> tuple[MarkedText, list[MarkedText], str]:
    assert study.texts is not None
    return MarkedText.of(study.texts[1][place]), [MarkedText.of(study.texts[0][bond.row]) for bond in bonds], ""


def _marked(desk: Desk, place: int, bonds: Sequence[Bond]) -> tuple[MarkedText, list[MarkedText], str]:
    """Return the sample, the others, and what the marks mean or why there are none."""
    study = desk.study
    assert study.texts is not None and study.tokenizer is not None and study.data is not None
    rows = [bond.row for bond in bonds]
    sample = (study.test(torch.tensor([place])), [study.texts[1][place]])
    others = (study.data.plain(torch.tensor(rows)), [study.texts[0][row] for row in rows])
    made = agreements(study.model, study.tokenizer, sample, others, [(0, i) for i in range(len(rows))])
    near = [share for share, bond in zip(made.shares, bonds, strict=True) if bond.tone != "repels"]
    return made.samples[0], list(made.others), made.note or _meaning(near)


def _meaning(shares: Sequence[float]) -> str:
    """Return what marks mean, with the share of the kernel that they are about."""
    part = f" It makes {percent(sum(shares) / len(shares))} of the kernel with those that attract." if shares else ""
    return (
        f"Marked are words that both texts have, bolder the more their tokens add to the kernel of the two through the "
        f"encoder's table of tokens.{part} The layers behind it have the rest, which belongs to no single word."
    )
