"""KREPES: why does a self-supervised encoder put this sample here, and which training data put it there?

The names below are imported when they are first used, so that ``import krepes`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krepes.attribution import Attribution, attribute, attribute_stream
    from krepes.concepts import ConceptVector
    from krepes.influence import Influence, influence_of
    from krepes.kernels.auto import tangent_kernel
    from krepes.kernels.entk import EmpiricalNTK
    from krepes.kernels.sketch import SketchedNTK
    from krepes.model import Krepes
    from krepes.views import ViewStream

__version__ = "0.1.0"

_HOMES = {
    "Attribution": "krepes.attribution",
    "attribute": "krepes.attribution",
    "attribute_stream": "krepes.attribution",
    "ConceptVector": "krepes.concepts",
    "Influence": "krepes.influence",
    "influence_of": "krepes.influence",
    "tangent_kernel": "krepes.kernels.auto",
    "EmpiricalNTK": "krepes.kernels.entk",
    "SketchedNTK": "krepes.kernels.sketch",
    "Krepes": "krepes.model",
    "ViewStream": "krepes.views",
}

__all__ = [
    "Attribution",
    "ConceptVector",
    "EmpiricalNTK",
    "Influence",
    "Krepes",
    "SketchedNTK",
    "ViewStream",
    "attribute",
    "attribute_stream",
    "influence_of",
    "tangent_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'krepes' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
