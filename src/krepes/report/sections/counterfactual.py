"""Counterfactual influence: which training rows would change where a sample lies, if they had not been there?"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from krepes.audit.study import Study
from krepes.audit.wording import count, number, percent, signed, text
from krepes.data.text import printable
from krepes.influence import How, Influence
from krepes.influence.caution import beside_a_proof
from krepes.report.blocks import Block, Cell, Paragraph, Table
from krepes.report.content import Headline, Section
from krepes.report.desk import Bond, Desk, moved
from krepes.report.sections.guard import NOTHING
from krepes.report.sections.samples import closeness
from krepes.report.sentences import quotable, quoted
from krepes.report.wording import heads, missing

KEY, TITLE = "counterfactual", "Removal: what if a training row had not been there"
IN_WORDS = 3
"""Samples whose rows are shown as texts here; those of the others stand with them."""
WHY = (
    "The landmarks say what an embedding is made of: they are terms of a sum. Here the question is another one: had a "
    "training row been left out, the whole solution would have moved, and the sample with it. A row can be a large "
    "term of the sum and still change little when it goes, because others take its place. The rows of each sample "
    "stand with the sample itself, above."
)


def counterfactual(desk: Desk) -> Section:
    """Return the section on the training rows whose removal would change the samples shown."""
    study = desk.study
    if not study.moved:
        return Section(KEY, TITLE, NOTHING)
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
        f"Removing the {k} rows that hold a sample to its first landmark would change their closeness "
        f"{number(ratio, 2)} times as much as {k} random rows would; {percent(overlap) if overlap else 'none'} of the "
        f"{k} landmarks that a sample is made of are among its {k} most influential rows (rank correlation of the two "
        f"answers: {'undefined' if np.isnan(rank) else signed(rank, 2)})."
    )
    return Section(
        KEY,
        TITLE,
        finding,
        f"First order, {_way(study, found)}: exact for small changes, a direction rather than a prediction for large "
        f"ones. {trust_line(study.trust.get(found.method), found.details.get('caution'))} "
        f"{beside_a_proof(found.details)}".rstrip(),
        (Paragraph(WHY), _table(desk), *_sentences(desk)),
        Headline(percent(overlap), f"of a sample's {k} landmarks are among its {k} most influential rows"),
    )


def _table(desk: Desk) -> Table:
    """Return for every sample shown in depth how close it is to its first landmark, and what removal would do."""
    study, rows = desk.study, []
    values = np.asarray(study.influence.values)
    top = study.attribution.top(1)
    for i in range(desk.deep):
        near, (together, apart) = 100 * closeness(study, i), desk.would_change(i)
        landmark = desk.rows[int(top.indices[i, 0])]
        chance = 100 * float(values[:, i].std()) * np.sqrt(study.k) / study.n
        gone = [sum(bond.value for bond in part) for part in (together, apart)]
        rows.append((
            Cell(desk.name(desk.places[i]), link=f"sample-{desk.places[i]}"),
            Cell(text(top.ids[i, 0]), link=desk.link(landmark)),
            Cell(f"{near:.0f} of 100", near),
            *(Cell(moved(change), change) for change in gone),
            Cell(f"± {chance:.2g}", chance),
        ))
    k = study.k
    caption = (
        f"Closeness of each sample to the landmark that attracts it most, and its change without {count(k, 'row')}"
    )
    names = (
        "sample",
        "first landmark",
        "closeness",
        f"without the {k} that hold",
        f"without the {k} that drive",
        f"{k} random",
    )
    return Table(caption, heads(*names), tuple(rows))


def _sentences(desk: Desk) -> tuple[Block, ...]:
    """Return of texts a few samples in words: the landmark, the row that holds it there and the one that drives it."""
    if not quotable(desk.study):
        return ()
    blocks: list[Block] = []
    top = desk.study.attribution.top(1).indices
    for i in range(min(IN_WORDS, desk.deep)):
        together, apart = desk.would_change(i)
        landmark = Bond(desk.rows[int(top[i, 0])], "attracts", "the landmark that attracts it most", 0.0)
        bonds = [landmark, *together[:1], *apart[:1]]
        caption = (
            "A sample, its first landmark, the row that holds them together most and the one that drives them apart"
        )
        quotes, meaning = quoted(desk, caption, desk.places[i], bonds)
        blocks += [quotes] if i + 1 < min(IN_WORDS, desk.deep) else [quotes, meaning]
    return tuple(blocks)


def trust_line(sentence: str | None, caution: str | None = None) -> str:
    """Return what retraining said of these figures, or how to learn it.

    Args:
        sentence: Of a proof of this run for the rung that was taken, or ``None`` if there was none.
        caution: What other runs have shown against such figures, if anything.

    Returns:
        One sentence, or two.
    """
    if sentence is None:
        known = "" if caution is None else f" {caution[0].upper()}{caution[1:].rstrip('.')}."
        return f"Trust: not measured for this run: run krepes prove RUN.{known}"
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
        taken, again = count(about["steps"], "gradient step"), about.get("rewinds", 0)
        back = f" and as many that lead back to it from {count(again, 'rewind')} of its weights" if again else ""
        return f"through {taken} of {name} from the encoder as it is{back} (warm replay)"
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
