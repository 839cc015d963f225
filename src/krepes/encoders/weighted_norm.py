r"""Batch norm with row weights: the statistics of a batch in which row i is there ``w_i`` times.

    μ = Σ w_i x_i / Σ w_i,      σ² = Σ w_i (x_i - μ)² / Σ w_i,      running ← (1 - a) running + a · (μ, σ² W / (W - 1))

with sums over rows and pixels and ``W`` the weight of all of them. A mode sees `F.batch_norm` wherever it is called, so
no encoder has to be rewritten; running statistics are kept instead of written in place, and can be differentiated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
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
        """Pass every call on, but for batch norms."""
        if func is not F.batch_norm:
            return func(*args, **kwargs or {})
        given = inspect.signature(F.batch_norm).bind(*args, **kwargs or {})
        given.apply_defaults()
        named = dict(given.arguments)
        if named.pop("training"):
            return self._normalise(**named)
        mean, var = named["running_mean"], named["running_var"]
        if mean is None or var is None:
            return func(*args, **kwargs or {})
        # Torch's own has no derivative in the statistics, and a second derivative of many passes over the input.
        x = named["input"]
        return normalised(x, mean, var, named["weight"], named["bias"], named["eps"]).to(x.dtype)

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
        x, shape = input if input.dtype == torch.float64 else input.float(), [1, -1] + [1] * (input.ndim - 2)
        rows, total = self.w.to(x), self.w.sum() * (x[0, 0].numel())
        # Pixels are summed first, so that weights multiply (b, c) numbers and not all of them.
        mean = rows @ _sums(x) / total
        var = rows @ _sums((x - mean.reshape(shape)).square()) / total
        for buffer, value in ((running_mean, mean), (running_var, var * total / (total - 1))):
            if buffer is not None:
                self.running[id(buffer)] = (1 - momentum) * self.after(buffer) + momentum * value
        return normalised(x, mean, var, weight, bias, eps).to(input.dtype)


def _sums(x: Tensor) -> Tensor:
    """Return ``x`` ``(b, c, ...)`` summed over pixels, ``(b, c)``."""
    return x.flatten(2).sum(2) if x.ndim > 2 else x


def normalised(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Return ``x`` ``(b, c, ...)`` normalised by statistics ``(c,)``, in one pass over it, as torch's own does."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    size = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    shift = -mean * size if bias is None else bias - mean * size
    return torch.addcmul(shift.reshape(shape), x, size.reshape(shape))
