"""Every name that settings and flags accept, and where what it names lives. Importing this imports none of it.

The rooms build their own tables from these (`krepes.objectives.OBJECTIVES` and so on), so that help, checks and code
cannot disagree, and ``krepes --help`` needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from krepes.errors import InvalidInputError

OBJECTIVES = {
    "barlow_twins": "krepes.objectives.barlow_twins:BarlowTwins",
    "vicreg": "krepes.objectives.vicreg:VICReg",
    "simclr": "krepes.objectives.simclr:SimCLR",
    "byol": "krepes.objectives.byol:BYOL",
    "spectral": "krepes.objectives.spectral:SpectralContrastive",
    "spectral_triplets": "krepes.objectives.triplets:SpectralTriplets",
    "simple": "krepes.objectives.simple:SimpleContrastive",
    "kpca": "krepes.objectives.kpca:KernelPCA",
    "kae": "krepes.objectives.kae:KernelAutoencoder",
}
LANDMARKS = {
    "rpcholesky": "krepes.landmarks.rpcholesky:RPCholesky",
    "kmeans++": "krepes.landmarks.kmeans:KMeansPlusPlus",
    "leverage-nystrom": "krepes.landmarks.leverage:LeverageNystrom",
    "leverage-hutchinson": "krepes.landmarks.leverage:LeverageHutchinson",
    "uniform": "krepes.landmarks.uniform:Uniform",
}
ENCODERS = {
    "mlp": "krepes.encoders.mlp:MLP",
    "resmlp": "krepes.encoders.resmlp:ResMLP",
    "convnet": "krepes.encoders.convnet:ConvNet",
    "resnet18": "krepes.encoders.resnet:resnet18",
    "resnet34": "krepes.encoders.resnet:resnet34",
    "resnet50": "krepes.encoders.resnet:resnet50",
    "text": "krepes.encoders.text:TextEncoder",
}
ADAPTERS = {
    "timm": "krepes.encoders.adapters.timm:SOURCE",
    "torchvision": "krepes.encoders.adapters.torchvision:SOURCE",
    "openclip": "krepes.encoders.adapters.openclip:SOURCE",
    "hf": "krepes.encoders.adapters.huggingface:SOURCE",
    "st": "krepes.encoders.adapters.sentences:SOURCE",
}
"""Packages whose encoders are named ``prefix:name``, such as ``timm:resnet18``."""
WITH_WEIGHTS = ("hf", "st")
"""Prefixes whose names are folders that hold the weights."""
LOSSES = {
    "barlow_twins": "krepes.encoders.losses:barlow_twins",
    "vicreg": "krepes.encoders.losses:vicreg",
    "simclr": "krepes.encoders.losses:simclr",
    "byol": "krepes.encoders.losses:cosine_distance",
    "spectral": "krepes.encoders.losses:spectral",
}
KERNELS = {
    "rbf": "krepes.kernels.classic:RBF",
    "laplacian": "krepes.kernels.classic:Laplacian",
    "polynomial": "krepes.kernels.classic:Polynomial",
    "linear": "krepes.kernels.classic:Linear",
}
"""Kernels without a network; beside them stand the tangent kernels `TANGENT` of an encoder."""
TANGENT = ("auto", "exact", "sketch")
AUGMENTATIONS = {
    "noise": "krepes.runs.augment:noise",
    "drop": "krepes.runs.augment:drop",
    "scarf": "krepes.runs.augment:scarf",
    "crops": "krepes.runs.augment:crops",
    "images": "krepes.runs.augment:images",
    "symmetric_cifar": "krepes.runs.augment:symmetric",
    "asymmetric_cifar": "krepes.runs.augment:asymmetric",
    "words": "krepes.runs.augment:words",
    "dropout": "krepes.runs.augment:dropout",
    "paper": "krepes.runs.augment:paper",
    "none": "krepes.runs.augment:none",
}
EMBEDDED = ("digits", "applicants")
"""Data sets that need no file."""
DATASETS = {
    "adult": "krepes.data.adult:load",
    "bank": "krepes.data.bank:load",
    "cifar10": "krepes.data.cifar10:load",
    "covertype": "krepes.data.covertype:load",
    "fairface": "krepes.data.fairface:load",
    "higgs": "krepes.data.higgs:load",
    "mnist": "krepes.data.mnist:load",
    "scenes": "krepes.data.scenes:load",
}
AUDITS = {
    "trust": "krepes.audit.questions.trust:TRUST",
    "features": "krepes.audit.questions.features:FEATURES",
    "groups": "krepes.audit.questions.groups:GROUPS",
    "proxy": "krepes.audit.questions.proxy:PROXY",
    "consistency": "krepes.audit.questions.consistency:CONSISTENCY",
    "coverage": "krepes.audit.questions.coverage:COVERAGE",
    "faithfulness": "krepes.audit.questions.faithfulness:FAITHFULNESS",
    "deletion": "krepes.audit.questions.deletion:DELETION",
    "concepts": "krepes.audit.questions.concepts:CONCEPTS",
    "spectrum": "krepes.audit.questions.spectrum:SPECTRUM",
}
"""The audits, in the order in which they are shown."""


def load(path: str) -> Any:
    """Return what ``"module:name"`` of this package names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def adapter(encoder: str | None) -> tuple[str, str] | None:
    """Return prefix and name of an encoder of another package, or ``None`` if a name means something else.

    Args:
        encoder: What was written.

    Returns:
        The two parts, or nothing.

    Example:
        >>> adapter("timm:resnet18"), adapter("mymodels:Backbone"), adapter("mlp")
        (('timm', 'resnet18'), None, None)
    """
    prefix, mark, name = (encoder or "").partition(":")
    return (prefix, name) if mark and prefix in ADAPTERS else None


def loaded(table: Mapping[str, str]) -> dict[str, Any]:
    """Return a table of names with what they name, in its order."""
    return {name: load(path) for name, path in table.items()}


def chosen(table: Mapping[str, str], names: Iterable[str] | None, asked_by: str) -> dict[str, Any]:
    """Return what some names of a table name, all of it without names.

    Args:
        table: Names and where they lead.
        names: Which; ``None`` or none for all.
        asked_by: The flag or argument that named them, for the message.

    Returns:
        What they name, in the table's order.

    Raises:
        InvalidInputError: If a name is unknown.
    """
    wanted = list(names or table)
    for name in wanted:
        if name not in table:
            hint = suggestion(name, table) or f" Choose one of {listed(table)}."
            raise InvalidInputError(f"{asked_by}: {name!r} is unknown.{hint}")
    return {name: load(path) for name, path in table.items() if name in wanted}


def listed(names: Iterable[str]) -> str:
    """Return names as text for help and messages, in their order."""
    return ", ".join(names)


def suggestion(name: object, known: Iterable[object]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or nothing where none is near.

    Args:
        name: What was written.
        known: What could have been meant.

    Returns:
        A sentence that starts with a space, or the empty text.

    Example:
        >>> suggestion("gekuendigt", ["gekündigt", "age"])
        " Did you mean 'gekündigt'?"
    """
    near = get_close_matches(str(name), [str(one) for one in known], n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
