"""Recurrent layers written out step by step with ``F.linear``, which the rule for linear layers sees.

The fused functions hide their products, and `vmap` cannot batch them: their parameters would cost a pass per sample.
The products with the inputs are one call for all steps; those with the state are one call a step, joined as tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]
"""``(input's products, state's products, state) -> state``, whose first entry is the output."""


def _lstm_step(a: Tensor, b: Tensor, state: State) -> State:
    i, f, g, o = (a + b).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(a: Tensor, b: Tensor, state: State) -> State:
    (r, z, n), (r_h, z_h, n_h) = a.chunk(3, -1), b.chunk(3, -1)
    z = (z + z_h).sigmoid()
    n = (n + (r + r_h).sigmoid() * n_h).tanh()
    return ((1 - z) * n + z * state[0],)


def _tanh_step(a: Tensor, b: Tensor, state: State) -> State:
    return ((a + b).tanh(),)


def _relu_step(a: Tensor, b: Tensor, state: State) -> State:
    return ((a + b).relu(),)


def _direction(step: Step, x: Tensor, state: State, weights: list[Tensor], *, back: bool) -> tuple[Tensor, State]:
    """Return outputs ``(T, n, H)`` and the last state of one layer in one direction, for inputs ``(T, n, I)``."""
    W_ih, W_hh, *biases = weights
    b_ih, b_hh = biases or (None, None)
    products = F.linear(x, W_ih, b_ih)
    outputs = []
    for t in reversed(range(len(x))) if back else range(len(x)):
        state = step(products[t], F.linear(state[0], W_hh, b_hh), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if back else outputs), state


def _layers(step: Step, entries: int) -> Callable[..., Any]:
    """Return the function of several layers with the signature of ``torch.gru`` and its kind."""

    def rewrite(
        held: Any,
        input: Tensor,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: Any,
        train: Any,
        bidirectional: Any,
        batch_first: Any = None,
    ) -> Any:
        per_direction = 4 if has_biases is True else 2
        first = hx if entries == 1 else hx[0] if isinstance(hx, (tuple, list)) else None
        if not isinstance(params, (tuple, list)) or batch_first is None or first is None or input.ndim != 3:
            return None  # packed sequences
        directions = 2 if bidirectional else 1
        projected = len(params) != per_direction * directions * num_layers
        if projected or first.ndim != 3 or (train and dropout > 0):
            return None
        states = [hx] if entries == 1 else list(hx)
        x = input.transpose(0, 1) if batch_first else input
        last: list[State] = []
        for layer in range(num_layers):
            sides = []
            for back in range(directions):
                k = layer * directions + back
                weights = list(params[k * per_direction : (k + 1) * per_direction])
                side, state = _direction(step, x, tuple(part[k] for part in states), weights, back=bool(back))
                sides.append(side)
                last.append(state)
            x = torch.cat(sides, -1)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *[torch.stack(parts) for parts in zip(*last, strict=True)])

    return rewrite


def _cell(step: Step, entries: int) -> Callable[..., Any]:
    """Return the function of a single step with the signature of ``torch.gru_cell`` and its kind."""

    def rewrite(
        held: Any, input: Tensor, hx: Any, W_ih: Tensor, W_hh: Tensor, b_ih: Any = None, b_hh: Any = None
    ) -> Any:
        state = (hx,) if entries == 1 else tuple(hx)
        found = step(F.linear(input, W_ih, b_ih), F.linear(state[0], W_hh, b_hh), state)
        return found[0] if entries == 1 else found

    return rewrite


RECURRENT: dict[Any, Callable[..., Any]] = {
    torch.lstm: _layers(_lstm_step, 2),
    torch.gru: _layers(_gru_step, 1),
    torch.rnn_tanh: _layers(_tanh_step, 1),
    torch.rnn_relu: _layers(_relu_step, 1),
    torch.lstm_cell: _cell(_lstm_step, 2),
    torch.gru_cell: _cell(_gru_step, 1),
    torch.rnn_tanh_cell: _cell(_tanh_step, 1),
    torch.rnn_relu_cell: _cell(_relu_step, 1),
}
"""The functions behind ``nn.LSTM``, ``nn.GRU``, ``nn.RNN`` and their cells."""
