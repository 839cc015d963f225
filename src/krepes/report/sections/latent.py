"""The latent map: every landmark, the samples listed, and signed lines from the sample that is picked."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit.wording import text
from krepes.report.blocks import Map, Mark, Tie
from krepes.report.desk import Bond, Desk

MOST_POINTS, SHAPES = 600, 7
"""Landmarks that are drawn, and classes that can be told apart by shape and colour."""


def latent(desk: Desk) -> Map:
    """Return landmarks and listed samples in the plane of their first two principal components."""
    study = desk.study
    landmarks, samples = _plane(*_embedded(desk))
    legend, shape_of = _shapes(desk)
    marks = [
        Mark(x, y, _named(desk, row), shape_of.get(desk.class_of(row), 0), desk.link(row))
        for row, (x, y) in zip(desk.rows[:MOST_POINTS], landmarks.tolist(), strict=False)
    ]
    points = [
        Mark(x, y, f"test sample {desk.name(place)}", link=f"sample-{place}")
        for place, (x, y) in zip(desk.places, samples.tolist(), strict=True)
    ]
    where = dict(zip(desk.rows, landmarks.tolist(), strict=True))
    largest = desk.shares.abs().amax(1).clamp_min(1e-300).tolist()
    ties = tuple(
        tuple(_tie(bond, where[bond.row], largest[i]) for bond in desk.made_of(i)) for i in range(len(desk.places))
    )
    of_encoder = "encoder" if study.embeddings is not None else "kernel model"
    caption = f"Where the sample lies among the landmarks, by the {of_encoder} (two main directions of many)"
    return Map(caption, tuple(marks), tuple(points), ties, legend)


def _tie(bond: Bond, end: list[float], largest: float) -> Tie:
    return Tie(end[0], end[1], bond.tone, round(0.6 + 2.4 * abs(bond.value) / largest, 2))


def _embedded(desk: Desk) -> tuple[Tensor, Tensor]:
    study, places = desk.study, torch.tensor(desk.places)
    if study.embeddings is not None:
        return study.embeddings[1].double().cpu(), study.embeddings[0].double().cpu()[places]
    model = study.model
    views = model.embed(model.points_).double().cpu().reshape(-1, study.m, model.h_)  # (p, m, h)
    return views[0], model.embed(study.test(places)).double().cpu()


def _plane(landmarks: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the plane of the landmarks' main directions, stretched to 4 to 96 each way, one digit."""
    centre = landmarks.mean(0)
    V = torch.linalg.svd(landmarks - centre, full_matrices=False).Vh[:2].T
    V = V * V.gather(0, V.abs().argmax(0, keepdim=True)).sign()
    flat = torch.cat([(landmarks - centre) @ V, (samples - centre) @ V])
    flat = torch.nn.functional.pad(flat, (0, 2 - flat.shape[1]))
    low, high = flat.amin(0), flat.amax(0)
    placed = (4 + 92 * (flat - low) / (high - low).clamp_min(1e-300)).round(decimals=1)
    return placed[: len(landmarks)], placed[len(landmarks) :]


def _shapes(desk: Desk) -> tuple[tuple[str, ...], dict[str, int]]:
    """Return the classes of the landmarks and the shape of each; none if there are too many to be told apart."""
    names = sorted({desk.class_of(row) for row in desk.rows} - {""})
    if not 1 < len(names) <= SHAPES:
        return (), {}
    return tuple(names), {name: place for place, name in enumerate(names)}


def _named(desk: Desk, row: int) -> str:
    of_class = desk.class_of(row)
    return f"landmark {desk.train_name(row)}" + (f", class {text(of_class)}" if of_class else "")
