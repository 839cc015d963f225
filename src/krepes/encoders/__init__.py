"""Encoders written here: the paper's ResMLP, a small MLP, residual networks; and a compact pre-trainer for them."""

from krepes.encoders.mlp import MLP
from krepes.encoders.pretrain import CollapsedEncoderError, pretrain
from krepes.encoders.resmlp import ResMLP
from krepes.encoders.resnet import ResNet, resnet18, resnet34, resnet50

__all__ = ["MLP", "CollapsedEncoderError", "ResMLP", "ResNet", "pretrain", "resnet18", "resnet34", "resnet50"]
