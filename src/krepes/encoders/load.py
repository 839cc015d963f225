"""Bring your own encoder: a factory, a file of weights, and a report of what fitted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from krepes._checks import require_finite
from krepes.data.files import foreign, named
from krepes.data.text import printable
from krepes.data.values import shown
from krepes.encoders.factory import BUILT_IN, Factory, build_encoder
from krepes.encoders.layouts import Layout, Place, find_places
from krepes.encoders.loaded import LoadReport, some
from krepes.encoders.resnet import ResNet
from krepes.encoders.weights import read_weights
from krepes.errors import InvalidInputError

HEADS = frozenset(
    "fc head heads classifier linear online_classifier projector projection projection_head predictor prediction_head "
    "prototypes queue queue_ptr mask_token masked_embed decoder decoder_embed decoder_pos_embed decoder_blocks "
    "decoder_norm decoder_pred".split()
)
"""What networks are trained with and encoders do without: heads, queues, and what masked patches are filled with."""


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in eval mode; ``report`` is ``None`` if no weights were asked for."""

    encoder: nn.Module
    report: LoadReport | None


def load_encoder(
    factory: Factory | None = None,
    weights: str | Path | None = None,
    *,
    strict: bool = True,
    prefix: str = "auto",
    **arguments: Any,
) -> LoadedEncoder:
    """Build an encoder and fill it from a safetensors file or a torch checkpoint.

    Nothing in the file is executed. The encoder's names are looked for in every container of the file, behind any
    prefix and in the layouts of torchvision, timm, solo-learn, lightly, VISSL, MAE and DINO; the place where most of
    them are is used. Of a network and its moving average that fit alike the network is used, and the other is reported.

    Args:
        factory: What `krepes.encoders.factory.build_encoder` takes: a name of this package, ``"module:factory"``, a
            function, or a module. A file that `save_weights` wrote of an encoder of this package does without.
        weights: The file; ``None`` leaves the encoder as it was built.
        strict: Refuse a file that does not fit entirely; otherwise load what fits, and warn.
        prefix: ``"auto"``, or which tensors to use: ``"momentum_backbone."``, ``"teacher/"``, or none, ``""``.
        arguments: Passed to the factory.

    Returns:
        The encoder in eval mode, and the report.

    Raises:
        InvalidInputError: If factory or file cannot be used, or the file does not fit.
    """
    if weights is None:
        if factory is None:
            raise InvalidInputError("neither a factory nor weights were given. Pass at least one.")
        return LoadedEncoder(build_encoder(factory, **arguments).eval(), None)
    tensors, details = read_weights(weights)
    if factory is None:
        factory, recorded = _recorded(details, weights)
        arguments = recorded | arguments
        _require_recorded(recorded, tensors, weights)
    encoder = build_encoder(factory, **arguments)
    report = _fill(encoder, tensors, Path(weights), strict, prefix)
    return LoadedEncoder(encoder.eval(), report)


def _recorded(details: dict[str, Any], path: str | Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of the encoder that a file was saved from."""
    stored = details.get("encoder")
    config = dict(stored) if isinstance(stored, dict) else {}
    name = config.pop("name", None)
    # A file may name an encoder of this package and nothing else: "module:factory" of a stranger would be imported.
    if not isinstance(name, str) or name not in BUILT_IN:
        raise InvalidInputError(
            f"{named(path)} does not name an encoder of this package ({shown(name)}). Pass its factory."
        )
    return name, config


def _require_recorded(recorded: dict[str, Any], tensors: dict[str, Tensor], path: str | Path) -> None:
    """Refuse sizes in a file that its tensors do not bear out: building such a network would fill the memory first."""
    held = sum(tensor.numel() for tensor in tensors.values())
    for key, value in recorded.items():
        if isinstance(value, int) and value > max(held, 1000):
            raise InvalidInputError(
                f"{named(path)} says {key}={value:,}, but all its tensors together hold {held:,} numbers. Pass the "
                f"factory that belongs to these weights, with its arguments."
            )


def _fill(encoder: nn.Module, tensors: dict[str, Tensor], path: Path, strict: bool, prefix: str) -> LoadReport:
    own = {key: value for key, value in encoder.state_dict().items() if isinstance(value, Tensor)}
    if any(is_lazy(value) for value in own.values()):
        raise InvalidInputError("the encoder has lazy layers without shapes yet. Call it once on a batch, then load.")
    place, alternatives = _choose(own, tensors, path, prefix)
    there = {key: place.prefix + place.layout.alias(key) for key in own}
    fitting = {k: tensors[name] for k, name in there.items() if name in tensors and tensors[name].shape == own[k].shape}
    other = [key for key in tensors if key not in set(there.values())]
    unexpected = tuple(key for key in other if _belongs(key, place.prefix))
    report = LoadReport(
        path=path,
        layout=place.layout.name,
        prefix=place.prefix,
        alternatives=alternatives,
        loaded=tuple(fitting),
        # Old checkpoints lack the counter, which no forward pass of an encoder in eval mode reads.
        missing=tuple(k for k, name in there.items() if name not in tensors and not k.endswith("num_batches_tracked")),
        unexpected=unexpected,
        mismatched=tuple(
            (key, tuple(tensors[name].shape), tuple(own[key].shape))
            for key, name in there.items()
            if name in tensors and key not in fitting
        ),
        left_out=tuple(key for key in other if key not in set(unexpected)),
    )
    _require_fit(report, strict)
    _require_stem(encoder, place.layout)
    for key, tensor in fitting.items():
        _require_numbers(tensor, own[key], f"{printable(key)} in {named(path)}")
    with foreign(f"the encoder refused the weights of {named(path)}", "Pass the factory they were made with."):
        encoder.load_state_dict(fitting, strict=False)
    return report


def _require_numbers(tensor: Tensor, own: Tensor, what: str) -> None:
    """Refuse what torch would take for the weights but is not: no values, a part of them, or codes for them."""
    if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
        form = "quantised" if tensor.is_quantized else "empty (meta)" if tensor.is_meta else str(tensor.layout)
        raise InvalidInputError(f"{what} is {form}, not one dense block of numbers. Save it dense: tensor.to_dense().")
    if own.is_floating_point() and not tensor.is_floating_point():
        raise InvalidInputError(
            f"{what} has type {tensor.dtype}, the encoder's is {own.dtype}: complex numbers would lose a part, whole "
            f"numbers may be codes of a compressed file. Save real numbers."
        )
    require_finite(tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize < 4 else tensor, what)


def _choose(
    own: dict[str, Tensor], tensors: dict[str, Tensor], path: Path, prefix: str
) -> tuple[Place, tuple[str, ...]]:
    places = find_places(own, tensors)
    if not places:
        raise InvalidInputError(
            f"no name in {named(path)} fits the encoder: it holds {some(list(tensors))}; the encoder has "
            f"{some(list(own))}. Pass the factory that belongs to these weights."
        )
    if prefix != "auto":
        asked = [place for place in places if _is_asked(place.prefix, prefix)]
        if not asked:
            raise InvalidInputError(
                f"no name of the encoder follows prefix={prefix!r} in {named(path)}. There are names behind "
                f"{some([repr(place.prefix) for place in places])}."
            )
        return asked[0], ()
    best = places[0]
    equal = {p.prefix for p in places if (p.names, p.shapes) == (best.names, best.shapes)} - {best.prefix}
    return best, tuple(sorted(equal))


def _is_asked(found: str, prefix: str) -> bool:
    """Say whether ``prefix`` names the place ``found``, whose containers may be left out."""
    if prefix and prefix[-1] not in "./":
        prefix += "."
    return found == prefix or found.rpartition("/")[2] == prefix or found.endswith(f"/{prefix}" if prefix else "/")


def _belongs(key: str, prefix: str) -> bool:
    """Say whether a tensor below the prefix is a part of the network, not a head on it or another container."""
    rest = key.removeprefix(prefix)
    return key.startswith(prefix) and "/" not in rest and rest.partition(".")[0] not in HEADS


def _require_fit(report: LoadReport, strict: bool) -> None:
    if report.complete:
        return
    message = f"the weights do not fit the encoder.\n{report}"
    stem = [found for key, found, _ in report.mismatched if key == "conv1.weight"]
    if stem and stem[0][2:] in {(3, 3), (7, 7)}:
        message += f"\nThe file's stem is {stem[0][2]}x{stem[0][3]}: pass cifar_stem={stem[0][2] == 3}."
    if strict:
        raise InvalidInputError(f"{message}\nPass the factory they were made with, or strict=False to load what fits.")
    warnings.warn(message, stacklevel=4)


def _require_stem(encoder: nn.Module, layout: Layout) -> None:
    """Refuse a stem whose padding differs: the weights would fit and the embeddings be wrong."""
    if not isinstance(encoder, ResNet) or layout.cifar_padding is None or encoder.conv1.kernel_size != (3, 3):
        return
    if encoder.conv1.padding != (layout.cifar_padding, layout.cifar_padding):
        raise InvalidInputError(
            f"a {layout.name} pads its stem by {layout.cifar_padding}, this encoder by {encoder.conv1.padding[0]}. "
            f"Pass cifar_padding={layout.cifar_padding}."
        )
