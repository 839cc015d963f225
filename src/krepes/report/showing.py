"""How a sample is shown: alone, or beside the training samples that bear on it. One place for every kind of data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from krepes.audit.features import agreement
from krepes.audit.wording import text
from krepes.report.blocks import Block, Card, Cell, Facts, Gallery, Quotes, Table
from krepes.report.desk import Bond, Desk
from krepes.report.pictures import thumbnail
from krepes.report.sentences import quotable, quoted, quoted_row
from krepes.report.wording import cell, heads


def portrait(desk: Desk, row: int) -> tuple[Block, ...]:
    """Return a training sample as a person sees it: its picture, or its columns; nothing if it has neither.

    Args:
        desk: What is known.
        row: Among the training samples.

    Returns:
        Blocks.
    """
    study, name = desk.study, desk.train_name(row)
    pictures = desk.pictures([row])
    facts = (
        [] if study.tables is None else [(str(key), text(value)) for key, value in study.tables[0].iloc[row].items()]
    )
    columns: tuple[Block, ...] = (Facts(tuple(facts)),) if facts else ()
    if quotable(study):
        return (Quotes("", (quoted_row(desk, row),)), *columns)
    if pictures is None:
        return columns
    return (Gallery("", (Card(name, thumbnail(pictures[0], f"training sample {name}"), (), "ours"),)), *columns)


def beside(desk: Desk, caption: str, place: int, bonds: Sequence[Bond]) -> tuple[Block, ...]:
    """Return a test sample beside training samples, each with how it bears on it.

    Args:
        desk: What is known.
        caption: What is shown.
        place: Of the test sample.
        bonds: The training samples.

    Returns:
        Pictures, a table of columns with those that differ most first, or a plain list.
    """
    study = desk.study
    if not bonds:
        return ()
    if quotable(study):
        return quoted(desk, caption, place, bonds)
    pictures = desk.pictures([bond.row for bond in bonds])
    sample = study.test(torch.tensor([place])) if pictures is not None else None
    if pictures is not None and isinstance(sample, Tensor):
        return (_gallery(desk, caption, place, sample[0], pictures, bonds),)
    if study.tables is not None and study.space is not None:
        return (_columns(desk, caption, place, bonds),)
    return (_list(desk, caption, bonds),)


def _gallery(desk: Desk, caption: str, place: int, sample: Tensor, pictures: Tensor, bonds: Sequence[Bond]) -> Gallery:
    name = desk.name(place)
    cards = [Card("this sample", thumbnail(sample, f"test sample {name}"), (name,), "ours")]
    for picture, bond in zip(pictures, bonds, strict=True):
        title, of_class = desk.train_name(bond.row), desk.class_of(bond.row)
        lines = (bond.said, *((f"class {of_class}",) if of_class else ()))
        alt = f"training sample {title}: {', '.join(lines)}"
        cards.append(Card(title, thumbnail(picture, alt), lines, bond.tone, desk.link(bond.row)))
    return Gallery(caption, tuple(cards))


def _columns(desk: Desk, caption: str, place: int, bonds: Sequence[Bond]) -> Table:
    """Return the test row beside training rows; cells shaded by how far they differ, columns that differ most first."""
    study = desk.study
    assert study.tables is not None and study.space is not None
    space, row = study.space, study.tables[1].iloc[[place]]
    others = study.tables[0].iloc[[bond.row for bond in bonds]]
    apart = dict(zip(space.defined, (1 - agreement(space.encode(row), space.encode(others))).T, strict=True))
    lines = [] if study.label_of is None else [_classes(desk, place, bonds)]
    for name in sorted(space.names, key=lambda name: -float(apart[name].mean()) if name in apart else 1.0):
        shades = [round(3 * float(x)) for x in apart[name]] if name in apart else [0] * len(bonds)
        values = [cell(v, shade=shade) for v, shade in zip(others[name].tolist(), shades, strict=True)]
        lines.append((cell(str(name)), cell(row[name].iloc[0]), *values))
    top = [Cell("column"), Cell(text(study.test_id(place)), note="this sample")]
    top += [Cell(desk.train_name(b.row), None, b.tone, link=desk.link(b.row), note=b.said) for b in bonds]
    return Table(caption, tuple(top), tuple(lines))


def _classes(desk: Desk, place: int, bonds: Sequence[Bond]) -> tuple[Cell, ...]:
    assert desk.study.label_of is not None
    mine = desk.study.label_of[1][place]
    theirs = [desk.study.label_of[0][bond.row] for bond in bonds]
    return (Cell("class (judges only)"), cell(mine), *(cell(one, shade=3 * (one != mine)) for one in theirs))


def _list(desk: Desk, caption: str, bonds: Sequence[Bond]) -> Table:
    rows = tuple(
        (
            Cell(desk.train_name(bond.row), link=desk.link(bond.row)),
            Cell(bond.said, bond.value, bond.tone),
            *((Cell(desk.class_of(bond.row)),) if desk.study.label_of else ()),
        )
        for bond in bonds
    )
    return Table(caption, heads("training sample", "how", *(["class"] if desk.study.label_of else [])), rows)
