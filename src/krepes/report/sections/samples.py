"""Samples: what each is made of, the landmarks that attract and repel it, beside what other methods would name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from krepes.attribution import Top
from krepes.audit.features import agreement
from krepes.audit.study import Study
from krepes.audit.wording import count, number, percent, signed, text
from krepes.report.content import Block, Card, Cell, Choice, Chooser, Gallery, Section, Table, Tone
from krepes.report.pictures import thumbnail
from krepes.report.sections.guard import explains_a_step
from krepes.report.sections.sentences import quotable, quoted_landmarks
from krepes.report.wording import cell, heads, method_cell

KEY, TITLE = "samples", "Samples and what they are made of"


@explains_a_step(KEY, TITLE)
def samples(study: Study) -> Section:
    """Return the section with a chooser over samples."""
    found = study.attribution
    attractive, repulsive = found.top(study.k), found.top(study.k, by="repulsive")
    strongest = found.top(study.k, by="magnitude").indices
    length = torch.linalg.vector_norm(found.shift, dim=1)
    share = found.directional.gather(1, strongest).sum(1) / length.clamp_min(1e-300)
    repelled = float((found.scores < 0).double().mean())
    finding = (
        f"In the {count(len(found), 'sample')} shown, the {study.k} strongest landmarks make "
        f"{percent(float(share.median()))} of a typical shift, and {percent(repelled)} of all landmarks repel."
    )
    same = _same_class(study)
    if same:
        finding += (
            f" The landmark that attracts most has the sample's class in {percent(same['influence'])} of "
            f"{count(study.t, 'test sample')} (at random: {percent(same['random'])})."
        )
    signs = [_signs(i, attractive, repulsive) for i in range(len(found))]
    names = [sample_name(study, i) for i in range(len(found))]
    quotes = quoted_landmarks(study, names, signs) if quotable(study) else [[] for _ in names]
    choices = [_choice(study, i, attractive, repulsive, float(length[i]), quotes[i]) for i in range(len(found))]
    return Section(
        KEY,
        TITLE,
        finding,
        "These landmarks are what the embedding is made of. They are not the rows whose removal from training would "
        "change it most: see the counterfactual section.",
        (Chooser("Sample", tuple(choices)),),
    )


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


def _choice(study: Study, i: int, attractive: Top, repulsive: Top, length: float, quotes: list[Block]) -> Choice:
    name = sample_name(study, i)
    blocks: list[Block] = list(quotes)
    if study.inputs == "image" and isinstance(study.landmarks, Tensor):
        blocks += _pictures(study, i, name, attractive, repulsive)
    elif not quotes and study.tables is not None and study.space is not None:
        blocks.append(_differences(study, i, attractive, "attracts"))
        blocks.append(_differences(study, i, repulsive, "repels"))
    blocks.append(_numbers(study, i, attractive, repulsive, length))
    return Choice(name, (*blocks, *_other_methods(study, i)))


def sample_name(study: Study, i: int) -> str:
    """Return what the sample ``i`` of those shown is called: its id, and its class if that is known."""
    label = f", class {text(study.label_of[1][int(study.chosen[i])])}" if study.label_of else ""
    return f"{text(study.sample_ids[i])}{label}"


def _signs(i: int, attractive: Top, repulsive: Top) -> list[tuple[int, Any, float, Tone]]:
    """Return place, id, score and role of each landmark to show: none that attracts is listed as repelling."""
    found: list[tuple[int, Any, float, Tone]] = []
    for top, sign, tone in ((attractive, 1, "attracts"), (repulsive, -1, "repels")):
        for l, name, score in zip(top.indices[i].tolist(), top.ids[i], top.scores[i].tolist(), strict=True):
            if sign * score > 0:
                found.append((l, name, score, "attracts" if tone == "attracts" else "repels"))
    return found


def _pictures(study: Study, i: int, name: str, attractive: Top, repulsive: Top) -> list[Block]:
    assert isinstance(study.landmarks, Tensor) and isinstance(study.samples, Tensor)
    classes = study.of_landmarks(study.label_of[0]) if study.label_of else None
    cards: dict[str, list[Card]] = {"attracts": [], "repels": []}
    cards["attracts"].append(Card("this sample", thumbnail(study.samples[i], f"test sample {name}"), (name,), "ours"))
    for l, landmark, score, tone in _signs(i, attractive, repulsive):
        of_class = f"class {text(classes[l])}" if classes else ""
        alt = f"landmark {text(landmark)} {of_class} {tone} with score {signed(score)}"
        lines = (f"{tone} {signed(score)}", *([of_class] if of_class else []))
        cards[tone].append(Card(text(landmark), thumbnail(study.landmarks[l], alt), lines, tone))
    captions = {"attracts": "The sample and the landmarks that attract it", "repels": "The landmarks that repel it"}
    return [Gallery(captions[tone], tuple(found)) for tone, found in cards.items() if found]


def _differences(study: Study, i: int, top: Top, tone: Tone) -> Table:
    """Return the test row beside landmark rows, cells shaded by how far they differ."""
    assert study.tables is not None and study.space is not None
    space, sign = study.space, 1 if tone == "attracts" else -1
    kept = [j for j in range(top.indices.shape[1]) if sign * float(top.scores[i, j]) > 0]
    row = study.tables[1].iloc[[int(study.chosen[i])]]
    places = study.model.landmarks_[top.indices[i, kept]].numpy()
    landmark_rows = study.tables[0].iloc[places]
    apart = dict(zip(space.defined, (1 - agreement(space.encode(row), space.encode(landmark_rows))).T, strict=True))
    columns = [Cell("column"), Cell("this row")]
    columns += [Cell(f"{text(top.ids[i][j])} ({signed(float(top.scores[i, j]))})", None, tone) for j in kept]
    rows = []
    for name in space.names:
        shades = [round(3 * float(x)) for x in apart[name]] if name in apart else [0] * len(kept)
        values = [cell(v, shade=shade) for v, shade in zip(landmark_rows[name].tolist(), shades, strict=True)]
        rows.append((cell(str(name)), cell(row[name].iloc[0]), *values))
    caption = f"The row beside the landmarks that {'attract' if sign > 0 else 'repel'} it; shaded where they differ"
    return Table(caption, tuple(columns), tuple(rows))


def _numbers(study: Study, i: int, attractive: Top, repulsive: Top, length: float) -> Table:
    found = study.attribution
    rows = []
    for l, landmark, score, tone in _signs(i, attractive, repulsive):
        along, kernel = float(found.directional[i, l]), float(found.K_tm[i, :, l].mean())
        numbers = [Cell(signed(x), x) for x in (score, along, kernel)]
        rows.append((cell(landmark), Cell(tone, None, tone), *numbers))
    caption = f"Their numbers; the parts of all landmarks and the shift term sum to |shift| = {number(length)}"
    return Table(
        caption, heads("landmark", "effect", "score", "part along the shift", "kernel"), tuple(rows), folded=True
    )


def _other_methods(study: Study, i: int) -> list[Block]:
    """Return what each baseline would name, with classes where they are known."""
    if not study.rankings:
        return []
    ids = study.model.landmark_ids_
    classes = study.of_landmarks(study.label_of[0]) if study.label_of else None
    rows = []
    for method, top in study.rankings.items():
        named = top[int(study.chosen[i]), : study.k].tolist()
        rows.append((
            method_cell(method),
            *(cell(f"{text(ids[l], 24)}" + (f" ({text(classes[l], 12)})" if classes else "")) for l in named),
        ))
    places = [f"{place + 1}" for place in range(len(rows[0]) - 1)]
    caption = "What other methods name first" + (", classes in brackets" if classes else "")
    return [Table(caption, heads("ranked by", *places), tuple(rows), folded=True)]
