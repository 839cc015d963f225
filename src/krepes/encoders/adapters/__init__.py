"""Encoders of other packages, from local files: what they return is pooled, what they expect is read from them."""

from krepes.encoders.adapters.adapted import Adapted
from krepes.encoders.adapters.huggingface import from_huggingface
from krepes.encoders.adapters.openclip import from_openclip
from krepes.encoders.adapters.sentences import from_sentence_transformers
from krepes.encoders.adapters.timm import from_timm
from krepes.encoders.adapters.torchvision import from_torchvision

__all__ = [
    "Adapted",
    "from_huggingface",
    "from_openclip",
    "from_sentence_transformers",
    "from_timm",
    "from_torchvision",
]
