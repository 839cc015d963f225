"""Image towers of OpenCLIP: built by name, filled from a local checkpoint of the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from krepes.data.files import foreign
from krepes.data.values import shown
from krepes.encoders.adapters.adapted import Adapted, Inputs, Source
from krepes.encoders.adapters.packages import filled, offline, package, require_name, require_options
from krepes.errors import InvalidInputError

OPTIONS = frozenset({"force_image_size", "force_quick_gelu", "tag"})
ADVICE = "Check the name and the options in open_clip's documentation."
OUTPUT = "image_features"


def from_openclip(name_or_module: str | nn.Module, weights: str | Path | None = None, **options: Any) -> Adapted:
    """Return the image tower of an OpenCLIP model; its output is the image features before they get length one.

    Args:
        name_or_module: A name of ``open_clip.list_models()``, such as ``"ViT-B-32"`` (OpenAI's own weights are those of
            ``"ViT-B-32-quickgelu"``); or a model of ``open_clip``.
        weights: A local safetensors file or checkpoint, of the whole model or of the tower; a model needs none.
        options: ``force_image_size``, ``force_quick_gelu``; ``tag``, by which open_clip names published weights, where
            those of one name were trained with different normalisations.

    Returns:
        The tower and what its samples look like.

    Raises:
        InvalidInputError: If open_clip is not installed, knows no such model, or the weights do not fit.
    """
    if isinstance(name_or_module, nn.Module):
        if weights is not None or options:
            raise InvalidInputError("a module is taken as it is: pass weights and options with a name instead.")
        tower = _tower(name_or_module)
        return Adapted(encoder=tower.eval(), output=OUTPUT, **vars(_described(tower)))
    tower = build(name_or_module, **options)
    report = filled(tower, weights, f"open_clip.create_model({name_or_module!r}, pretrained=TAG)")
    return Adapted(encoder=tower.eval(), output=OUTPUT, report=report, **vars(inputs(name_or_module, **options)))


def build(name: str, **options: Any) -> nn.Module:
    """Return the image tower of a model by name, untrained."""
    open_clip = _open_clip(name)
    require_options(options, OPTIONS, "open_clip")
    options.pop("tag", None)
    with offline(), foreign(f"open_clip cannot build {shown(name)}", ADVICE):
        model = open_clip.create_model(name, pretrained=None, pretrained_image=False, pretrained_text=False, **options)
    return _tower(model)


def inputs(name: str, **options: Any) -> Inputs:
    """Return size, mean and deviation of a model by name, without building it."""
    open_clip = _open_clip(name)
    with foreign(f"open_clip does not describe {shown(name)}", ADVICE):
        size = options.get("force_image_size") or open_clip.get_model_config(name)["vision_cfg"].get("image_size", 224)
        mean, std = _normalisation(open_clip, name, options.get("tag"))
        return Inputs(size=_side(size), mean=mean, std=std)


def _normalisation(open_clip: Any, name: str, tag: str | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of published weights of a model; a model without any has those of OpenAI's."""
    tags = list(open_clip.list_pretrained_tags_by_model(name))
    if tag is not None:
        require_name(tag, tags, f"tag of {name} in open_clip")
    found: dict[Any, str] = {}
    for known in tags if tag is None else [tag]:
        config = open_clip.get_pretrained_cfg(name, known)
        pair = config.get("mean") or open_clip.OPENAI_DATASET_MEAN, config.get("std") or open_clip.OPENAI_DATASET_STD
        found.setdefault(tuple(tuple(map(float, part)) for part in pair), known)
    if len(found) > 1:
        raise InvalidInputError(
            f"weights of {name} were published with {len(found)} normalisations: say by the option tag= whose yours "
            f"is, such as {' or '.join(found.values())}."
        )
    return next(iter(found), (tuple(open_clip.OPENAI_DATASET_MEAN), tuple(open_clip.OPENAI_DATASET_STD)))


def _open_clip(name: str) -> Any:
    open_clip = package("open_clip", "openclip")
    require_name(name, set(open_clip.list_models()), "model of open_clip")
    config = open_clip.get_model_config(name) or {}
    if (config.get("text_cfg") or {}).get("hf_model_name"):
        raise InvalidInputError(
            f"the text tower of {shown(name)} is described on the network, which is never asked. Build the model "
            f"where it is known, and pass it: from_openclip(model)."
        )
    return open_clip


def _tower(model: nn.Module) -> nn.Module:
    tower = getattr(model, "visual", None)
    if not isinstance(tower, nn.Module):
        raise InvalidInputError(f"{type(model).__name__} has no image tower, .visual. Pass a model of open_clip.")
    return tower


def _described(tower: nn.Module) -> Inputs:
    mean, std = (tuple(map(float, getattr(tower, key, None) or ())) for key in ("image_mean", "image_std"))
    return Inputs(size=_side(getattr(tower, "image_size", None)), mean=mean, std=std)


def _side(size: Any) -> int | None:
    sides = set(size) if isinstance(size, (tuple, list)) else {size}
    return sides.pop() if len(sides) == 1 else None


SOURCE = Source(build, inputs)
