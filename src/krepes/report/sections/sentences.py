"""Texts in a report: a sample and its landmarks in their own words, those on which they agree marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from krepes.attribution import agreements
from krepes.audit.study import Study
from krepes.audit.wording import percent, signed, text
from krepes.data.marks import MarkedText, shortened
from krepes.report.content import Block, Paragraph, Quote, Quotes, Tone

LONG = 400
"""Characters of a sample that is shown by itself."""
Landmark = tuple[int, Any, float, Tone]
"""Place among the landmarks, id, score, and whether it attracts or repels."""
CAPTIONS = {"attracts": "The sample and the landmarks that attract it", "repels": "The landmarks that repel it"}


def quotable(study: Study) -> bool:
    """Say whether samples are texts that can be shown."""
    return study.texts is not None and study.tokenizer is not None and study.landmarks is not None


def quoted_landmarks(study: Study, names: Sequence[str], found: Sequence[Sequence[Landmark]]) -> list[list[Block]]:
    """Return each sample that is shown and its landmarks as texts, marked where they agree.

    Args:
        study: Of texts.
        names: What the samples are called.
        found: Landmarks of each.

    Returns:
        Blocks of each: those that attract, with the sample above them, those that repel, and what the marks mean.
    """
    assert study.texts is not None and study.tokenizer is not None and study.landmarks is not None
    samples = (study.samples, [study.texts[1][place] for place in study.chosen.tolist()])
    others = (study.landmarks, study.of_landmarks(study.texts[0]))
    pairs = [(i, landmark[0]) for i, landmarks in enumerate(found) for landmark in landmarks]
    made = agreements(study.model, study.tokenizer, samples, others, pairs)
    blocks, start = [], 0
    for name, sample, landmarks in zip(names, made.samples, found, strict=True):
        those = slice(start, start := start + len(landmarks))
        quotes = _quotes(study, landmarks, made.others[those])
        quotes["attracts"].insert(0, Quote("this sample", shortened(sample, LONG), (name,), "ours"))
        shown: list[Block] = [Quotes(CAPTIONS[tone], tuple(some)) for tone, some in quotes.items() if some]
        near = [share for share, landmark in zip(made.shares[those], landmarks, strict=True) if landmark[2] > 0]
        blocks.append([*shown, Paragraph(made.note or _meaning(near))])
    return blocks


def _quotes(study: Study, landmarks: Sequence[Landmark], texts: Sequence[MarkedText]) -> dict[str, list[Quote]]:
    classes = study.of_landmarks(study.label_of[0]) if study.label_of else None
    quotes: dict[str, list[Quote]] = {"attracts": [], "repels": []}
    for (l, landmark, score, tone), said in zip(landmarks, texts, strict=True):
        lines = (f"{tone} {signed(score)}", *((f"class {text(classes[l])}",) if classes else ()))
        quotes[tone].append(Quote(f"landmark {text(landmark)}", shortened(said), lines, tone))
    return quotes


def _meaning(shares: Sequence[float]) -> str:
    """Return what marks mean, with the share of the kernel that they are about."""
    part = f" It makes {percent(sum(shares) / len(shares))} of the kernel with those that attract." if shares else ""
    return (
        f"Marked are words that both texts have, bolder the more their tokens add to the kernel of the two through the "
        f"encoder's table of tokens.{part} The layers behind it have the rest, which belongs to no single word."
    )


def quoted_row(study: Study, row: int, title: str, lines: Sequence[str], tone: Tone = "") -> Quote:
    """Return what a training row says, with a few words about it."""
    assert study.texts is not None
    return Quote(title, shortened(study.texts[0][row]), tuple(line for line in lines if line), tone)
