"""One run as the explorer holds it: everything that many questions share, computed once when it is opened."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from krepes.attribution import attribute
from krepes.budget import Budget
from krepes.explore.causes import Causes
from krepes.explore.compressed import why_not
from krepes.explore.probing import compress
from krepes.explore.room import Array, Room
from krepes.explore.subject import Subject
from krepes.views.source import evenly_spaced

PIECE = 1024
"""Samples that are embedded together, at most."""
SEEN = 300
"""Explained samples whose movement is looked at when rows are taken away."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """What one pass over all samples keeps of each; float32.

    Attributes:
        latent: Embeddings by the encoder, ``(N, d)``; by the kernel model where there is no encoder.
        Z: Embeddings by the kernel model, ``(N, h)``.
        shift: What the objective added, ``(N, h)``.
        first: The landmark that attracts most, ``(N,)``.
        close: Kernel to the closest landmark, mean over its views, ``(N,)``.
    """

    latent: Array = field(repr=False)
    Z: Array = field(repr=False)
    shift: Array = field(repr=False)
    first: Array = field(repr=False)
    close: Array = field(repr=False)

    @classmethod
    def of(cls, subject: Subject, room: Room, *, progress: bool = True) -> Gathered:
        """Pass over all samples.

        Args:
            subject: The model and its samples.
            room: For what is kept.
            progress: Show a bar.

        Returns:
            What was gathered.
        """
        model, encoder, N = subject.model, subject.model.encoder_, subject.N
        d, h = model.h_ if encoder is None else encoder.encode(subject.samples(torch.arange(1))).shape[1], model.h_
        latent, Z, shift = room.zeros((N, d)), room.zeros((N, h)), room.zeros((N, h))
        first, close = room.zeros((N,), np.int32), room.zeros((N,))
        size = Budget.of(model.memory_budget).rows(64 * len(model.A_), what="a sample's kernel row", most=PIECE)
        with tqdm(total=N, desc="samples", unit=" samples", disable=not progress) as bar:
            for side, stop in ((0, subject.n), (subject.n, N)):
                for start in range(side, stop, size):
                    rows = slice(start, min(start + size, stop))
                    X = subject.samples(torch.arange(rows.start, rows.stop))
                    found = attribute(subject.model, X)
                    embedded = model.solution_.theta[: len(model.A_)]
                    Zs = found.K_tm.flatten(1) @ embedded + model.gamma_
                    E = None if encoder is None else encoder.encode(X)
                    Z[rows] = Zs if model.init != "encoder" or E is None else Zs + E
                    latent[rows] = Z[rows] if E is None else E
                    shift[rows], first[rows] = found.shift, found.scores.argmax(1)
                    close[rows] = found.K_tm.mean(1).amax(1)
                    bar.update(rows.stop - rows.start)
        return cls(latent, Z, shift, first, close)


@dataclass(frozen=True, eq=False)
class State:
    """An opened run.

    Attributes:
        subject: The model and its samples.
        found: What the pass over all samples kept.
        causes: Answers what would have been different; ``None`` where the objective does not allow it.
        why: Why it does not, or ``None``.
        lock: The encoder answers one question at a time.
    """

    subject: Subject
    found: Gathered = field(repr=False)
    causes: Causes | None = field(repr=False)
    why: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, subject: Subject, *, progress: bool = True) -> State:
        """Pass over all samples, and over the training data once more.

        Args:
            subject: The model and its samples.
            progress: Show bars.

        Returns:
            The opened run.
        """
        room = Room(Budget.of(subject.model.memory_budget))
        found = Gathered.of(subject, room, progress=progress)
        why = why_not(subject.model)
        causes = None if why else Causes(compress(subject.model, subject.stream, room, progress=progress))
        state = cls(subject, found, causes, why)
        state.prepare()
        return state

    def prepare(self) -> None:
        """Compute what the first questions would wait for."""
        _ = self.unit, self.subject.place_of, self.landmark_place
        if self.causes is not None:
            self.causes.prepare()
            _ = self.origin, self.seen_rows

    @cached_property
    def unit(self) -> Array:
        """Latent embeddings about their mean, of length one, ``(N, d)``."""
        centred = self.found.latent - self.found.latent.mean(0)
        return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-30)

    @cached_property
    def landmarks(self) -> Array:
        """Places of the landmarks, ``(m,)``."""
        return self.subject.model.landmarks_.numpy()

    @cached_property
    def landmark_place(self) -> dict[int, int]:
        """Number of each landmark by its place."""
        return {int(place): l for l, place in enumerate(self.landmarks)}

    @cached_property
    def origin(self) -> Tensor:
        """Mean compressed row of the reference, ``(r + 1,)``."""
        assert self.causes is not None
        with self.lock:
            return self.causes.rows.seen(self.subject.model.model_rows(self.subject.model.reference_)).mean(0)

    @cached_property
    def seen(self) -> Array:
        """Places of explained samples whose movement is looked at, evenly spaced."""
        n, N = self.subject.n, self.subject.N
        return n + evenly_spaced(N - n, SEEN).numpy() if N > n else evenly_spaced(n, SEEN).numpy()

    @cached_property
    def seen_rows(self) -> Tensor:
        """Their compressed rows, ``(t, r + 1)``."""
        return self.compressed(self.seen)

    def compressed(self, rows: Array) -> Tensor:
        """Return compressed augmented rows of samples, ``(b, r + 1)``."""
        assert self.causes is not None
        X = self.subject.samples(torch.from_numpy(np.asarray(rows, dtype=np.int64)))
        with self.lock:
            return self.causes.rows.seen(self.subject.model.model_rows(X))
