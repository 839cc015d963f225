"""Kernels: the tangent kernel of an encoder, exact or sketched, classic ones, and kernels around kernels."""

from krepes.kernels.auto import KernelChoice, tangent_kernel
from krepes.kernels.base import Kernel, MeanFeature, Rows
from krepes.kernels.classic import RBF, Laplacian, Linear, Polynomial
from krepes.kernels.entk import EmpiricalNTK
from krepes.kernels.sketch import SketchedNTK
from krepes.kernels.transforms import Centred, Cosine, default_transform

__all__ = [
    "RBF",
    "Centred",
    "Cosine",
    "EmpiricalNTK",
    "Kernel",
    "KernelChoice",
    "Laplacian",
    "Linear",
    "MeanFeature",
    "Polynomial",
    "Rows",
    "SketchedNTK",
    "default_transform",
    "tangent_kernel",
]
