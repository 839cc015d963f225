"""Sentence encoders: a folder of sentence-transformers, put together from its JSON files and safetensors.

The folder says which classes to import; they are not imported. Its steps are a transformer, a pooling, and perhaps
dense layers and a normalisation, and these four are made here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from krepes.data.files import named
from krepes.data.values import shown
from krepes.encoders.adapters.adapted import Adapted, Embedding, Inputs, Source
from krepes.encoders.adapters.folders import WEIGHTS, read_json, require_weights
from krepes.encoders.adapters.huggingface import from_huggingface
from krepes.encoders.adapters.packages import require_options
from krepes.encoders.adapters.tokenizers import folder_tokenizer
from krepes.encoders.load import load_encoder
from krepes.errors import InvalidInputError

STEPS, FIRST = "modules.json", "Transformer"
POOLING = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
ACTIVATIONS = {"Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU}
WIDEST = 2**17


class UnitLength(nn.Module):
    """Divides each embedding by its length."""

    def forward(self, Y: Tensor) -> Tensor:
        """Return ``Y`` ``(n, d)`` with rows of length one."""
        return F.normalize(Y, dim=1)


class Dense(nn.Module):
    """A linear layer and an activation, named as sentence-transformers names them.

    Args:
        fan_in: Width before.
        fan_out: Width after.
        bias: Whether there is one.
        activation: One of `ACTIVATIONS`.
    """

    def __init__(self, fan_in: int, fan_out: int, bias: bool, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out, bias=bias)
        self.activation_function = ACTIVATIONS[activation]()

    def forward(self, Y: Tensor) -> Tensor:
        """Return ``(n, fan_out)``."""
        return self.activation_function(self.linear(Y))


def from_sentence_transformers(folder: str | Path) -> Adapted:
    """Return a sentence encoder from a folder that ``SentenceTransformer.save`` wrote; only transformers is needed.

    Args:
        folder: With ``modules.json``; weights must be safetensors.

    Returns:
        The encoder with its pooling, dense layers and normalisation, and the tokenizer.

    Raises:
        InvalidInputError: If the folder cannot be used, or has a step of another kind.
    """
    root = Path(folder)
    if not (root / STEPS).is_file():
        raise InvalidInputError(
            f"{named(root)} holds no {STEPS}: it is no local folder of sentence-transformers. For a plain transformer "
            f"use from_huggingface."
        )
    steps = [_step(root, entry) for entry in read_json(root / STEPS, list)]
    kinds = [kind for kind, _ in steps]
    if kinds[:2] != [FIRST, "Pooling"]:
        raise InvalidInputError(
            f"{named(root)} has the steps {', '.join(kinds) or 'none'}: a {FIRST} and a Pooling come first."
        )
    made = from_huggingface(steps[0][1], output=_pooling(steps[1][1]), part="text")
    after = [_made(kind, path) for kind, path in steps[2:]]
    encoder = Embedding(made.module, made.output, after).eval()
    return Adapted(encoder=encoder, output=made.output, tokenizer=_limited(made.tokenizer, steps[0][1]))


def load(name: str, *, output: str | None = None, **options: Any) -> nn.Module:
    """Return the encoder of a folder with the weights that lie in it; its pooling is its own."""
    require_options(options, (), "st")
    made = from_sentence_transformers(name)
    if output not in {None, made.output}:
        raise InvalidInputError(f"output={shown(output)}: {named(name)} pools by {made.output}. Leave output out.")
    return made.encoder


def output_of(name: str, *, output: str | None = None, **options: Any) -> str:
    """Return the pooling of a folder."""
    return load(name, output=output, **options).pooling  # type: ignore[return-value]


def inputs(name: str, **options: Any) -> Inputs:
    """Return nothing: a sentence encoder takes no images."""
    return Inputs()


def limited_tokenizer(name: str) -> Any:
    """Return the tokenizer of a folder, cutting texts where the folder says that sentences end."""
    folder = _step(Path(name), next(iter(read_json(Path(name) / STEPS, list)), None))[1]
    return _limited(folder_tokenizer(folder), folder)


def _step(root: Path, entry: Any) -> tuple[str, Path]:
    """Return the kind of a step and its folder, which must not lead out of the model's."""
    kind, path = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(path, str) or not kind.startswith("sentence_transformers."):
        raise InvalidInputError(
            f"{named(root / STEPS)} names the step {shown(kind)}, which is none of sentence-transformers."
        )
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        raise InvalidInputError(f"{named(root / STEPS)} names the folder {shown(path)}, outside of its own.")
    return kind.rpartition(".")[2], place


def _pooling(folder: Path) -> str:
    config = read_json(folder / "config.json")
    mode = config.get("pooling_mode")
    modes = (
        [mode] if isinstance(mode, str) else [key for key in config if key.startswith("pooling_mode_") and config[key]]
    )
    found = [ours for ours, theirs in POOLING.items() if modes in ([theirs], [ours])]
    if not found:
        raise InvalidInputError(f"{named(folder)} pools by {shown(modes)}. One of {', '.join(POOLING)} is understood.")
    return found[0]


def _made(kind: str, folder: Path) -> nn.Module:
    if kind == "Normalize":
        return UnitLength()
    if kind == "Dropout":
        return nn.Identity()
    if kind != "Dense":
        raise InvalidInputError(
            f"{named(folder)} is a step {shown(kind)}. Dense, Dropout and Normalize are understood."
        )
    config = read_json(folder / "config.json")
    sizes = [config.get("in_features"), config.get("out_features")]
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if not all(isinstance(size, int) and 0 < size <= WIDEST for size in sizes) or activation not in ACTIVATIONS:
        raise InvalidInputError(
            f"{named(folder)} says widths {shown(sizes)} and activation {shown(activation)}. Widths are up to "
            f"{WIDEST:,}, activations {', '.join(ACTIVATIONS)}."
        )
    require_weights(folder)
    layer = Dense(sizes[0], sizes[1], bool(config.get("bias", True)), activation)
    return load_encoder(layer, folder / WEIGHTS).encoder


def _limited(tokenizer: Any, folder: Path) -> Any:
    """Return the tokenizer, cutting texts where the folder says that sentences end."""
    path = folder / "sentence_bert_config.json"
    longest = read_json(path).get("max_seq_length") if path.is_file() else None
    if isinstance(longest, int) and longest > 0:
        tokenizer.model_max_length = min(longest, tokenizer.model_max_length)
    return tokenizer


SOURCE = Source(load, inputs, load, output_of)
