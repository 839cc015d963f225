"""Encoders of transformers, from a local folder: configuration and safetensors, no code of the folder, no network."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from torch import nn

from krepes.data.files import foreign, named
from krepes.data.values import shown
from krepes.encoders.adapters.adapted import POOLED, Adapted, Embedding, Inputs, Source
from krepes.encoders.adapters.folders import CONFIG, image_inputs, read_json, require_folder, require_weights
from krepes.encoders.adapters.packages import offline, package, require_options
from krepes.encoders.loaded import some
from krepes.errors import InvalidInputError

Part = Literal["image", "text"]
TOWERS = {
    ("clip", "image"): ("CLIPVisionModelWithProjection", "image_embeds"),
    ("clip", "text"): ("CLIPTextModelWithProjection", "text_embeds"),
    ("siglip", "image"): ("SiglipVisionModel", "pooler_output"),
    ("siglip", "text"): ("SiglipTextModel", "pooler_output"),
}
"""The towers of models of images and text, and what of their results is compared."""
ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""Models with a decoder behind an encoder, of which the encoder alone is taken."""
SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
ADVICE = "Check the folder, and that transformers is new enough for it."


def from_huggingface(folder: str | Path, *, output: str | None = None, part: Part = "image") -> Adapted:
    """Return an encoder of transformers from a folder that ``save_pretrained`` wrote.

    Code in the folder is never run, only safetensors are read, and nothing is downloaded.

    Args:
        folder: With ``config.json``, ``model.safetensors`` and, of a text encoder, its tokenizer.
        output: ``"cls"``, ``"mean"`` (over tokens that are no padding), ``"max"``, or a part of what the model returns,
            such as ``"pooler_output"``. By default: of CLIP and SigLIP the features that are compared, of text the
            mean, of images the pooled output where the weights have one, else the first token.
        part: Of a model of images and text, which tower.

    Returns:
        The encoder, what images must look like, and the tokenizer of text.

    Raises:
        InvalidInputError: If transformers is not installed, or the folder cannot be used.
    """
    folder = require_folder(folder)
    transformers = package("transformers", "huggingface")
    require_weights(folder)
    backbone, missing = _loaded(transformers, folder, part)
    pooling = _pooling(backbone, folder, output, part, missing)
    lacking = [name for name in missing if not name.startswith("pooler.") or pooling == "pooler_output"]
    if lacking:
        raise InvalidInputError(
            f"the weights of {named(folder)} lack {len(lacking)} tensors of {type(backbone).__name__}, such as "
            f"{some(lacking)}. Pass another output= ({', '.join(POOLED)}) if this is the pooling, or the whole model."
        )
    encoder = _embedding(backbone, pooling).eval()
    if _takes_text(backbone):
        return Adapted(encoder=encoder, output=pooling, tokenizer=_tokenizer(transformers, folder))
    return Adapted(encoder=encoder, output=pooling, **vars(image_inputs(folder)))


def build(name: str, *, output: str | None = None, **options: Any) -> nn.Module:
    """Return the encoder of a folder with first weights of its own, by the folder's configuration alone."""
    require_options(options, ("part",), "hf")
    part: Part = options.get("part", "image")
    folder = require_folder(name)
    transformers = package("transformers", "huggingface")
    make, config = _class_and_config(transformers, folder, part)
    with offline(), foreign(f"transformers cannot build the model of {named(folder)}", ADVICE):
        backbone = make._from_config(config) if hasattr(make, "_from_config") else make.from_config(config)
    return _embedding(backbone.float(), _pooling(backbone, folder, output, part, ()))


def load(name: str, *, output: str | None = None, **options: Any) -> nn.Module:
    """Return the encoder of a folder with the weights that lie in it."""
    require_options(options, ("part",), "hf")
    return from_huggingface(name, output=output, part=options.get("part", "image")).encoder


def inputs(name: str, **options: Any) -> Inputs:
    """Return size, mean and deviation of a folder's images."""
    require_options(options, ("part",), "hf")
    return image_inputs(require_folder(name))


def output_of(name: str, *, output: str | None = None, **options: Any) -> str:
    """Return the pooling that `load` uses."""
    return load(name, output=output, **options).pooling  # type: ignore[return-value]


def _class_and_config(transformers: Any, folder: Path, part: str) -> tuple[Any, Any]:
    """Return the class of a folder's model, always one of transformers, and its configuration."""
    about = read_json(folder / CONFIG)
    kind = about.get("model_type")
    if part not in {"image", "text"}:
        raise InvalidInputError(f"part={shown(part)} is no tower. Choose image or text.")
    if about.get("is_encoder_decoder") and kind not in ENCODERS:
        raise InvalidInputError(
            f"{named(folder)} holds an encoder and a decoder ({shown(kind)}). Pass the encoder's module to Krepes."
        )
    tower = TOWERS.get((str(kind), part), (ENCODERS.get(str(kind)), None))[0]
    with offline(), foreign(f"transformers does not know the model {shown(kind)} of {named(folder)}", ADVICE):
        if tower is None:
            return transformers.AutoModel, transformers.AutoConfig.from_pretrained(str(folder), **SAFE)
        make = getattr(transformers, tower)
        config = make.config_class.from_pretrained(str(folder), **SAFE)
        if "projection_dim" in about:  # said once, for both towers
            config.projection_dim = about["projection_dim"]
        return make, config


def _loaded(transformers: Any, folder: Path, part: str) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the model in float32, and the names of its tensors that the weights do not have."""
    make, config = _class_and_config(transformers, folder, part)
    how = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True, **SAFE}
    with offline(), _quiet(transformers), foreign(f"transformers cannot load {named(folder)}", ADVICE):
        model, about = make.from_pretrained(str(folder), config=config, **how)
    other = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in about["mismatched_keys"])
    if other:
        raise InvalidInputError(
            f"{len(other)} tensors of {named(folder)} have other shapes than its {CONFIG} says, such as {some(other)}. "
            f"Copy or save the model again."
        )
    return model.float(), tuple(sorted(map(str, about["missing_keys"])))


@contextmanager
def _quiet(transformers: Any) -> Generator[None, None, None]:
    """Show no bar of transformers."""
    bars = transformers.utils.logging
    shown_before = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown_before:
            bars.enable_progress_bar()


def _pooling(backbone: nn.Module, folder: Path, output: str | None, part: str, missing: tuple[str, ...]) -> str:
    kind = str(getattr(getattr(backbone, "config", None), "model_type", "")).partition("_")[0]
    if output is not None:
        return output
    if (kind, part) in TOWERS:
        return TOWERS[kind, part][1]
    if _takes_text(backbone):
        return "mean"
    pooler = getattr(backbone, "pooler", None)
    return "cls" if pooler is None or any(name.startswith("pooler.") for name in missing) else "pooler_output"


def _embedding(backbone: nn.Module, pooling: str) -> Embedding:
    """Return the model with its pooling; a pooler that is not used goes, for its weights may be noise."""
    if pooling in POOLED and isinstance(getattr(backbone, "pooler", None), nn.Module):
        setattr(backbone, "pooler", None)  # noqa: B010 (mypy knows no such attribute)
    return Embedding(backbone, pooling)


def _takes_text(backbone: nn.Module) -> bool:
    return getattr(backbone, "main_input_name", None) == "input_ids"


def _tokenizer(transformers: Any, folder: Path) -> Any:
    with (
        offline(),
        foreign(
            f"the tokenizer of {named(folder)} cannot be read",
            "Save it beside the model: tokenizer.save_pretrained(folder).",
        ),
    ):
        return transformers.AutoTokenizer.from_pretrained(str(folder), **SAFE)


SOURCE = Source(build, inputs, load, output_of)
