r"""Deletion under every reading: how neighbours vote, which landmarks are deleted, and what that is compared with.

    deleted    the first of a ranking, of any class or of the k-NN's decision alone
    random     as many landmarks by chance
    matched    by chance, but of the same classes as the deleted ones: what is left is who was chosen within a class

A ratio to random says how far a ranking finds voters of the right class. A ratio to matched landmarks says how far it
finds the right ones among them. Both stand beside each other for every ranking, latent cosine (the voters) included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from krepes.audit.deletion import confidence_after, deletable, voting_encoder
from krepes.audit.intervals import mean_interval
from krepes.audit.labels import Labels
from krepes.audit.rankings import PLACE, landmark_samples, rankings
from krepes.audit.votes import VOTES, shares, voters
from krepes.batches import Batch
from krepes.model import Krepes

ANY, PREDICTED = "any class", "predicted class"
AMONG = (ANY, PREDICTED)
"""Among which landmarks the first are deleted: all, or those of the class that the k-NN decides for."""
DRAWS = 20
# Samples whose random orders are held at once, all draws of them.
PIECE = 512
RANDOM = "random"
COLUMNS = ["vote", "among", "method", "before", "estimate", "low", "high", "deleted", "random", "matched", "n"]


Drops = dict[tuple[str, str, str], Tensor]
"""What deletions cost some samples, by vote, kind of deletion and method."""


class _Vote(NamedTuple):
    """One piece of samples before any deletion."""

    near: Tensor
    weights: Tensor
    before: Tensor
    decision: Tensor


def deletion_readings(
    model: Krepes,
    X: Batch,
    landmark_labels: Labels,
    *,
    k: int = 50,
    delete: int = 10,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Delete each sample's top landmarks under every reading.

    Args:
        model: A fitted model of an encoder, with its data.
        X: Un-augmented test samples, ``(t, ...)``.
        landmark_labels: Classes of the landmarks, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.
        draws: Random deletions that are averaged.
        seed: Of those.

    Returns:
        A DataFrame; see `deletion_readings_of`.
    """
    encoder, landmarks = voting_encoder(model), landmark_samples(model)
    ranked = rankings(model, X, k=len(model.landmark_ids_), landmarks=landmarks, seed=seed)
    E_test, E_landmarks = encoder.encode(X), encoder.encode(landmarks)
    return deletion_readings_of(
        ranked, E_test, E_landmarks, landmark_labels, k=k, delete=delete, draws=draws, seed=seed
    )


def deletion_readings_of(
    ranked: Mapping[str, Tensor],
    E_test: Tensor,
    E_landmarks: Tensor,
    landmark_labels: Labels,
    *,
    k: int = 50,
    delete: int = 10,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure a k-NN's loss of confidence for each ranking, vote and kind of deletion.

    Args:
        ranked: For each method the landmarks of every test sample, best first, ``(t, K)``. To delete of the predicted
            class alone, ``K`` should be ``m``; fewer are deleted where a ranking reaches no further.
        E_test: Embeddings of the test samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        landmark_labels: Their classes, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.
        draws: Random deletions that are averaged.
        seed: Of those.

    Returns:
        One row per vote, kind of deletion and method: ``before`` (confidence), ``estimate`` (mean drop), ``low``,
        ``high``, ``deleted`` (landmarks, mean), ``random`` (mean drop of as many random landmarks of any class),
        ``matched`` (of random landmarks of the same classes), ``n``, ``times_random`` and ``times_matched``. The
        method ``random`` is the mean over draws, of any class or of the predicted one.
    """
    generator = torch.Generator().manual_seed(seed)
    return deletion_table([
        deletion_drops(
            ranked, E_test, E_landmarks, landmark_labels, k=k, delete=delete, draws=draws, generator=generator
        )
    ])


def deletion_drops(
    ranked: Mapping[str, Tensor],
    E_test: Tensor,
    E_landmarks: Tensor,
    landmark_labels: Labels,
    *,
    k: int,
    delete: int,
    draws: int = DRAWS,
    generator: torch.Generator,
) -> Drops:
    """Return what deletions cost each sample: for as many as rankings are held of, at a time.

    Args:
        ranked: As in `deletion_readings_of`.
        E_test: Embeddings of these test samples, ``(t, d)``.
        E_landmarks: Embeddings of the landmarks, ``(m, d)``.
        landmark_labels: Their classes, ``(m,)``.
        k: Neighbours that vote.
        delete: Landmarks to delete.
        draws: Random deletions that are averaged.
        generator: Draws them, on from where the samples before these left it.

    Returns:
        By vote, kind of deletion and method ``(t, 5)``: before, drop, deleted, random drop, matched drop.
    """
    codes, classes, t = deletable(ranked, E_test, E_landmarks, landmark_labels, k=k, delete=delete)
    methods = [method for method in ranked if method != RANDOM]
    found: dict[tuple[str, str, str], list[Tensor]] = {}
    for start in range(0, t, PIECE):
        part = slice(start, min(start + PIECE, t))
        size = (part.stop - start, len(codes))
        chance = torch.stack([places_of(torch.rand(size, generator=generator)) for _ in range(draws)])
        within = class_places(chance, codes)
        tops = {method: ranked[method][part].cpu() for method in methods}
        for vote in VOTES:
            near, weights = voters(E_test[part], E_landmarks, k + delete, vote=vote)
            state = _Vote(near, weights, *shares(codes[near[:, :k]], weights[:, :k], classes).max(1))
            for among, method, values in _drops(state, tops, chance, within, codes, classes, k, delete):
                found.setdefault((vote, among, method), []).append(values)
    return {key: torch.cat(parts) for key, parts in found.items()}


def places_of(values: Tensor) -> Tensor:
    """Return the place of each value in its row, from 0 for the smallest, ``(..., m)``."""
    order = values.argsort(-1)
    places = torch.arange(order.shape[-1], dtype=PLACE).expand(order.shape)
    return torch.empty(order.shape, dtype=PLACE).scatter_(-1, order, places)


def class_places(places: Tensor, codes: Tensor) -> Tensor:
    """Return the place of each landmark among those of its own class, from 0, for ``places`` ``(..., m)``."""
    sizes = codes.bincount()
    first = (sizes.cumsum(0) - sizes).to(PLACE)  # of each class, if all landmarks are in line class by class
    return places_of(codes.to(PLACE) * len(codes) + places) - first[codes]


def _drops(
    state: _Vote,
    tops: Mapping[str, Tensor],
    chance: Tensor,
    within: Tensor,
    codes: Tensor,
    classes: int,
    k: int,
    delete: int,
) -> Iterator[tuple[str, str, Tensor]]:
    """Yield, for each kind of deletion and method, ``(t, 5)``: before, drop, deleted, random drop, matched drop."""
    near, found = state.near, codes[state.near]

    def drop(gone: Tensor) -> Tensor:
        return state.before - confidence_after(gone, found, state.weights, state.decision, classes, k)

    def mean(gone: Tensor) -> Tensor:
        return torch.stack([drop(one) for one in gone]).mean(0)

    # Places in random orders, (draws, t, m): whether a landmark is gone matters only where it could vote.
    chance, within = (places.gather(2, near.expand(len(places), *near.shape)) for places in (chance, within))
    own = codes[None] == state.decision[:, None]  # (t, m)
    random = mean(chance < delete)
    own_random = mean((within < delete) & own.gather(1, near))
    kind = torch.nn.functional.one_hot(codes, classes).double()
    for among in AMONG:
        for method, top in tops.items():
            deleted = first_places(top, codes, delete, own if among == PREDICTED else None)
            count = deleted.double() @ kind  # (t, classes)
            matched = mean(within < count.gather(1, found))
            dropped = drop(deleted.gather(1, near))
            yield among, method, torch.stack([state.before, dropped, count.sum(1), random, matched], 1)
        by_chance = random if among == ANY else own_random
        size = torch.full_like(random, delete) if among == ANY else own.sum(1).clamp_max(delete).double()
        yield among, RANDOM, torch.stack([state.before, by_chance, size, random, by_chance], 1)


def first_places(top: Tensor, codes: Tensor, delete: int, own: Tensor | None) -> Tensor:
    """Return which landmarks are the first ``delete`` of a ranking, ``(t, m)``.

    Args:
        top: Landmarks best first, ``(t, K)``.
        codes: Their classes, ``(m,)``.
        delete: How many.
        own: Which landmarks may be deleted, ``(t, m)``; all by default.

    Returns:
        True for each that is deleted.
    """
    allowed = torch.ones(top.shape, dtype=torch.bool) if own is None else own.gather(1, top)
    chosen = allowed & (allowed.cumsum(1) <= delete)
    return torch.zeros(len(top), len(codes), dtype=torch.bool).scatter_(1, top, chosen)


def deletion_table(pieces: Sequence[Drops]) -> pd.DataFrame:
    """Return the table of `deletion_readings_of` for all samples of some pieces."""
    rows = []
    for key in pieces[0]:
        values = torch.cat([piece[key] for piece in pieces])
        before, _, deleted, random, matched = values.mean(0).tolist()
        drop = mean_interval(values[:, 1])
        ends = float(drop.estimate), float(drop.low), float(drop.high)
        rows.append((*key, before, *ends, deleted, random, matched, len(values)))
    table = pd.DataFrame(rows, columns=COLUMNS)
    for name in ("random", "matched"):
        # Where chance costs nothing there is nothing to be a multiple of.
        table[f"times_{name}"] = table["estimate"] / table[name].where(table[name] > 0)
    return table
