"""The phases of a fit: a bar for each from its first second, and what it cost in samples through the encoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tqdm import tqdm

from krepes.encoders.frozen import FrozenEncoder

KERNEL, REFERENCE, SELECTION, LANDMARKS, PASS, SOLVE = "kernel", "reference", "selection", "landmarks", "pass", "solve"
"""In the order of a fit."""
UNCOUNTED = "{desc}: {n_fmt}{unit} [{elapsed}{postfix}]"
_watching: ContextVar[Callable[[str], None] | None] = ContextVar("_watching", default=None)


def tell(words: str) -> None:
    """Show how far the open phase has come, such as the damping that is tried; without a bar nothing happens."""
    watching = _watching.get()
    if watching is not None:
        watching(words)


@dataclass(frozen=True)
class Spent:
    """What a phase cost.

    Attributes:
        samples: Samples that went forward through the encoder.
        seconds: Of the clock on the wall.
    """

    samples: int
    seconds: float


class Phases:
    """Opens the phases of one fit, and keeps what they cost.

    Args:
        show: Show bars. They count samples through the encoder, which is where the time goes.

    Attributes:
        encoder: The encoder, as soon as it is known; ``None`` for a kernel without one.
        spent: What each finished phase cost, by name.
    """

    def __init__(self, show: bool) -> None:
        self.show = show
        self.encoder: FrozenEncoder | None = None
        self.spent: dict[str, Spent] = {}

    @contextmanager
    def open(self, name: str, samples: int | None = None) -> Generator[None, None, None]:
        """Hold a phase open.

        Args:
            name: Of the phase.
            samples: How many will go through the encoder, where it is known.

        Yields:
            Nothing.
        """
        before, started = self._samples(), time.perf_counter()
        with tqdm(
            total=samples or None,
            desc=name,
            unit=" samples",
            disable=not self.show,
            leave=bool(samples),
            bar_format=None if samples else UNCOUNTED,
        ) as bar:
            if self.encoder is not None:
                self.encoder.watch = bar.update
            token = _watching.set(bar.set_postfix_str)
            try:
                yield
            finally:
                _watching.reset(token)
                if self.encoder is not None:
                    self.encoder.watch = None
        self.spent[name] = Spent(self._samples() - before, time.perf_counter() - started)

    def _samples(self) -> int:
        return 0 if self.encoder is None else self.encoder.samples
