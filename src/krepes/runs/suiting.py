"""Where a preset gives way: what it alone says is taken as far as the data allow, and what is taken instead is said.

What a person gave stays, and is refused where it cannot be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from krepes.data.tokens import TokenizedTexts
from krepes.errors import InvalidInputError
from krepes.kernels import Kernel
from krepes.landmarks import given_landmarks
from krepes.model.intake import is_frame
from krepes.preset import given_by, presets
from krepes.processes import current
from krepes.registry import listed
from krepes.runs.augment import DEFAULTS, LOOKED_AT, Material, paper
from krepes.runs.dataset import Dataset
from krepes.runs.settings import Settings, flag
from krepes.views import ViewStream
from krepes.views.source import as_source

logger = logging.getLogger("krepes")
OF_TEXTS = {"landmarks": ("kmeans++", "leverage-hutchinson"), "augment": ("paper", DEFAULTS["text"])}
"""What takes numbers or pixels, and what stands for it in texts: the paper's other selector, and our views."""


def suited_to_kind(settings: Settings, dataset: Dataset) -> Settings:
    """Return settings whose preset has a meaning for samples of this kind.

    Args:
        settings: As given.
        dataset: The data.

    Returns:
        The same, with landmarks and views of texts where the preset's are for numbers and pixels.
    """
    gave = given_by(settings.preset)
    if dataset.texts is None:
        return settings
    changes: dict[str, Any] = _of_texts(gave)
    _say_texts(settings.preset, gave, changes, flag)
    return replace(settings, **changes)


def suited_to_number(settings: Settings, stream: ViewStream) -> Settings:
    """Return settings whose preset asks for no more landmarks or dimensions than the samples allow.

    Args:
        settings: As given.
        stream: Views of the training samples.

    Returns:
        The same; a size that only the preset names is lowered.
    """
    gave = given_by(settings.preset)
    if settings.m is None or not {"m", "h"} & set(gave):
        return settings
    most = min(stream.n, settings.candidates)
    if settings.landmarks == "all":
        changes = _fewer(stream.n, settings.h, most=stream.n, p=stream.p, free=set(gave) - {"m"})
    else:
        changes = _fewer(settings.m, settings.h, most=most, p=stream.p, free=gave)
    _say_sizes(settings.preset, gave, changes, most, flag)
    return replace(settings, **changes)


def model_arguments(
    preset: str, encoder: nn.Module | Kernel, data: Any, n: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments of `krepes.Krepes` by a preset, as far as the samples allow.

    Args:
        preset: Its name.
        encoder: What is explained; a kernel has none of the choices of a tangent kernel.
        data: The samples.
        n: How many of them are fitted.
        given: Arguments that beat the preset.

    Returns:
        All arguments. The preset's views are made for a single tensor; a table and texts have theirs by default.

    Raises:
        InvalidInputError: If there is no such preset.
    """
    if preset not in presets:
        raise InvalidInputError(f"preset={preset!r} is unknown: choose one of {listed(presets)}.")
    objective = given.get("objective", "barlow_twins")
    rest = {name: value for name, value in given.items() if name != "objective"}
    found = presets[preset].arguments(*([objective] if isinstance(objective, str) else []), **rest)
    if not isinstance(objective, str):
        found["objective"] = objective
    gave = {name: value for name, value in found.items() if name not in given}
    if isinstance(encoder, Kernel):
        found = {name: value for name, value in found.items() if name not in {"kernel_kind", "heads"} - set(given)}
    if isinstance(data, TokenizedTexts):
        changes = _of_texts(gave)
        found |= changes
        _say_texts(preset, gave, changes, str)
    elif "augment" not in given:
        found["augment"] = _paper_views(data)
    named = given_landmarks(found["landmarks"], n)
    m, free = (found["m"], set(gave)) if named is None else (len(named), set(gave) - {"m"})
    most = min(n, found["candidates"] or n)
    fewer = _fewer(m, found.get("h"), most=most, p=getattr(found.get("augment"), "p", 2), free=free)
    _say_sizes(preset, gave, fewer, most, str)
    return {**found, **fewer}


def _paper_views(data: Any) -> Any:
    """Return the paper's views of plain samples; nothing for those that have views of their own."""
    if is_frame(data):
        return None
    source = as_source(data)[0]
    sample = source.take(torch.arange(min(source.n, LOOKED_AT)))
    return paper(Material(sample, (), (), ())) if isinstance(sample, Tensor) else None


def _of_texts(gave: Mapping[str, Any]) -> dict[str, Any]:
    return {key: new for key, (old, new) in OF_TEXTS.items() if gave.get(key) == old}


def _fewer(m: int, h: int | None, *, most: int, p: int, free: Collection[str]) -> dict[str, Any]:
    """Return smaller sizes where those of a preset do not fit: half of the samples, a quarter of that, as by default.

    Args:
        m: Landmarks.
        h: Dimensions, or ``None`` for the encoder's.
        most: Samples that landmarks can be chosen among.
        p: Views of each.
        free: Sizes that no person gave.

    Returns:
        Those that change.
    """
    changes = {"m": max(1, most // 2)} if "m" in free and m > most else {}
    m = changes.get("m", m)
    if "h" in free and h is not None and (changes or h > m * p):
        changes["h"] = max(1, min(h, m // 4))
    return changes


def _say_texts(
    preset: str | None, gave: Mapping[str, Any], changes: Mapping[str, Any], name: Callable[[str], str]
) -> None:
    told = [f"{name(key)} {new} instead of {gave[key]}" for key, new in changes.items()]
    if told and current().first:
        logger.warning("preset %s: the samples are texts, which are no numbers: %s.", preset, " and ".join(told))


def _say_sizes(
    preset: str | None, gave: Mapping[str, Any], changes: Mapping[str, Any], most: int, name: Callable[[str], str]
) -> None:
    told = []
    if "m" in changes:
        cannot = f"{gave['m']} landmarks cannot be chosen among {most} samples"
        told.append(f"{cannot}, so {changes['m']} are taken ({name('m')})")
    if "h" in changes:
        told.append(f"{gave['h']} dimensions go with more landmarks, so {changes['h']} are taken ({name('h')})")
    if told and current().first:
        logger.warning("preset %s: %s.", preset, "; ".join(told))
