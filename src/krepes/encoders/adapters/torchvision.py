"""Image encoders of torchvision: built by name, the last linear layer taken off, filled from a local file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from krepes.data.files import foreign
from krepes.data.values import shown
from krepes.encoders.adapters.adapted import Adapted, Inputs, Source
from krepes.encoders.adapters.packages import filled, offline, package, require_name, require_options
from krepes.encoders.duplicate import duplicate
from krepes.errors import InvalidInputError

HEADS = ("fc", "classifier", "heads", "head")
OPTIONS = frozenset({"image_size"})
ADVICE = "Check the name and the options in torchvision's documentation."
OUTPUT = "features"


def from_torchvision(name_or_module: str | nn.Module, weights: str | Path | None = None, **options: Any) -> Adapted:
    """Return an image encoder of torchvision, its last linear layer taken off. Nothing is downloaded.

    Args:
        name_or_module: A classifier of ``torchvision.models``, such as ``"resnet50"``; or a module, of which a copy is
            taken, and whose size and normalisation are not known.
        weights: A local safetensors file or checkpoint; a module needs none.
        options: ``image_size`` of a vision transformer.

    Returns:
        The encoder and what its samples look like.

    Raises:
        InvalidInputError: If torchvision is not installed, knows no such model, or the weights do not fit.
    """
    if isinstance(name_or_module, nn.Module):
        if weights is not None or options:
            raise InvalidInputError("a module is taken as it is: pass weights and options with a name instead.")
        return Adapted(encoder=_headless(duplicate(name_or_module)).eval(), output=OUTPUT)
    module = build(name_or_module, **options)
    report = filled(module, weights, f"torchvision.models.get_model({name_or_module!r}, weights='DEFAULT')")
    return Adapted(encoder=module.eval(), output=OUTPUT, report=report, **vars(inputs(name_or_module, **options)))


def build(name: str, **options: Any) -> nn.Module:
    """Return a model of torchvision by name, untrained and without its last linear layer."""
    models = _models(name)
    require_options(options, OPTIONS, "torchvision")
    with offline(), foreign(f"torchvision cannot build {shown(name)}", ADVICE):
        return _headless(models.get_model(name, weights=None, **options))


def inputs(name: str, **options: Any) -> Inputs:
    """Return size, mean and deviation that torchvision's own weights of a model were trained with."""
    models = _models(name)
    with foreign(f"torchvision does not describe {shown(name)}", ADVICE):
        prepare = models.get_model_weights(name).DEFAULT.transforms()
        size = options.get("image_size") or int(prepare.crop_size[0])
        return Inputs(size=size, mean=tuple(map(float, prepare.mean)), std=tuple(map(float, prepare.std)))


def _models(name: str) -> Any:
    models = package("torchvision", "torchvision").models
    require_name(name, set(models.list_models(module=models)), "classifier of torchvision.models")
    return models


def _headless(module: nn.Module) -> nn.Module:
    """Put nothing in the place of the last linear layer of the head."""
    for head in HEADS:
        part = getattr(module, head, None)
        linear = (
            [] if not isinstance(part, nn.Module) else [n for n, m in part.named_modules() if isinstance(m, nn.Linear)]
        )
        if linear:
            path = f"{head}.{linear[-1]}".rstrip(".")
            parent, _, last = path.rpartition(".")
            setattr(module.get_submodule(parent), last, nn.Identity())
            return module
    raise InvalidInputError(
        f"{type(module).__name__} has no linear layer in {', '.join(HEADS)} to take off. Pass the network before its "
        f"head to Krepes yourself."
    )


SOURCE = Source(build, inputs)
