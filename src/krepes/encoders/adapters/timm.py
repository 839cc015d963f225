"""Image encoders of timm: built by name without their classifier, filled from a local file."""

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

POOLING = {"cls": "token", "mean": "avg", "max": "max", "map": "map"}
"""Our names of poolings and timm's."""
OPTIONS = frozenset(
    "img_size in_chans patch_size embed_dim depth depths num_heads mlp_ratio class_token reg_tokens no_embed_class "
    "init_values qkv_bias dynamic_img_size output_stride strict_img_size window_size dims".split()
)
ADVICE = "Check the name and the options in timm's documentation."


def from_timm(
    name_or_module: str | nn.Module,
    weights: str | Path | None = None,
    *,
    output: str | None = None,
    prefix: str = "auto",
    **options: Any,
) -> Adapted:
    """Return an image encoder of timm, its classifier taken off. Nothing is downloaded.

    Args:
        name_or_module: A name of ``timm.list_models()``, also with a tag that tells its normalisation, such as
            ``"vit_small_patch16_224.dino"``; or a module of timm, of which a copy is taken if it has a classifier.
        weights: A local safetensors file or checkpoint, of timm, DINO, solo-learn, lightly and others; a module needs
            none.
        output: ``"cls"``, ``"mean"``, ``"max"`` or ``"map"``; by default what the model is configured for.
        prefix: Which tensors of the weights to use, such as ``"teacher/backbone."``; see `load_encoder`.
        options: Sizes, such as ``img_size=96``.

    Returns:
        The encoder and what its samples look like.

    Raises:
        InvalidInputError: If timm is not installed, knows no such model, or the weights do not fit.
    """
    if isinstance(name_or_module, nn.Module):
        if weights is not None or output is not None or options:
            raise InvalidInputError("a module is taken as it is: pass weights, output and options with a name instead.")
        module = _headless(name_or_module)
        return Adapted(encoder=module.eval(), output=_pooling(module), **vars(_described(module, {})))
    module = build(name_or_module, output=output, **options)
    report = filled(module, weights, f"timm.create_model({name_or_module!r}, pretrained=True)", prefix)
    about = inputs(name_or_module, **options)
    return Adapted(encoder=module.eval(), output=_pooling(module), report=report, **vars(about))


def build(name: str, *, output: str | None = None, **options: Any) -> nn.Module:
    """Return a model of timm by name, untrained and without its classifier."""
    timm = _timm(name)
    require_options(options, OPTIONS, "timm")
    if output is not None and output not in POOLING:
        raise InvalidInputError(f"output={shown(output)} is no pooling of timm. Choose one of {', '.join(POOLING)}.")
    with offline(), foreign(f"timm cannot build {shown(name)}", ADVICE):
        module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    if output is not None:  # afterwards: built with another pooling, a transformer has its last norm in another place
        with foreign(f"{shown(name)} cannot pool by output={output!r}", "Choose another, or leave it out."):
            module.reset_classifier(0, POOLING[output])
    return module


def inputs(name: str, **options: Any) -> Inputs:
    """Return size, mean and deviation of a model of timm, without building it."""
    timm = _timm(name)
    with foreign(f"timm does not describe {shown(name)}", ADVICE):
        config = timm.get_pretrained_cfg(name, allow_unregistered=True)
        return _read({} if config is None else config.to_dict(), options)


def _timm(name: str) -> Any:
    timm = package("timm", "timm")
    known = set(timm.list_models())
    tagged = name in known or (name.partition(".")[0] in known and name in timm.list_models(pretrained=True))
    if not tagged:
        require_name(name, known | set(timm.list_models(pretrained=True)), "model of timm")
    return timm


def _headless(module: nn.Module) -> nn.Module:
    if getattr(module, "num_classes", None) == 0:
        return module
    if not hasattr(module, "reset_classifier"):
        raise InvalidInputError(f"{type(module).__name__} is no model of timm. Pass it to Krepes as it is.")
    headless: Any = duplicate(module)
    with foreign("timm cannot take the classifier off", "Make the model with num_classes=0."):
        headless.reset_classifier(0)
    return headless


def _described(module: nn.Module, options: dict[str, Any]) -> Inputs:
    config = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
    patches = getattr(getattr(module, "patch_embed", None), "img_size", None)
    return _read(dict(config), {**options, **({} if patches is None else {"img_size": patches})})


def _read(config: dict[str, Any], options: dict[str, Any]) -> Inputs:
    channels, *sides = config.get("input_size") or (3,)
    size: Any = options.get("img_size") or sides or None
    if isinstance(size, (tuple, list)):
        size = size[0] if len(set(size)) == 1 else None
    same = options.get("in_chans", channels) == len(config.get("mean") or ())
    mean, std = (tuple(map(float, config[key])) if same else () for key in ("mean", "std"))
    return Inputs(size=size, mean=mean, std=std)


def _pooling(module: nn.Module) -> str:
    own = getattr(module, "global_pool", None)
    if not isinstance(own, str):
        own = getattr(own, "pool_type", None) or "avg"
    return {theirs: ours for ours, theirs in POOLING.items()}.get(own, own)


SOURCE = Source(build, inputs)
