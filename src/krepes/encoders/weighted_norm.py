r"""Batch norm with row weights: the statistics of a batch in which row i is there ``w_i`` times.

    μ = Σ w_i x_i / Σ w_i,      σ² = Σ w_i (x_i - μ)² / Σ w_i,      running ← (1 - a) running + a · (μ, σ² W / (W - 1))

with sums over rows and pixels and ``W`` the weight of all of them. A mode sees `F.batch_norm` wherever it is called, so
no encoder has to be rewritten; running statistics are kept instead of written in place, and can be differentiated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class WeightedBatchNorm(TorchFunctionMode):
    """Inside it, every `F.batch_norm` in training mode has weighted statistics, and none is written in place.

    Args:
        w: Weights of the rows of the batch, ``(b,)``; all inputs of batch norms must have ``b`` rows.

    Attributes:
        running: Statistics after the batch, by the ``id`` of the buffer they replace.
    """

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w, self.running = w, dict[int, Tensor]()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Pass every call on, but for batch norms in training mode or with statistics to be differentiated."""
        if func is not F.batch_norm:
            return func(*args, **kwargs or {})
        given = inspect.signature(F.batch_norm).bind(*args, **kwargs or {})
        given.apply_defaults()
        named = dict(given.arguments)
        if named.pop("training"):
            return self._normalise(**named)
        if any(x is not None and x.requires_grad for x in (named["running_mean"], named["running_var"])):
            return _fixed(**named)
        return func(*args, **kwargs or {})

    def after(self, buffer: Tensor) -> Tensor:
        """Return a buffer's value after the batch: the buffer itself if no batch norm replaced it."""
        return self.running.get(id(buffer), buffer)

    def _normalise(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        """Return the normalised ``input`` ``(b, c, ...)``, and keep the running statistics."""
        x = input
        shape = [1, -1] + [1] * (x.ndim - 2)
        axes = [0, *range(2, x.ndim)]
        rows = self.w.reshape(-1, *[1] * (x.ndim - 1))
        total = self.w.sum() * (x[0, 0].numel())
        mean = (rows * x).sum(axes) / total
        centred = x - mean.reshape(shape)
        var = (rows * centred.square()).sum(axes) / total
        for buffer, value in ((running_mean, mean), (running_var, var * total / (total - 1))):
            if buffer is not None:
                self.running[id(buffer)] = (1 - momentum) * self.after(buffer) + momentum * value
        return scaled(centred * (var + eps).rsqrt().reshape(shape), weight, bias)


def _fixed(
    input: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Return ``input`` normalised by given statistics, which torch's own function cannot be differentiated in."""
    shape = [1, -1] + [1] * (input.ndim - 2)
    x = (input - running_mean.reshape(shape)) * (running_var + eps).rsqrt().reshape(shape)
    return scaled(x, weight, bias)


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return ``x`` ``(b, c, ...)`` times ``weight`` plus ``bias``, ``(c,)`` each, where they are."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)
