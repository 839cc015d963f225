r"""Differentiate many outcomes of a training in the weights of its rows: one reverse pass, with few states in memory.

    λ_T = ∂o/∂θ_T,      for t = T-1 .. 0:   (λ_t, dw) += (∂ step_t / ∂(θ_t, w))ᵀ λ_{t+1}

Every ``√T``-th state is kept on the way forward, those between are made again segment by segment: ``2√T`` states in
memory for one more forward pass. All outcomes share the graph of a step, their cotangents pass through it one by one.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from krepes.errors import InvalidInputError, UnsupportedEncoderError
from krepes.storage.tensorfile import read_tensors, write_tensors

State = dict[str, Tensor]
Measure = Callable[[State], Tensor]
"""From the state after the last step to all outcomes, ``(O,)``, differentiable."""
MISSING = re.compile(r"derivative for '?([\w:]+)'? is not implemented")
"""What torch says of a function that has no derivative."""


class Stepper(Protocol):
    """``T`` differentiable steps, such as `krepes.encoders.functional.Steps`."""

    @property
    def T(self) -> int:
        """Number of steps."""

    @property
    def n(self) -> int:
        """Number of rows."""

    def start(self) -> State:
        """Return the state before the first step."""

    def __call__(self, t: int, state: State, w: Tensor, *, graph: bool = False) -> State:
        """Return the state after step ``t`` with row weights ``w`` ``(n,)``."""


@dataclass(frozen=True)
class Derivative:
    """What a reverse pass found.

    Attributes:
        values: The outcomes after the last step, ``(O,)``.
        dw: Their derivatives in the row weights, ``(n, O)``.
    """

    values: Tensor
    dw: Tensor


def differentiate(
    steps: Stepper,
    measure: Measure,
    *,
    w: Tensor | None = None,
    memory_budget: int = 2**32,
    group: int | None = None,
    path: str | Path | None = None,
    what: str = "replay",
    progress: bool = True,
) -> Derivative:
    """Return the outcomes of a training and their derivatives in its row weights.

    Args:
        steps: The training.
        measure: The outcomes of its last state.
        w: Where to differentiate, ``(n,)``; by default all ones.
        memory_budget: Bytes for states and cotangents; outcomes go through in groups that fit.
        group: Outcomes that go through together, at most; by default as many as fit the budget.
        path: A safetensors file that keeps the finished part of the reverse pass: killed, a later call with the same
            training and outcomes goes on there. It stays when all is done.
        what: What the bar calls it.
        progress: Show a bar with the time left.

    Returns:
        The derivatives.
    """
    start = steps.start()
    weights = ones_like_state(start, steps.n) if w is None else w.detach()
    stride = max(1, math.isqrt(max(steps.T - 1, 0)) + 1)
    kept = forward(steps, start, weights, stride)
    values, cotangents = _begin(measure, kept[-1])
    groups = _groups(len(values), kept, stride, memory_budget, group)
    found = []
    with tqdm(total=len(groups) * steps.T, desc=what, unit=" steps", disable=not progress) as bar:
        for number, chosen in enumerate(groups):
            part = {name: x[chosen] for name, x in cotangents.items()}
            file = None if path is None else Path(f"{path}.{number}")
            found.append(_backward(steps, weights, kept, stride, part, file, bar))
    return Derivative(values, torch.cat(found).T)


def forward(steps: Stepper, state: State, w: Tensor, stride: int) -> list[State]:
    """Return the states before steps ``0, stride, 2 stride, ...`` and the one after the last step."""
    kept = [state]
    for t in range(steps.T):
        state = steps(t, state, w)
        if (t + 1) % stride == 0 and t + 1 < steps.T:
            kept.append(state)
    return [*kept, state]


def _begin(measure: Measure, last: State) -> tuple[Tensor, State]:
    """Return the outcomes ``(O,)`` and the cotangents of the last state, ``(O, ...)`` for each of its tensors."""
    state = {name: x.detach().requires_grad_() for name, x in last.items() if x.is_floating_point()}
    with torch.enable_grad():
        values = measure(last | state)
        # One at a time: outcomes go through encoders of any kind, not all of which know batches of cotangents.
        rows = [torch.autograd.grad(v, list(state.values()), retain_graph=True, allow_unused=True) for v in values]
    parts = zip(state.items(), zip(*rows, strict=True), strict=True)
    return values.detach(), {name: stack_used(x, found) for (name, x), found in parts}


def _backward(
    steps: Stepper, w: Tensor, kept: list[State], stride: int, cotangents: State, path: Path | None, bar: Any
) -> Tensor:
    """Return ``dw`` ``(O, n)`` of a group of outcomes."""
    key = None if path is None else _key(w, kept, cotangents)
    done, dw, cotangents = _resumed(path, key, w, kept, cotangents)
    bar.update(steps.T - min(steps.T, done * stride))
    for segment in reversed(range(done)):
        low, high = segment * stride, min(steps.T, (segment + 1) * stride)
        states = [kept[segment]]
        for t in range(low, high - 1):
            states.append(steps(t, states[-1], w))
        for t in reversed(range(low, high)):
            change, cotangents = pull_back(steps, t, states.pop(), w, cotangents)
            dw = dw + change
            bar.update()
        if path is not None:
            kept_state = {f"cotangent/{name}": x for name, x in cotangents.items()}
            write_tensors(path, {"dw": dw, **kept_state}, {"done": segment, "key": key})
    return dw


def pull_back(steps: Stepper, t: int, state: State, w: Tensor, cotangents: State) -> tuple[Tensor, State]:
    """Carry cotangents back through one step.

    Args:
        steps: The training.
        t: The step.
        state: Before it.
        w: Row weights, ``(n,)``.
        cotangents: Of the state after it, ``(O, ...)`` for each floating tensor.

    Returns:
        What is added to ``dw``, ``(O, n)``, and the cotangents of the state before the step.

    Raises:
        UnsupportedEncoderError: If torch knows no second derivative of a layer.
        RuntimeError: Of torch, whatever else breaks.
    """
    try:
        return _pulled_back(steps, t, state, w, cotangents)
    except RuntimeError as error:
        missing = MISSING.search(str(error))
        if missing is None:
            raise
        raise UnsupportedEncoderError(
            f"torch has no second derivative of a layer ({missing[1]}), and a replay differentiates gradients. Write "
            f"the layer in plain operations, or use the method lazy, which needs first derivatives alone."
        ) from error


def _pulled_back(steps: Stepper, t: int, state: State, w: Tensor, cotangents: State) -> tuple[Tensor, State]:
    names = [name for name, x in state.items() if x.is_floating_point()]
    inputs = {name: state[name].detach().requires_grad_() for name in names}
    w = w.detach().requires_grad_()
    after = steps(t, state | inputs, w, graph=True)
    pairs = [(after[name], cotangents[name]) for name in names if after[name].requires_grad]
    outputs, given = [p[0] for p in pairs], [p[1] for p in pairs]
    sources = [*inputs.values(), w]
    # One outcome at a time: batches of cotangents leave the cache, and take 1.2 to 2.6 times as long.
    one = partial(torch.autograd.grad, outputs, sources, retain_graph=True, allow_unused=True)
    rows = [one([x[o] for x in given]) for o in range(len(given[0]))]
    parts = [stack_used(x, found) for x, found in zip(sources, zip(*rows, strict=True), strict=True)]
    return parts[-1], dict(zip(names, parts[:-1], strict=True))


def stack_used(x: Tensor, found: Sequence[Tensor | None]) -> Tensor:
    """Return gradients in ``x`` as one tensor ``(O, ...)``; those that autograd leaves out are zero."""
    return torch.stack([torch.zeros_like(x) if g is None else g for g in found])


def _groups(count: int, kept: list[State], stride: int, memory_budget: int, group: int | None) -> list[slice]:
    """Return groups of outcomes whose cotangents fit beside the states."""
    size = sum(x.numel() * x.element_size() for x in kept[0].values())
    states = (len(kept) + stride) * size
    room = (memory_budget - states) // (4 * size)  # before and after a step, and what lies between
    if room < 1:
        raise InvalidInputError(
            f"a replay keeps {len(kept) + stride} states of {size} bytes and four for each outcome, together at least "
            f"{states + 4 * size} bytes; the budget is {memory_budget}. Raise the memory budget or replay fewer steps."
        )
    room = min(room, group or room)
    return [slice(low, low + room) for low in range(0, count, room)]


def _resumed(
    path: Path | None, key: str | None, w: Tensor, kept: list[State], cotangents: State
) -> tuple[int, Tensor, State]:
    """Return segments still to do, ``dw`` so far and cotangents: from a file, or as they are at the end."""
    fresh = len(kept) - 1, w.new_zeros(len(next(iter(cotangents.values()))), len(w)), cotangents
    if path is None or not path.exists():
        return fresh
    tensors, details = read_tensors(path)
    if details.get("key") != key:
        raise InvalidInputError(
            f"{path} holds the reverse pass of another training or of other outcomes. Choose another file, or delete "
            f"this one."
        )
    dw = tensors.pop("dw")
    return int(details["done"]), dw, {name.removeprefix("cotangent/"): x for name, x in tensors.items()}


def _key(w: Tensor, kept: list[State], cotangents: State) -> str:
    """Return what tells a reverse pass from others: the training by its ends, the outcomes by their cotangents."""
    sha = hashlib.sha256()
    for x in (w, *kept[0].values(), *kept[-1].values(), *cotangents.values()):
        sha.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def ones_like_state(state: State, n: int) -> Tensor:
    """Return ``n`` weights of one, of the type and on the device of a state."""
    return next(x for x in state.values() if x.is_floating_point()).new_ones(n)
