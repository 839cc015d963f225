"""KREPES: why does a self-supervised encoder put this sample here, and which training data put it there?

The names below are imported when they are first used, so that ``import krepes`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krepes.registry import load

if TYPE_CHECKING:
    from krepes.attribution import Attribution, attribute, attribute_stream
    from krepes.concepts import ConceptVector
    from krepes.influence import Influence, influence_of
    from krepes.kernels.auto import tangent_kernel
    from krepes.kernels.entk import EmpiricalNTK
    from krepes.kernels.sketch import SketchedNTK
    from krepes.model import Krepes
    from krepes.preset import presets
    from krepes.runs.front import Explanation, explain
    from krepes.runs.proving import prove
    from krepes.views import ViewStream

__version__ = "0.1.0"

_HOMES = {
    "Attribution": "krepes.attribution",
    "ConceptVector": "krepes.concepts",
    "EmpiricalNTK": "krepes.kernels.entk",
    "Explanation": "krepes.runs.front",
    "Influence": "krepes.influence",
    "Krepes": "krepes.model",
    "SketchedNTK": "krepes.kernels.sketch",
    "ViewStream": "krepes.views",
    "attribute": "krepes.attribution",
    "attribute_stream": "krepes.attribution",
    "explain": "krepes.runs.front",
    "influence_of": "krepes.influence",
    "presets": "krepes.preset",
    "prove": "krepes.runs.proving",
    "tangent_kernel": "krepes.kernels.auto",
}

__all__ = [
    "Attribution",
    "ConceptVector",
    "EmpiricalNTK",
    "Explanation",
    "Influence",
    "Krepes",
    "SketchedNTK",
    "ViewStream",
    "attribute",
    "attribute_stream",
    "explain",
    "influence_of",
    "presets",
    "prove",
    "tangent_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'krepes' has no attribute {name!r}")
    return load(f"{_HOMES[name]}:{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
