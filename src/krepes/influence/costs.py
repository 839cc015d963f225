"""What a rung will take, in operations or in seconds: from one step of it, made and taken back on this machine."""

from __future__ import annotations

import time

from krepes.influence.reverse import Stepper, ones_like_state, pull_back
from krepes.influence.rewind import DRAWS

SEARCH = 3
"""How often the steps are made to find their size, as a guess."""


def lazy_operations(r: int, d: int, steps: int, outcomes: int) -> float:
    """Return about how many operations the steps of a lazy replay and their reverse take, whatever n.

    Args:
        r: Directions of the landmarks' span, at most 256.
        d: Embedding dimension.
        steps: How many.
        outcomes: How many.

    Returns:
        Multiplications and additions.
    """
    return steps * outcomes * 40.0 * (r + d + 1) ** 2 * d


def warm_cost(steps: Stepper, count: int, rewinds: int) -> float:
    """Return predicted seconds of a warm replay with its rewinds, for ``count`` outcomes."""
    return (1 + rewinds) * steps.T * step_cost(steps, count, 2 + SEARCH + (DRAWS if rewinds else 0))


def step_cost(steps: Stepper, count: int, forwards: int) -> float:
    """Return the seconds of a step's share: some forward, and one reverse with ``count`` cotangents."""
    state = steps.start()
    w = ones_like_state(state, steps.n)
    steps(0, state, w)
    began = time.monotonic()
    steps(0, state, w)
    forward = time.monotonic() - began
    few = min(count, 8)
    cotangents = {name: x.new_zeros(few, *x.shape) for name, x in state.items() if x.is_floating_point()}
    began = time.monotonic()
    pull_back(steps, 0, state, w, cotangents)
    return forwards * forward + (time.monotonic() - began) * max(1.0, count / few)
