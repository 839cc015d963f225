"""Replayable streams of augmented views, and the augmentations of tables, images and texts that make them."""

from krepes.views.base import Augmentation, Compose, Identity, OnFields, PerView
from krepes.views.colour import ColourJitter, Grey, Solarize
from krepes.views.crop import HorizontalFlip, RandomResizedCrop
from krepes.views.function import FunctionAugmentation
from krepes.views.images import GaussianBlur, Normalise, asymmetric_cifar, symmetric_cifar
from krepes.views.noise import Noise
from krepes.views.stream import ViewStream
from krepes.views.tabular import FeatureDrop, GaussianNoise, Scarf
from krepes.views.tokens import Dropout, SpanMask, WordCrop, WordDrop, WordSwap, word_views

__all__ = [
    "Augmentation",
    "ColourJitter",
    "Compose",
    "Dropout",
    "FeatureDrop",
    "FunctionAugmentation",
    "GaussianBlur",
    "GaussianNoise",
    "Grey",
    "HorizontalFlip",
    "Identity",
    "Noise",
    "Normalise",
    "OnFields",
    "PerView",
    "RandomResizedCrop",
    "Scarf",
    "Solarize",
    "SpanMask",
    "ViewStream",
    "WordCrop",
    "WordDrop",
    "WordSwap",
    "asymmetric_cifar",
    "symmetric_cifar",
    "word_views",
]
