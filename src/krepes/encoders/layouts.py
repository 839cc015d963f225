"""How other projects name the parameters of an encoder, and where in a file of theirs ours are.

torchvision, timm, VISSL and solo-learn name a ResNet as `krepes.encoders.resnet` does. lightly's recipes put the
children of a torchvision ResNet into a ``Sequential``, which numbers them; its own small-image ResNet says
``shortcut``. DINO, iBOT, MAE and solo-learn name a vision transformer as timm does; DINOv2 calls its registers
otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

AVERAGE = re.compile(r"(^|[/._])(momentum|ema|teacher|target|encoder_k|key)([/._]|$)")


@dataclass(frozen=True)
class Layout:
    """A project's names.

    Attributes:
        name: What a report calls it.
        stages: Its names of our top-level parts, where they differ.
        skip: Its name of the projection in a skip connection.
        cifar_padding: Padding of its small-image stem, which no weight shows; ``None`` if the project has several.
    """

    name: str
    stages: Mapping[str, str]
    skip: str = "downsample"
    cifar_padding: int | None = None

    def alias(self, key: str) -> str:
        """Return this layout's name of our parameter ``key``."""
        first, dot, rest = key.partition(".")
        return self.stages.get(first, first) + dot + rest.replace("downsample.", f"{self.skip}.")


def _numbered(first_layer: int) -> dict[str, str]:
    return {"conv1": "0", "bn1": "1", **{f"layer{k}": str(first_layer + k - 1) for k in range(1, 5)}}


LAYOUTS = (
    Layout("own names", {}),
    Layout("children of a torchvision ResNet", _numbered(4)),
    Layout("lightly ResNet", {}, skip="shortcut", cifar_padding=1),
    Layout("children of a lightly ResNet", _numbered(2), skip="shortcut", cifar_padding=1),
    Layout("DINOv2", {"reg_token": "register_tokens"}),
)


@dataclass(frozen=True)
class Place:
    """Where in a file an encoder's tensors are.

    Attributes:
        layout: How they are named there.
        prefix: What comes before their names.
        names: How many of the encoder's names are there.
        shapes: How many of those have the encoder's shape.
    """

    layout: Layout
    prefix: str
    names: int
    shapes: int

    def rank(self) -> tuple[int, int, bool, int, int]:
        """Return the order of preference: most names, most shapes, the trained network, our names, less nesting."""
        trained = not AVERAGE.search(self.prefix)
        return self.names, self.shapes, trained, -LAYOUTS.index(self.layout), -len(self.prefix)


def find_places(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> list[Place]:
    """Return every place in a file where names of an encoder occur, best first.

    Args:
        own: State dict of the encoder.
        tensors: What the file holds.

    Returns:
        The places, without those of a layout that names this encoder like an earlier one.
    """
    places: list[Place] = []
    seen: list[dict[str, str]] = []
    for layout in LAYOUTS:
        aliases = {layout.alias(key): key for key in own}
        if aliases in seen:
            continue
        seen.append(aliases)
        names: Counter[str] = Counter()
        shapes: Counter[str] = Counter()
        for key, tensor in tensors.items():
            for prefix, alias in _splits(key):
                if alias in aliases:
                    names[prefix] += 1
                    shapes[prefix] += tensor.shape == own[aliases[alias]].shape
        places += [Place(layout, prefix, names[prefix], shapes[prefix]) for prefix in names]
    return sorted(places, key=Place.rank, reverse=True)


def _splits(key: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to cut a name into a prefix and a rest."""
    yield "", key
    for mark in re.finditer(r"[./]", key):
        yield key[: mark.end()], key[mark.end() :]
