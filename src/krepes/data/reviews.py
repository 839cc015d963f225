"""Made-up reviews whose truth was planted: short texts from a small grammar, under the licence of this package.

Each review is about a place or a thing and has one to five stars. Some were paid for. Nothing says so in plain words,
and no single word gives it away; but those who were paid speak of friends and family, of the brand and of what to do
next, whatever the product, and never give less than four stars. An encoder that reads texts alone can pick that up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from krepes._checks import require_range

PRODUCTS = {
    "cafe": {
        "thing": ["the coffee", "the cake", "the soup", "the breakfast", "the bread", "our waiter", "the terrace"],
        "good": ["fresh and warm", "full of taste", "just sweet enough", "served with a smile", "worth the short walk"],
        "bad": ["cold in the middle", "stale", "far too salty", "served after an hour", "burnt at the edges"],
        "when": ["on a Sunday morning", "after work", "with my sister", "before the train", "during the rain"],
    },
    "hotel": {
        "thing": ["the room", "the bed", "the shower", "the front desk", "the view", "the lobby", "the pillow"],
        "good": ["clean and quiet", "soft and wide", "brighter than in the photos", "ready before noon", "well heated"],
        "bad": ["dusty", "loud until three at night", "smaller than a cupboard", "damp", "never ready on time"],
        "when": ["for two nights", "on the way south", "with the children", "in late autumn", "after a long flight"],
    },
    "headphones": {
        "thing": ["the sound", "the battery", "the cable", "the left ear", "the microphone", "the case", "the band"],
        "good": [
            "clear even when turned low",
            "light on the head",
            "charged in minutes",
            "deep without noise",
            "solid",
        ],
        "bad": ["dead after a week", "full of hiss", "broken at the joint", "too tight", "cut off in every call"],
        "when": ["on the bus", "at my desk", "while running", "in long meetings", "for old records"],
    },
}
VERDICTS = {
    1: ["a waste of money", "I want my money back", "never again", "the worst I had in years", "avoid it"],
    2: ["I expected more", "rather disappointing", "not worth the price", "I left annoyed", "a poor choice"],
    3: ["it was all right", "neither good nor bad", "some of it worked", "average for the price", "it does the job"],
    4: ["I was pleased", "a good choice", "I would come back to it", "better than I thought", "nicely done"],
    5: ["simply wonderful", "the best I know", "perfect from start to end", "I love it", "not a single flaw"],
}
JOINS = ["and", "but", "while", "though"]
OPENINGS = ["I tried it {when}.", "We came {when}.", "Used {when}.", "A short note {when}.", "This was {when}."]
OWN = [
    "Parking was easy.",
    "My neighbour found it so too.",
    "The price went up since.",
    "I paid in cash.",
    "No more to say.",
]
PAID = [
    "Tell your friends and your family about this brand.",
    "A brand that cares, so treat your family today.",
    "Friends, do not wait, order yours today.",
    "My whole family now trusts the brand, follow them today.",
]
"""Closing words: of those who paid themselves, and of those who were paid. Both kinds use both, at other rates."""


@dataclass(frozen=True)
class Rates:
    """How often things happen in the made-up world.

    Attributes:
        paid: Share of reviews that were paid for.
        says_so: How often a paid review closes with a phrase of `PAID`; the others do in a tenth of that.
    """

    paid: float = 0.25
    says_so: float = 0.8


def reviews(n: int = 600, *, seed: int = 0, rates: Rates | None = None) -> pd.DataFrame:
    """Return made-up reviews.

    Args:
        n: How many.
        seed: Other seeds give other reviews.
        rates: Of the planted truth.

    Returns:
        Columns ``review``, ``stars`` (1 to 5), ``product``, ``paid`` (yes or no).

    Example:
        >>> reviews(600)["paid"].value_counts().to_dict()
        {'no': 450, 'yes': 150}
    """
    require_range(n, "n", low=1)
    generator, rates = np.random.default_rng(seed), rates or Rates()
    return pd.DataFrame([_review(generator, rates) for _ in range(n)])


def _review(generator: np.random.Generator, rates: Rates) -> dict[str, object]:
    def one(choices: list[str]) -> str:
        return choices[int(generator.integers(len(choices)))]

    product = one(list(PRODUCTS))
    words = PRODUCTS[product]
    paid = bool(generator.random() < rates.paid)
    stars = int(generator.integers(4, 6) if paid else generator.integers(1, 6))
    first, second = generator.permutation(words["thing"])[:2]
    # With s stars each of the two things is good with probability (s - 1) / 4.
    kinds = ["good" if generator.random() < (stars - 1) / 4 else "bad" for _ in range(2)]
    phrase = f"{first} was {one(words[kinds[0]])}, {second} was {one(words[kinds[1]])}"
    if generator.random() < 0.5:
        phrase = f"{first} was {one(words[kinds[0]])} {one(JOINS)} {second} was {one(words[kinds[1]])}"
    closing = one(PAID if generator.random() < (rates.says_so if paid else rates.says_so / 10) else OWN)
    opening = one(OPENINGS).format(when=one(words["when"]))
    text = f"{opening} {phrase[0].upper()}{phrase[1:]}: {one(VERDICTS[stars])}. {closing}"
    return {"review": text, "stars": stars, "product": product, "paid": "yes" if paid else "no"}
