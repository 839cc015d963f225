"""Texts in a report: a sample and training samples in their own words, those on which they agree marked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from krepes.attribution import agreements
from krepes.audit.study import Study
from krepes.audit.wording import percent
from krepes.data.marks import shortened
from krepes.report.blocks import Block, Paragraph, Quote, Quotes
from krepes.report.desk import Bond, Desk

LONG = 400
"""Characters of a sample that is shown by itself."""


def quotable(study: Study) -> bool:
    """Say whether samples are texts that can be shown."""
    return study.texts is not None and study.tokenizer is not None and study.data is not None


def quoted(desk: Desk, caption: str, place: int, bonds: Sequence[Bond]) -> tuple[Block, ...]:
    """Return a test sample and training samples as texts, marked where they agree.

    Args:
        desk: Of texts.
        caption: What is shown.
        place: Of the test sample.
        bonds: The training samples.

    Returns:
        The texts, and what the marks mean.
    """
    study, rows = desk.study, [bond.row for bond in bonds]
    assert study.texts is not None and study.tokenizer is not None and study.data is not None
    sample = (study.test(torch.tensor([place])), [study.texts[1][place]])
    others = (study.data.plain(torch.tensor(rows)), [study.texts[0][row] for row in rows])
    made = agreements(study.model, study.tokenizer, sample, others, [(0, j) for j in range(len(rows))])
    quotes = [Quote("this sample", shortened(made.samples[0], LONG), (desk.name(place),), "ours")]
    for bond, said in zip(bonds, made.others, strict=True):
        of_class = desk.class_of(bond.row)
        lines = (bond.said, *((f"class {of_class}",) if of_class else ()))
        quotes.append(Quote(desk.train_name(bond.row), shortened(said), lines, bond.tone, desk.link(bond.row)))
    near = [share for share, bond in zip(made.shares, bonds, strict=True) if bond.tone == "attracts"]
    return Quotes(caption, tuple(quotes)), Paragraph(made.note or _meaning(near))


def _meaning(shares: Sequence[float]) -> str:
    """Return what marks mean, with the share of the kernel that they are about."""
    part = f" It makes {percent(sum(shares) / len(shares))} of the kernel with those that attract." if shares else ""
    return (
        f"Marked are words that both texts have, bolder the more their tokens add to the kernel of the two through the "
        f"encoder's table of tokens.{part} The layers behind it have the rest, which belongs to no single word."
    )


def quoted_row(desk: Desk, row: int, lines: Sequence[str] = ()) -> Quote:
    """Return what a training row says, with a few words about it."""
    assert desk.study.texts is not None
    return Quote(desk.train_name(row), shortened(desk.study.texts[0][row], LONG), tuple(lines), "", desk.link(row))
