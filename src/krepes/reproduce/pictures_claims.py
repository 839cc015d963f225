"""What the paper's pictures claim: landmarks that attract are of the class, those that repel are of others."""

from __future__ import annotations

from functools import partial

import pandas as pd

from krepes.reproduce.claims import Claim, Judge, Reading, under_each
from krepes.reproduce.trial import READ

DATA = ("cifar10", "mnist")
SHARE, DISTANCE, INPUT = "share of the sample's class", "latent distance over mean", "input distance over mean"
TOP = 3
TWICE = 2.0
NEGATIVE, REPEL = "share of negative scores", 0.01
"""How many scores repel, and the share of them below which nothing is said to."""


def _repelling(table: pd.DataFrame, *, data: str, judge: Judge) -> tuple[bool, str]:
    """Return what a judge says where landmarks repel at all; where hardly any score is negative, that none does."""
    table = table[table["data"] == data]
    share = float(table[table["measure"] == NEGATIVE]["mean"].item())
    holds, said = judge(table)
    return holds and share >= REPEL, f"{said}; {100 * share:.2g} % of all scores are negative"


def _apart(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are of another class more often than all and than attractive ones."""
    share = table[table["measure"] == SHARE].set_index("landmarks")["mean"]
    said = ", ".join(f"{which} {1 - share[which]:.3f}" for which in ("repulsive", "all", "attractive"))
    return bool(share["repulsive"] < min(share["all"], share["attractive"])), f"of another class: {said}"


def _far(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are farther in latent space than the mean and than attractive ones."""
    distance = table[table["measure"] == DISTANCE].set_index("landmarks")["mean"]
    said = f"{distance['repulsive']:.2f} of the mean distance, attractive {distance['attractive']:.2f}"
    return bool(distance["repulsive"] > max(1.0, distance["attractive"])), said


def _beyond_farthest(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks are of another class more often than the farthest ones."""
    share = table[table["measure"] == SHARE].set_index("landmarks")["mean"]
    ours, theirs = 1 - share["repulsive"], 1 - share["farthest in latent space"]
    return bool(ours > theirs), f"{ours:.3f} against {theirs:.3f}"


def _alike(table: pd.DataFrame) -> tuple[bool, str]:
    """Return whether repulsive landmarks of another class look more like the sample than all landmarks do."""
    distance = table[table["measure"] == INPUT].set_index("landmarks")["mean"]
    said = f"{distance['repulsive']:.2f} of the mean distance of pixels, attractive {distance['attractive']:.2f}"
    return bool(distance["repulsive"] < 1.0), said


CONFUSABLE = tuple(
    Claim(
        f"landmarks that repel a test image look like it: they separate what is easily confused ({name})",
        under_each(
            READ, (Reading("by pixels", partial(_repelling, data=name, judge=_alike), needs=("measure", INPUT)),)
        ),
        "The paper shows a dark airplane repelled by a bird; here it is the mean over all test pictures.",
    )
    for name in DATA
)
REPULSIVE_CLAIMS = tuple(
    Claim(
        f"landmarks that repel a test image are of other classes and far from it ({name})",
        under_each(
            READ,
            (
                Reading(words, partial(_repelling, data=name, judge=judge))
                for words, judge in (
                    ("other classes, more often than all and than attractive ones", _apart),
                    ("far in latent space", _far),
                    ("other classes, more often than the farthest", _beyond_farthest),
                )
            ),
        ),
        "The paper shows pictures and a map and no count. A negative score needs a kernel value below the mean of a "
        "centred kernel, or below zero of a plain one, where hardly any is; fewer than one in a hundred count as none. "
        "A ranking by distance alone finds such landmarks as well.",
    )
    for name in DATA
)


def _times_random(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether the top landmarks share the class at least twice as often as random ones."""
    by = table[table["data"] == data].set_index("method")["mean"]
    ratio = float(by["influence"] / by["random"])
    figures = f"{by['influence']:.3f} against {by['random']:.3f}, {ratio:.1f} times"
    return ratio >= TWICE, f"{figures} (latent cosine {by['latent cosine'] / by['random']:.1f} times)"


def _mostly(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether more than half of the top landmarks share the class."""
    by = table[table["data"] == data].set_index("method")["mean"]
    return bool(by["influence"] > 0.5), f"{by['influence']:.3f} (latent cosine {by['latent cosine']:.3f})"


def _beyond(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether the top landmarks share the class more often than latent neighbours."""
    by = table[table["data"] == data].set_index("method")["mean"]
    return bool(by["influence"] > by["latent cosine"]), f"{by['influence']:.3f} against {by['latent cosine']:.3f}"


def judge_samples(table: pd.DataFrame) -> list[tuple[str, bool]]:
    """Return whether the top landmarks share the class at least twice as often as random ones, under our settings."""
    ours = table[table["setting"] == "ours"]
    found = {name: _times_random(ours, data=name) for name in DATA}
    return [
        (f"{name}: the top-{TOP} landmarks share the class at least twice as often as random ones: {said}", holds)
        for name, (holds, said) in found.items()
    ]


def _beyond_looks(table: pd.DataFrame, *, data: str) -> tuple[bool, str]:
    """Return whether the top landmarks share the class more often than the nearest pictures by pixels."""
    by = table[table["data"] == data].set_index("method")["mean"]
    return bool(by["influence"] > by["input distance"]), f"{by['influence']:.3f} against {by['input distance']:.3f}"


SAMPLES_CLAIMS = tuple(
    claim
    for name in DATA
    for claim in (
        Claim(
            f"the top-{TOP} landmarks of a test image consistently belong to its class ({name})",
            under_each(
                READ,
                (
                    Reading("more than half of them", partial(_mostly, data=name)),
                    Reading("more often than latent neighbours", partial(_beyond, data=name)),
                ),
            ),
            "The paper shows a few pictures and no count. How often landmarks share the class depends on how well the "
            "encoder separates classes; what the method adds is what it has over latent cosine on the same encoder.",
        ),
        Claim(
            f"they share meaning rather than low-level texture or colour ({name})",
            under_each(
                READ,
                (Reading("the class more often than the nearest by pixels", partial(_beyond_looks, data=name)),),
            ),
            "Where the nearest picture by pixels is mostly of the class, as for digits, likeness is enough.",
        ),
    )
)
