"""Counterfactual influence: which training rows would change where a sample lies, if they had not been there?"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from krepes.audit.study import Study
from krepes.audit.wording import count, number, percent, signed, text
from krepes.data.marks import shortened
from krepes.data.text import printable
from krepes.influence import How, Influence
from krepes.report.content import (
    Block,
    Card,
    Cell,
    Choice,
    Chooser,
    Gallery,
    Headline,
    Paragraph,
    Quote,
    Quotes,
    Section,
    Table,
)
from krepes.report.pictures import thumbnail
from krepes.report.sections.guard import explains_a_step
from krepes.report.sections.samples import sample_name
from krepes.report.sections.sentences import quotable, quoted_row
from krepes.report.wording import cell, heads, missing

KEY, TITLE = "counterfactual", "Counterfactual influence: what if a row had not been there?"
WHY = (
    "The landmarks above say what an embedding is made of: they are terms of a sum. Here the question is another one: "
    "had a training row been left out, the whole solution would have moved, and the sample with it. A row can be a "
    "large term of the sum and still change little when it goes, because others take its place."
)


@explains_a_step(KEY, TITLE)
def counterfactual(study: Study) -> Section:
    """Return the section on the training rows whose removal would change the samples shown."""
    what = "which training rows would change a sample if removed"
    if not study.counterfactual:
        return missing(KEY, TITLE, what, study, flag="--counterfactual", argument="counterfactual=True")
    if study.data is None:
        return missing(KEY, TITLE, what, study, flag="the data of the run", argument="stream=, the training data")
    found, k = study.influence, study.k
    rank, overlap = _agreement(study, found)
    effects = _effects(found, k)
    spread = np.asarray(found.values).std(0) * np.sqrt(k) / study.n
    ratio = float(np.median(effects / np.maximum(spread, np.finfo(float).tiny)))
    finding = (
        f"Removing the {k} rows that hold a sample to its first landmark would change their cosine "
        f"{number(ratio, 2)} times as much as {k} random rows would; {percent(overlap) if overlap else 'none'} of the "
        f"{k} landmarks that a sample is made of are among its {k} most influential rows (rank correlation of the two "
        f"answers: {'undefined' if np.isnan(rank) else signed(rank, 2)})."
    )
    choices = tuple(Choice(sample_name(study, i), _choice(study, found, i)) for i in range(len(study.chosen)))
    return Section(
        KEY,
        TITLE,
        finding,
        f"First order, {_way(study, found)}: exact for small changes, a direction rather than a prediction for large "
        f"ones. {trust_line(study.trust.get(found.method))}",
        (Paragraph(WHY), Chooser("Sample", choices)),
        Headline(percent(overlap), f"of a sample's {k} landmarks are among its {k} most influential rows"),
    )


def trust_line(sentence: str | None) -> str:
    """Return what retraining said of these figures, or how to learn it.

    Args:
        sentence: Of a proof of this run for the rung that was taken, or ``None`` if there was none.

    Returns:
        One sentence.
    """
    if sentence is None:
        return "Trust: not measured for this run: run krepes prove RUN."
    return f"Trust: {printable(sentence).rstrip('.')}."


def _way(study: Study, found: Influence) -> str:
    """Return through what the rows were followed, at what cost, and why not through something better."""
    about, loss = found.details, (study.how or How()).loss or study.model.objective_.name
    name = loss if isinstance(loss, str) else "a loss of one's own"
    if found.method == "lazy":
        passes = f"{2 * about['draws']} passes over" if "draws" in about else f"{about['steps']} batches of"
        return (
            f"in the encoder linearised at itself, through {count(about['steps'], 'gradient step')} of {name} (lazy "
            f"replay, {passes} the training rows)"
        )
    if found.method == "warm":
        return f"through {count(about['steps'], 'gradient step')} of {name} from the encoder as it is (warm replay)"
    if found.method == "replay":
        return f"through the recorded training of {count(about['members'], 'encoder')} (replay)"
    why = f"; no replay: {about['no replay']}" if "no replay" in about else ""
    return (
        f"in the kernel model and not in the encoder (one pass, adjoint residuals of at most "
        f"{number(max(found.residuals))}{why})"
    )


def _agreement(study: Study, found: Influence) -> tuple[float, float]:
    """Return the rank correlation of scores and influences over landmarks, and the overlap of their first ``k``."""
    landmarks = study.model.landmarks_.numpy()
    scores, values = study.attribution.scores.numpy(), np.asarray(found.values)
    varies = [i for i in range(len(scores)) if np.ptp(scores[i]) > 0 and np.ptp(values[landmarks, i]) > 0]
    correlations = [spearmanr(scores[i], values[landmarks, i]).statistic for i in varies]
    made = landmarks[study.attribution.top(study.k).indices.numpy()]
    matter = [np.argsort(-np.abs(values[:, i]), kind="stable")[: study.k] for i in range(len(scores))]
    shared = [len(set(a.tolist()) & set(b.tolist())) / study.k for a, b in zip(made, matter, strict=True)]
    return float(np.mean(correlations)) if correlations else np.nan, float(np.mean(shared))


def _effects(found: Influence, k: int) -> np.ndarray:
    """Return how far each outcome would fall without the ``k`` rows that raise it most, ``(O,)``."""
    top = -np.sort(-np.asarray(found.values), axis=0)[:k]
    return top.sum(0) / len(found.values)


def _choice(study: Study, found: Influence, i: int) -> tuple[Block, ...]:
    values = np.asarray(found.values)[:, i]
    order = np.argsort(-values, kind="stable")
    together, apart = order[: study.k], order[::-1][: study.k]
    landmark = study.attribution.top(1).ids[i, 0]
    cosine = _cosine(study, found, i)
    without = -values[together].sum() / study.n
    spread = values.std() * np.sqrt(study.k) / study.n
    sentence = (
        f"The sample lies at a cosine of {signed(cosine)} to landmark {text(landmark)}. Without the "
        f"{count(study.k, 'row')} that hold them together it would {_moves(without)}; {study.k} random rows would move "
        f"it by about {number(float(spread), 2)}. {_unit(study, values, order)}"
    )
    blocks: list[Block] = [Paragraph(sentence), *_pair(study, i)]
    for rows, verb in ((together, "hold them together"), (apart, "drive them apart")):
        caption = f"Training rows that {verb}: change of the cosine if removed, in thousandths"
        shown = study.data.plain(torch.from_numpy(rows.copy())) if study.inputs == "image" and study.data else None
        if isinstance(shown, Tensor):
            blocks.append(_gallery(study, caption, shown, rows, values))
        elif quotable(study):
            blocks.append(_quotes(study, caption, rows, values))
        else:
            blocks.append(_table(study, caption, rows, values))
    return tuple(blocks)


def _cosine(study: Study, found: Influence, i: int) -> float:
    """Return the cosine that is asked about, in the kernel model or in the encoder, whichever was followed."""
    if found.method == "surrogate" or study.encoder is None:
        return float(study.bonds[i].value(study.model.solution_.theta))
    return float(study.bonds[i].of(study.encoder.encode))


def _moves(change: float) -> str:
    """Return a change of the cosine in words: 'fall by 0.004'."""
    return f"{'rise' if change > 0 else 'fall'} by {number(abs(change), 2)}"


def _unit(study: Study, values: np.ndarray, order: np.ndarray) -> str:
    """Return what a number of the tables means, by the first line of each."""
    told = []
    for row in dict.fromkeys((int(order[0]), int(order[-1]))):
        name, _, effect, _ = _about(study, row, values)
        told.append(
            f"{effect} means that the cosine would {_moves(-values[row] / study.n)} had row {name} not been there"
        )
    return f"Below, {', and '.join(told)}."


def _pair(study: Study, i: int) -> list[Block]:
    """Return the sample and its first landmark side by side, as images or as rows of a table."""
    X, Y = study.samples, study.landmarks
    top, name = study.attribution.top(1), sample_name(study, i)
    landmark = text(top.ids[i, 0])
    if quotable(study) and study.texts is not None:
        said = shortened(study.texts[1][int(study.chosen[i])])
        row = int(study.model.landmarks_[int(top.indices[i, 0])])
        two = (Quote("this sample", said, (name,), "ours"), quoted_row(study, row, "first landmark", (landmark,)))
        return [Quotes("The two whose cosine is asked about", two)]
    if study.inputs != "image" or not isinstance(X, Tensor) or not isinstance(Y, Tensor):
        return [] if study.tables is None else [_two_rows(study, i, landmark, int(top.indices[i, 0]))]
    cards = (
        Card("this sample", thumbnail(X[i], f"test sample {name}"), (name,), "ours"),
        Card(landmark, thumbnail(Y[int(top.indices[i, 0])], f"its first landmark {landmark}"), ("first landmark",)),
    )
    return [Gallery("The two whose cosine is asked about", cards)]


def _two_rows(study: Study, i: int, landmark: str, place: int) -> Table:
    assert study.tables is not None
    here = study.tables[1].iloc[int(study.chosen[i])].tolist()
    there = study.tables[0].iloc[int(study.model.landmarks_[place])].tolist()
    lines = (("this sample", sample_name(study, i), here), ("first landmark", landmark, there))
    rows = tuple((cell(what), cell(name), *map(cell, values)) for what, name, values in lines)
    return Table("The two whose cosine is asked about", heads("", "id", *map(str, study.tables[1])), rows)


def _about(study: Study, row: int, values: np.ndarray) -> tuple[str, str, str, bool]:
    """Return id, class, effect of removal in thousandths, and whether the row is a landmark."""
    label = study.label_of[0][row] if study.label_of else ""
    effect = signed(-1000 * float(values[row]) / study.n, 1)
    return text(study.train_id(row)), text(label), effect, row in set(study.model.landmarks_.tolist())


def _gallery(study: Study, caption: str, images: Tensor, rows: np.ndarray, values: np.ndarray) -> Gallery:
    cards = []
    for image, row in zip(images, rows.tolist(), strict=True):
        name, label, effect, is_landmark = _about(study, row, values)
        lines = [effect, *([f"class {label}"] if label else []), *(["landmark"] if is_landmark else [])]
        cards.append(Card(name, thumbnail(image, f"training row {name} class {label}, {effect}"), tuple(lines)))
    return Gallery(caption, tuple(cards))


def _quotes(study: Study, caption: str, rows: np.ndarray, values: np.ndarray) -> Quotes:
    quotes = []
    for row in rows.tolist():
        name, label, effect, is_landmark = _about(study, row, values)
        lines = (effect, f"class {label}" if label else "", "landmark" if is_landmark else "")
        quotes.append(quoted_row(study, row, name, lines))
    return Quotes(caption, tuple(quotes))


def _table(study: Study, caption: str, rows: np.ndarray, values: np.ndarray) -> Table:
    table = None if study.tables is None else study.tables[0]
    lines = []
    for row in rows.tolist():
        name, label, effect, is_landmark = _about(study, row, values)
        shown = (cell(label),) if study.label_of else ()
        columns = () if table is None else tuple(cell(value) for value in table.iloc[row].tolist())
        change = Cell(effect, -float(values[row]))
        lines.append((cell(name), change, cell("yes" if is_landmark else "no"), *shown, *columns))
    names = ["training row", "change", "landmark", *(["class"] if study.label_of else [])]
    return Table(caption, heads(*names, *(map(str, table) if table is not None else ())), tuple(lines))
