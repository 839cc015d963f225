"""Words that a reader of a report may not know, each explained in a sentence, wherever it is first used."""

from __future__ import annotations

import re
from collections.abc import MutableSet

from markupsafe import Markup, escape

GLOSSARY = {
    "encoder": "A network that turns a sample into a list of numbers. Samples with similar numbers are treated alike.",
    "embedding": "The list of numbers that the encoder makes of a sample: where the sample lies.",
    "latent space": "The space of all embeddings: what lies close in it is alike to the encoder.",
    "surrogate": "A simpler model that imitates the encoder. All explanations come from it.",
    "kernel": "A number for any two samples that says how alike they are to the encoder.",
    "landmark": "A training sample that was chosen to stand for others. Every embedding is a sum over landmarks.",
    "attracts": "Pulls the sample towards itself: the sample is made of it.",
    "repels": "Pushes the sample away: the sample is unlike it, compared with the average pair.",
    "anchored": "Tied most strongly to: the landmark that attracts the sample most is of that kind.",
    "pull": "All landmarks attract or repel a sample a little; a share of the pull is a share of all of it.",
    "shift": "What the training objective adds to an embedding, beyond plain likeness.",
    "closeness": "How close two samples lie in the latent space: 100 is the same direction, 0 is unrelated.",
    "objective": "What the encoder was trained for, without labels.",
    "alignment gap": "How much more alike samples and their landmarks are in a column than chance gives, 0 to 1.",
    "shuffled": "What is left when values are dealt out at random: what chance alone would give.",
    "probe": "A simple classifier that is trained on embeddings, to see what they hold.",
    "hidden": "Not shown to the encoder, and only used to ask whether it is given away.",
    "concept": "An idea of the reader's, given by examples, looked for as a direction in the latent space.",
    "lift": "How many times as often as chance would have it. One is chance.",
    "interval": "The range in which the number would lie for most other samples of the same kind.",
    "confidence": "The share of neighbours that vote for the class.",
    "RankMe": "How many dimensions of the embedding are used, as an effective number.",
    "corrected": "Made stricter for the number of things that were tried.",
    "replay": "Training gone through again on paper, to see what each row did.",
}
FORMS = {form: term for term in GLOSSARY for form in (term, f"{term}s")}
PATTERN = re.compile(rf"(?<![\w-])({'|'.join(sorted(map(re.escape, FORMS), key=len, reverse=True))})(?![\w-])")


def anchor(term: str) -> str:
    """Return the id of a term on the page."""
    return "word-" + re.sub(r"\W+", "-", term.lower())


def glossed(text: str, seen: MutableSet[str]) -> Markup:
    """Return text as HTML in which every known word leads to its explanation, the first time it is used.

    Args:
        text: Plain text; it is escaped here.
        seen: Words that were explained before; those of this text are added.

    Returns:
        The markup.

    Example:
        >>> print(glossed("two landmarks < one landmark", set()))
        two <a class="term" href="#word-landmark">landmarks</a> &lt; one landmark
    """

    def linked(match: re.Match[str]) -> str:
        term = FORMS[match[0]]
        if term in seen:
            return match[0]
        seen.add(term)
        return f'<a class="term" href="#{anchor(term)}">{match[0]}</a>'

    return Markup(PATTERN.sub(linked, str(escape(text))))
