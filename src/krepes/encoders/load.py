"""Bring your own encoder: a factory, a file of weights, and a report of what fitted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from krepes._checks import require_finite
from krepes.encoders.factory import BUILT_IN, Factory, build_encoder
from krepes.encoders.layouts import Layout, Place, find_places
from krepes.encoders.resnet import ResNet
from krepes.encoders.weights import read_weights
from krepes.errors import InvalidInputError

HEADS = frozenset(
    "fc head heads classifier linear online_classifier projector projection projection_head predictor prediction_head "
    "prototypes queue queue_ptr".split()
)


@dataclass(frozen=True)
class LoadReport:
    """What was loaded from where.

    Attributes:
        path: The file.
        layout: How the file names the parameters.
        prefix: Container and prefix of the tensors that were used, such as ``state_dict/backbone.``.
        alternatives: Other prefixes in the file that fit as well, such as those of a momentum encoder.
        loaded: Names, in the encoder, of the tensors that were loaded.
        missing: Names that the encoder has and the file has not.
        unexpected: Names that the file has below the prefix and the encoder has not.
        mismatched: Name, shape in the file, shape in the encoder, where these differ.
        left_out: Tensors of heads, other networks and optimisers, which an encoder does not need.
    """

    path: Path
    layout: str
    prefix: str
    alternatives: tuple[str, ...]
    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    left_out: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every parameter came from the file, and the file had no other for this encoder."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        """Return one line for what was found, and one for each thing that does not fit."""
        lines = [f"{len(self.loaded)} tensors of {self.path} fit, prefix {self.prefix!r}, {self.layout}"]
        lines += [f"as good: prefix {prefix!r}" for prefix in self.alternatives]
        shapes = [f"{key} is {found} in the file, {own} in the encoder" for key, found, own in self.mismatched]
        for what, items in (("missing", self.missing), ("unexpected", self.unexpected), ("of other shape", shapes)):
            if items:
                lines.append(f"{len(items)} {what}: {_some(items)}")
        if self.left_out:
            lines.append(f"{len(self.left_out)} left out: {_some(self.left_out)}")
        return "\n".join(lines)


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
    prefix and in the layouts of torchvision, timm, solo-learn and lightly; the place where most of them are is used. Of
    a network and its moving average that fit alike the network is used, and the other is reported.

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
    tensors, story = read_weights(weights)
    if factory is None:
        factory, recorded = _recorded(story, weights)
        arguments = recorded | arguments
    encoder = build_encoder(factory, **arguments)
    report = _fill(encoder, tensors, Path(weights), strict, prefix)
    return LoadedEncoder(encoder.eval(), report)


def _recorded(story: dict[str, Any], path: str | Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of the encoder that a file was saved from."""
    config = dict(story.get("encoder") or {})
    name = config.pop("name", None)
    # A file may name an encoder of this package and nothing else: "module:factory" of a stranger would be imported.
    if name not in BUILT_IN:
        raise InvalidInputError(f"{path} does not name an encoder of this package ({name!r}). Pass its factory.")
    return name, config


def _fill(encoder: nn.Module, tensors: dict[str, Tensor], path: Path, strict: bool, prefix: str) -> LoadReport:
    own = encoder.state_dict()
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
        require_finite(tensor, f"{key} in {path}")
    encoder.load_state_dict(fitting, strict=False)
    return report


def _choose(
    own: dict[str, Tensor], tensors: dict[str, Tensor], path: Path, prefix: str
) -> tuple[Place, tuple[str, ...]]:
    places = find_places(own, tensors)
    if not places:
        raise InvalidInputError(
            f"no name in {path} fits the encoder: it holds {_some(list(tensors))}; the encoder has {_some(list(own))}. "
            f"Pass the factory that belongs to these weights."
        )
    if prefix != "auto":
        asked = [place for place in places if _is_asked(place.prefix, prefix)]
        if not asked:
            raise InvalidInputError(
                f"no name of the encoder follows prefix={prefix!r} in {path}. There are names behind "
                f"{_some([repr(place.prefix) for place in places])}."
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


def _some(items: list[str] | tuple[str, ...], shown: int = 4) -> str:
    return ", ".join(items[:shown]) + (f", and {len(items) - shown} more" if len(items) > shown else "")
