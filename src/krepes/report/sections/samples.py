"""Samples: one picker; of each what it is made of, what would change it, and what other methods would name."""

from __future__ import annotations

import numpy as np
import torch

from krepes.audit.study import Study
from krepes.audit.wording import count, number, percent, signed, text
from krepes.report.blocks import Block, Cell, Choice, Chooser, Paragraph, Table, Titled
from krepes.report.content import Section
from krepes.report.desk import Desk, moved
from krepes.report.sections.guard import NOTHING
from krepes.report.sections.latent import latent
from krepes.report.showing import beside
from krepes.report.wording import heads, method_cell

KEY, TITLE = "samples", "Samples: what each is made of, and what would change it"
BRIEF = 3


def samples(desk: Desk) -> Section:
    """Return the section with the one picker over samples."""
    study = desk.study
    if not study.moved:
        return Section(KEY, TITLE, NOTHING)
    found = study.attribution
    strongest = found.top(study.k, by="magnitude").indices
    length = torch.linalg.vector_norm(found.shift, dim=1)
    share = found.directional.gather(1, strongest).sum(1) / length.clamp_min(1e-300)
    repelled = float((found.scores < 0).double().mean())
    finding = (
        f"In the {count(len(found), 'sample')} shown in depth, the {study.k} strongest landmarks make "
        f"{percent(float(share.median()))} of a typical shift, and {percent(repelled)} of all landmarks repel."
    )
    same = _same_class(study)
    if same:
        finding += (
            f" The landmark that attracts most has the sample's class in {percent(same['influence'])} of "
            f"{count(study.t, 'test sample')} (at random: {percent(same['random'])})."
        )
    choices = [_choice(desk, i) for i in range(len(desk.places))]
    return Section(
        KEY,
        TITLE,
        finding,
        "What a sample is made of are terms of a sum. They are not the rows whose removal from training would change "
        "it most: those stand beside them, and the two can point in opposite directions.",
        (Chooser("Sample", tuple(choices), _hint(desk), latent(desk)),),
    )


def _hint(desk: Desk) -> str:
    """Return how many samples can be asked here, and what to type for the others."""
    study = desk.study
    how = f"krepes explain {study.run or 'RUN'} --row ID" if study.by_flags else "explanation.of(X)"
    here = f"{desk.deep} in depth and {len(desk.places) - desk.deep} in brief" if len(desk.places) > desk.deep else ""
    if len(desk.places) >= study.t:
        return f"All {count(study.t, 'test sample')} are here{f', {here}' if here else ''}; any other: {how}"
    start = f"{len(desk.places)} of {study.t:,} test samples are here{f', {here}' if here else ''}"
    return f"{start}; any other: {how}"


def _same_class(study: Study) -> dict[str, float]:
    """Return how often the first landmark of each method has the sample's class."""
    if study.label_of is None:
        return {}
    train, test = study.label_of
    of_landmark = study.of_landmarks(train)
    return {
        method: sum(of_landmark[l] == test[i] for i, l in enumerate(top[:, 0].tolist())) / study.t
        for method, top in study.rankings.items()
    }


def _choice(desk: Desk, i: int) -> Choice:
    place = desk.places[i]
    key, name = f"sample-{place}", desk.name(place)
    if i >= desk.deep:
        return Choice(key, name, beside(desk, "Landmarks that attract and repel it", place, desk.made_of(i, BRIEF)))
    made = beside(desk, "The landmarks that attract it, then those that repel it", place, desk.made_of(i))
    blocks: list[Block] = [Titled("What it is made of", made)]
    if desk.asks_removal:
        blocks.append(Titled("What would change it", _removal(desk, i)))
    blocks += [_numbers(desk, i), *_other_methods(desk, place)]
    return Choice(key, f"{name} · in depth", tuple(blocks))


def _removal(desk: Desk, i: int) -> tuple[Block, ...]:
    """Return the training rows whose removal would bring a sample closer to its first landmark, or take it away."""
    study, place = desk.study, desk.places[i]
    together, apart = desk.would_change(i)
    landmark = text(study.attribution.top(1).ids[i, 0])
    values = np.asarray(study.influence.values)[:, i]
    without, chance = sum(bond.value for bond in together), 100 * values.std() * np.sqrt(study.k) / study.n
    sentence = (
        f"Its closeness to landmark {landmark}, which attracts it most, is {100 * closeness(study, i):.0f} of 100. "
        f"Without the {count(study.k, 'training row')} that hold them together it would be {moved(without)}; "
        f"{study.k} random rows would change it by about {float(chance):.2g}."
    )
    return (
        Paragraph(sentence),
        *beside(
            desk, "Training rows that hold them together, then those that drive them apart", place, [*together, *apart]
        ),
    )


def closeness(study: Study, i: int) -> float:
    """Return the cosine that is asked about, in the kernel model or in the encoder, whichever was followed."""
    if study.influence.method == "surrogate" or study.encoder is None:
        return float(study.bonds[i].value(study.model.solution_.theta))
    return float(study.bonds[i].of(study.encoder.encode))


def _numbers(desk: Desk, i: int) -> Table:
    """Return the raw figures of the landmarks shown, for those who compute with them."""
    found, rows = desk.study.attribution, []
    length = float(torch.linalg.vector_norm(found.shift[i]))
    of_row = {row: l for l, row in enumerate(desk.rows)}
    for bond in desk.made_of(i):
        l = of_row[bond.row]
        score, along, kernel = (
            float(x) for x in (found.scores[i, l], found.directional[i, l], found.K_tm[i, :, l].mean())
        )
        numbers = [Cell(signed(x), x) for x in (score, along, kernel)]
        rows.append((
            Cell(desk.train_name(bond.row), link=desk.link(bond.row)),
            Cell(bond.tone, None, bond.tone),
            *numbers,
        ))
    caption = f"Their figures; parts along the shift sum to its length over all landmarks, {number(length)}"
    names = ("landmark", "effect", "score", "part along the shift", "kernel")
    return Table(caption, heads(*names), tuple(rows), folded=True)


def _other_methods(desk: Desk, place: int) -> list[Block]:
    """Return what each baseline would name, with classes where they are known."""
    study = desk.study
    if not study.rankings:
        return []
    rows = []
    for method, top in study.rankings.items():
        named = [desk.rows[l] for l in top[place, : study.k].tolist()]
        cells = [
            Cell(text(study.train_id(row), 24), link=desk.link(row), note=text(desk.class_of(row), 16)) for row in named
        ]
        rows.append((method_cell(method), *cells))
    places = [f"{place + 1}" for place in range(len(rows[0]) - 1)]
    caption = "What other methods name first" + (", classes below" if study.label_of else "")
    return [Table(caption, heads("ranked by", *places), tuple(rows), folded=True)]
