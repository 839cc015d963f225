"""A run as the subject of a proof: its own rows, recipe and loss, and outcomes of samples that it held out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from krepes.attribution import Attribution
from krepes.batches import Batch
from krepes.encoders import PretrainResult
from krepes.encoders.call import call, cast, home
from krepes.errors import InvalidInputError
from krepes.influence import How
from krepes.kernels.base import Kernel
from krepes.model import Krepes
from krepes.proof.subject import MARGIN, NEIGHBOURS, Subject, mixed, nearest
from krepes.runs.losses import code_of_loss, is_own_loss
from krepes.runs.retraining import recording, require_recipe, retrained, training_loss, training_stream
from krepes.runs.settings import flag
from krepes.runs.workspace import Workspace
from krepes.views import ViewStream

OUTCOMES, REFERENCE, NEAREST, FEWEST = 20, 1_000, 10, 3
"""Outcomes of each kind, samples that they are measured against, neighbours of a sample, and the fewest outcomes."""
PIECE = 256


@dataclass(frozen=True, eq=False)
class RunSubject(Subject):
    """A run whose row-level causes are put to the test.

    Attributes:
        space: The run.
        run_sha256: Of its folder.
        test: Held-out samples, ``(2t, ...)``.
        reference: Others, ``(r, ...)``.
        chosen: Which of the reference are of each sample's group, ``(t, r)``.
        classes: Which rows have the class of each test sample, ``(n, t)``; ``None`` without labels.
        trained_on: The views of the training.
        label: Column of the classes, or ``None``.
        seed: Of everything that is drawn.
        first: Name of the first outcome.
    """

    space: Workspace
    run_sha256: str
    test: Batch = field(repr=False)
    reference: Batch = field(repr=False)
    chosen: Tensor = field(repr=False)
    classes: Tensor | None = field(repr=False)
    trained_on: ViewStream = field(repr=False)
    label: str | None
    seed: int
    first: str
    lazy_draws: int | None = How().draws

    @property
    def n(self) -> int:
        """Number of training rows."""
        return len(self.space.train)

    @property
    def group(self) -> Tensor:
        """Which reference samples are of each test sample's group, ``(t, r)``."""
        return self.chosen

    @property
    def same_class(self) -> Tensor | None:
        """Which rows have the class of each test sample, ``(n, t)``, or ``None`` without labels."""
        return self.classes

    @cached_property
    def loss(self) -> Any:  # type: ignore[override]
        """The loss of the training."""
        return training_loss(self.space)

    def train(self, places: Tensor, seed: int) -> nn.Module:
        """Return an encoder trained by the recipe of the run on the rows ``places`` ``(b,)``."""
        return retrained(self.space, places, seed)

    def record(self, member: int) -> PretrainResult:
        """Return the run's own encoder, and the recording of a member, which is made from its seed."""
        return PretrainResult(self._encoder, (), recording(self.space, self.trained_on, member))

    def stream(self, member: int) -> ViewStream:
        """Return the views of the training, the same for all members: their order is of their own."""
        return self.trained_on

    def views(self) -> ViewStream:
        """Return the views of the fit."""
        return self.space.stream

    def embedded(self, encoder: nn.Module) -> Tensor:
        """Return the embeddings of all rows, ``(n, d)``."""
        where = home(encoder)
        pieces = torch.arange(self.n).split(PIECE)
        return torch.cat([call(encoder, cast(self.space.stream.plain(few), *where)) for few in pieces])

    def model(self, encoder: nn.Module) -> Krepes:
        """Return the model of the run."""
        return self.space.model

    def tangent(self, encoder: nn.Module, count: int) -> tuple[Kernel, Batch]:
        """Return the kernel and the landmark points of the run."""
        return self.space.model.base_kernel_, self.space.model.points_

    def kernel(self, model: Krepes, attribution: Attribution) -> Tensor:
        """Return the kernel of test samples and all rows, ``(2t, n)``, landmarks or not."""
        prepared = model.kernel_.prepare(self.test)
        pieces = torch.arange(self.n).split(PIECE)
        return torch.cat([model.kernel_.rows(self.space.stream.plain(few), prepared).K.cpu() for few in pieces]).T

    def details(self) -> dict[str, Any]:
        """Return plain values that tell one subject from another."""
        told = {"run": self.run_sha256, "label": self.label, "seed": self.seed, "outcomes": self.t}
        recipe = self.space.recipe
        if recipe is None or not is_own_loss(recipe.settings):
            return told
        return {**told, "code of the loss": code_of_loss(recipe.settings)}

    @property
    def _encoder(self) -> nn.Module:
        assert isinstance(self.space.model.kernel, nn.Module)
        return self.space.model.kernel


def run_subject(space: Workspace, run_sha256: str, label: str | None, seed: int) -> RunSubject:
    """Return the subject of a run, after everything was checked that can be.

    Args:
        space: The run.
        run_sha256: Of its folder.
        label: Column that defines the margin; ``None`` takes a sample's neighbours in the encoder's own space.
        seed: Draws the outcomes, and all that is drawn later.

    Returns:
        The subject.

    Raises:
        InvalidInputError: If the encoder cannot be trained again, its result has to be picked apart, or too few samples
            were held out.
    """
    settings = require_recipe(space).settings
    if space.asked is not space.data:
        raise InvalidInputError("a proof is about samples that the run itself held out: name no other file by --data.")
    if settings.output is not None:
        raise InvalidInputError(
            f"{flag('output')}: replays take encoders that return the embedding itself, this one has it at "
            f"{settings.output!r}. Wrap it in a module that returns it."
        )
    y = None if label is None else torch.from_numpy(np.unique(space.of_test(label), return_inverse=True)[1])
    test, reference = _drawn(len(space.test), y, seed)
    X_test, X_reference = (space.held_out(places) for places in (test, reference))
    stream = training_stream(space, torch.arange(len(space.train)), settings.seed)
    t, classes, name = len(test) // 2, None, NEIGHBOURS if label is None else MARGIN
    if label is not None and y is not None:
        chosen = y[test[:t], None] == y[reference]
        of_train, of_test = space.pair(label)
        classes = torch.from_numpy(of_train[:, None] == of_test[test[:t].numpy()])
    else:
        encoder = space.model.kernel
        assert isinstance(encoder, nn.Module)
        with torch.no_grad():
            Z, R = (call(encoder, cast(X, *home(encoder))) for X in (X_test, X_reference))
        chosen = nearest(Z, R, max(1, min(NEAREST, len(reference) // 4))).cpu()
    return RunSubject(space, run_sha256, X_test, X_reference, chosen, classes, stream, label, seed, name)


def _drawn(held: int, y: Tensor | None, seed: int) -> tuple[Tensor, Tensor]:
    """Return the places of test samples ``(2t,)`` and of the reference ``(r,)`` among the samples held out.

    Args:
        held: How many were held out.
        y: Their classes; a test sample's must be in the reference, and not be all of it.
        seed: Of the draw.

    Returns:
        Both, disjoint.

    Raises:
        InvalidInputError: If they are too few.
    """
    order = torch.randperm(held, generator=torch.Generator().manual_seed(mixed(seed, 7)))
    r = min(REFERENCE, held // 2)
    reference, rest = order[:r], order[r:]
    if y is not None:
        shares = (y[rest, None] == y[reference]).double().mean(1) if r else torch.zeros(len(rest))
        rest = rest[(shares > 0) & (shares < 1)]
    t = min(OUTCOMES, len(rest) // 2)
    if t < FEWEST:
        raise InvalidInputError(
            f"{held} samples were held out, which leaves {t} outcomes to retrain for; at least {FEWEST} are needed, of "
            f"two classes or more if --label names some. Fit with a larger {flag('holdout')}."
        )
    return rest[: 2 * t], reference
