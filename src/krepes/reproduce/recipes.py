"""How the encoders of the reproductions are trained: plain `Settings`, which ``krepes pretrain --config`` takes too.

A recipe was chosen by the accuracy of a linear probe on held-out rows of another random draw of the data, but for the
augmentation of CIFAR-10, the rows and width of Covertype and the dimensions of faces, which were chosen in sight of the
draw that is reported. The standard recipes fit two CPU cores; the full ones have the paper's architecture and all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from krepes.errors import InvalidInputError
from krepes.runs.settings import Settings

TABLE: dict[str, Any] = {"label": "label", "encoder": "resmlp", "augment": "drop", "projector": (512, 512)}
PICTURE: dict[str, Any] = {"projector": (512, 512)}

STANDARD: dict[str, dict[str, Any]] = {
    "adult": dict(TABLE, max_rows=25_000, epochs=8, encoder_options={"width": 256, "out": 128}),
    "bank": dict(TABLE, max_rows=25_000, epochs=8, encoder="mlp", encoder_options={"width": 256}),
    "covertype": dict(
        TABLE,
        max_rows=100_000,
        epochs=2,
        encoder="mlp",
        encoder_options={"width": 2048, "depth": 1, "out": 2048},
        augment_options={"drop": 0.0, "noise": 0.01},
    ),
    "higgs": dict(
        TABLE,
        max_rows=12_500,
        epochs=8,
        encoder_options={"width": 256, "out": 128},
        augment_options={"drop": 0.1, "noise": 0.05},
    ),
    "mnist": dict(
        PICTURE,
        max_rows=50_000,
        epochs=6,
        lr=3e-3,
        encoder="convnet",
        encoder_options={"width": 24, "out": 512},
        precision="bfloat16",
        augment="crops",
        augment_options={"crop": 0.3},
    ),
    "cifar10": dict(
        PICTURE,
        holdout=0.1,
        epochs=10,
        lr=3e-3,
        momentum=0.95,
        encoder="convnet",
        precision="bfloat16",
        augment="images",
        augment_options={"crop": 0.2, "jitter": 0.4, "flip": 0.5, "grey": 0.2, "side": 24.0},
    ),
    "fairface": dict(
        PICTURE,
        holdout=0.1,
        epochs=8,
        lr=3e-3,
        encoder="convnet",
        encoder_options={"width": 32, "out": 1024},
        augment="images",
        augment_options={"crop": 0.3, "jitter": 0.4, "flip": 0.5, "side": 24.0},
    ),
}

FEWER: dict[str, dict[str, Any]] = {
    "covertype": {"max_rows": 25_000},
    "mnist": {"max_rows": 25_000},
}
"""Barlow Twins serves every target; encoders of other losses serve one, and make do with fewer rows."""
PARTICULAR: dict[tuple[str, str], dict[str, Any]] = {("cifar10", "byol"): {"lr": 1e-3, "epochs": 20}}
"""BYOL has no negatives: with three times the learning rate its embeddings fall to a few dimensions."""
QUICK: dict[str, Any] = {"max_rows": 5_000, "epochs": 4}
FULL: dict[str, dict[str, Any]] = {
    **{
        name: {
            "max_rows": None,
            "epochs": 100,
            "encoder": "resmlp",
            "encoder_options": {"width": 1032, "out": 256},
            "precision": "bfloat16",
        }
        for name in ("adult", "covertype", "higgs")
    },
    "bank": {"max_rows": None, "epochs": 100, "encoder_options": {"width": 512}},
    "mnist": {"max_rows": None, "epochs": 100, "precision": None},
    "cifar10": {
        "max_rows": None,
        "epochs": 1000,
        "lr": 1e-3,
        "encoder": "resnet18",
        "encoder_options": {"width": 64, "cifar_stem": True},
        "precision": None,
        "augment_options": {"crop": 0.25, "flip": 0.5, "grey": 0.2},
    },
    "fairface": {
        "max_rows": None,
        "epochs": 200,
        "lr": 1e-3,
        "encoder": "resnet34",
        "encoder_options": {"width": 64},
        "precision": None,
        "augment_options": {"crop": 0.4, "flip": 0.5},
    },
}


def recipe(data: str, *, loss: str, scale: str, seed: int) -> Settings:
    """Return how an encoder is trained.

    Args:
        data: Name of the data set.
        loss: Of pre-training.
        scale: ``"quick"``, ``"standard"`` or ``"full"``.
        seed: Of rows, weights and views.

    Returns:
        The settings; `krepes.runs.encoder.train_encoder` follows them.

    Raises:
        InvalidInputError: If there is no recipe for the data.
    """
    if data not in STANDARD:
        raise InvalidInputError(f"there is no recipe for {data!r}: there are {', '.join(STANDARD)}.")
    fewer = {} if loss == "barlow_twins" else FEWER.get(data, {})
    standard = {**fewer, **PARTICULAR.get((data, loss), {})}
    changes = {"quick": QUICK, "standard": standard, "full": FULL[data]}[scale]
    return Settings(data=data, loss=loss, seed=seed, **{**STANDARD[data], **changes})


def explained(settings: Settings, seed: int) -> Settings:
    """Return the settings with which a trained encoder is looked at: views by ``seed``, pictures at their own size.

    Small crops make a training cheaper; a network that ends in a mean over positions takes whole pictures as well.
    """
    options = {name: value for name, value in settings.augment_options.items() if name != "side"}
    return replace(settings, seed=seed, augment_options=options)
