"""Linear probes: how much of the classes can be read off an embedding."""

from __future__ import annotations

import torch
from torch import Tensor

from krepes.audit.probes import probe
from krepes.encoders import ConvNet, FrozenEncoder, ResNet
from krepes.model import Krepes
from krepes.reproduce.trial import Experiment

LABELLED, PICTURES = 10_000, 5_000
"""Training rows with labels that a probe sees, at most; fewer of pictures, whose kernel rows are dear."""
KERNELS = 3
"""Whose rows are kept: a table of objectives takes a fit for moments, one for rows and one of its own."""


def labelled_rows(made: Experiment) -> int:
    """Return how many training rows with labels a probe sees: of the encoder and of its models, the same."""
    return min(made.stream.n, PICTURES if isinstance(made.encoder, (ResNet, ConvNet)) else LABELLED)


class ModelProbe:
    """Accuracies of probes on the embeddings of kernel models; those that share a kernel share its rows.

    Models of many objectives over the same landmarks differ by their coefficients alone: rows of all samples, which
    are most of the work, are made once for them. Two fits share a kernel if that between their landmark points is the
    same to the last bit.

    Args:
        made: The experiment, whose test samples are judged.
        labelled: Training rows with labels, at most; by default `labelled_rows`.
    """

    def __init__(self, made: Experiment, labelled: int | None = None) -> None:
        self.made, self.samples = made, (made.train(labelled_rows(made) if labelled is None else labelled), made.test)
        self._kept: list[tuple[Tensor, list[Tensor]]] = []

    def __call__(self, model: Krepes) -> float:
        """Return the accuracy of one model."""
        theta = model.solution_.theta
        Z, Z_test = ((rows @ theta[:-1] + theta[-1]).numpy() for rows in self._rows(model))
        return probe(Z, self.made.labels[0][: len(Z)], Z_test, self.made.labels[1])

    def _rows(self, model: Krepes) -> list[Tensor]:
        """Return rows of training and of test samples; those of the last few kernels are kept."""
        found = next((rows for K, rows in self._kept if torch.equal(K, model.K_mm_)), None)
        if found is None:
            found = [model.model_rows(X) for X in self.samples]
            self._kept = [*self._kept[1 - KERNELS :], (model.K_mm_, found)]
        return found


def probe_model(model: Krepes, made: Experiment, labelled: int | None = None) -> float:
    """Return the accuracy of a probe on a kernel model's embeddings of the test samples."""
    return ModelProbe(made, labelled)(model)


def probe_encoder(made: Experiment, labelled: int | None = None) -> float:
    """Return the accuracy of a probe on the encoder's own embeddings of the test samples."""
    encoder = FrozenEncoder(made.encoder)
    Z = encoder.encode(made.train(labelled_rows(made) if labelled is None else labelled)).float().numpy()
    return probe(Z, made.labels[0][: len(Z)], encoder.encode(made.test).float().numpy(), made.labels[1])


def probe_input(made: Experiment, labelled: int) -> float:
    """Return the accuracy of a probe on the input itself: what an encoder has to be better than."""
    X = made.train(labelled).flatten(1).numpy()
    return probe(X, made.labels[0][: len(X)], made.test.flatten(1).numpy(), made.labels[1])
