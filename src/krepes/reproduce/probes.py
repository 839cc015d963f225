"""Linear probes: how much of the classes can be read off an embedding."""

from __future__ import annotations

from krepes.audit.probes import probe
from krepes.encoders import FrozenEncoder
from krepes.model import Krepes
from krepes.reproduce.trial import Experiment

LABELLED = 10_000
"""Training rows with labels that a probe sees, at most."""


def probe_model(model: Krepes, made: Experiment, labelled: int = LABELLED) -> float:
    """Return the accuracy of a probe on a kernel model's embeddings of the test samples."""
    Z = model.transform(made.train(labelled)).numpy()
    return probe(Z, made.labels[0][: len(Z)], model.transform(made.test).numpy(), made.labels[1])


def probe_encoder(made: Experiment, labelled: int = LABELLED) -> float:
    """Return the accuracy of a probe on the encoder's own embeddings of the test samples."""
    encoder = FrozenEncoder(made.encoder)
    Z = encoder.encode(made.train(labelled)).float().numpy()
    return probe(Z, made.labels[0][: len(Z)], encoder.encode(made.test).float().numpy(), made.labels[1])
