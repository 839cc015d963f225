"""Encoders written here and encoders brought along, and a pre-trainer for any of them."""

from krepes.encoders.adapters import (
    Adapted,
    from_huggingface,
    from_openclip,
    from_sentence_transformers,
    from_timm,
    from_torchvision,
)
from krepes.encoders.convnet import ConvNet
from krepes.encoders.factory import BUILT_IN, build_encoder
from krepes.encoders.frozen import FrozenEncoder
from krepes.encoders.load import LoadedEncoder, load_encoder
from krepes.encoders.loaded import LoadReport
from krepes.encoders.mlp import MLP
from krepes.encoders.pretrain import PretrainResult, pretrain
from krepes.encoders.resmlp import ResMLP
from krepes.encoders.resnet import ResNet, resnet18, resnet34, resnet50
from krepes.encoders.text import TextEncoder
from krepes.encoders.training import CollapsedEncoderError, Epoch
from krepes.encoders.weights import UnsafeCheckpointError, save_weights

__all__ = [
    "BUILT_IN",
    "MLP",
    "Adapted",
    "CollapsedEncoderError",
    "ConvNet",
    "Epoch",
    "FrozenEncoder",
    "LoadReport",
    "LoadedEncoder",
    "PretrainResult",
    "ResMLP",
    "ResNet",
    "TextEncoder",
    "UnsafeCheckpointError",
    "build_encoder",
    "from_huggingface",
    "from_openclip",
    "from_sentence_transformers",
    "from_timm",
    "from_torchvision",
    "load_encoder",
    "pretrain",
    "resnet18",
    "resnet34",
    "resnet50",
    "save_weights",
]
