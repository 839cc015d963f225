r"""Batch norm with row weights: the statistics of a batch in which row i is there ``w_i`` times.

    μ = Σ w_i x_i / Σ w_i,      σ² = Σ w_i (x_i - μ)² / Σ w_i,      running ← (1 - a) running + a · (μ, σ² W / (W - 1))

with sums over rows and pixels and ``W`` the weight of all of them. A mode sees `F.batch_norm` wherever it is called, so
no encoder has to be rewritten; running statistics are kept instead of written in place, and can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class WeightedBatchNorm(TorchFunctionMode):
    """Inside it, every `F.batch_norm` in training mode has weighted statistics.

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
        """Pass every call on, but for batch norms in training mode."""
        if func is not F.batch_norm or not _argument(args, kwargs, 5, "training", False):
            return func(*args, **kwargs or {})
        named = {
            name: _argument(args, kwargs, place, name, default)
            for place, name, default in (
                (1, "running_mean", None),
                (2, "running_var", None),
                (3, "weight", None),
                (4, "bias", None),
                (6, "momentum", 0.1),
                (7, "eps", 1e-5),
            )
        }
        return self._normalise(_argument(args, kwargs, 0, "input", None), **named)

    def after(self, buffer: Tensor) -> Tensor:
        """Return a buffer's value after the batch: the buffer itself if no batch norm replaced it."""
        return self.running.get(id(buffer), buffer)

    def _normalise(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        """Return the normalised ``x`` ``(b, c, ...)``, and keep the running statistics."""
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
        out = centred * (var + eps).rsqrt().reshape(shape)
        if weight is not None:
            out = out * weight.reshape(shape)
        return out if bias is None else out + bias.reshape(shape)


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else (kwargs or {}).get(name, default)
