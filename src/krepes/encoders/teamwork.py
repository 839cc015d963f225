r"""A training step shared by processes, each with its rows of the batch: statistics and loss are those of the whole.

    batch norm   mean and variance of the rows of all processes, summed with their gradients
    loss         of the projections of all processes, side by side; each sends the gradient of its own rows back
    weights      the gradients of all processes, added up

So a step by several processes is the step by one up to rounding, whatever the loss compares. torch's own synchronised
batch norm works on GPUs alone, and averages over batches of equal size; these sums have neither limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from krepes.encoders.losses import Loss
from krepes.encoders.weighted_norm import normalised
from krepes.errors import InvalidInputError
from krepes.processes import Processes


class _Sum(torch.autograd.Function):
    """The sum over processes; what it gets as gradient is summed too, since each has a part of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, us: Processes) -> Tensor:
        """Return the sum of ``x`` over processes."""
        ctx.us = us
        return us.summed(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the sum of the gradients over processes."""
        return ctx.us.summed(gradients[0]), None


class _SideBySide(torch.autograd.Function):
    """The rows of all processes; each computes the same loss of them, so each takes the gradient of its own rows."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, us: Processes, low: int, size: int) -> Tensor:
        """Return the rows ``(size, ...)``, of which ``Z`` are those from ``low`` on."""
        ctx.rows = slice(low, low + len(Z))
        whole = Z.new_zeros(size, *Z.shape[1:])
        whole[ctx.rows] = Z
        return us.summed(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the own rows."""
        return gradients[0][ctx.rows], None, None, None


class SharedBatchNorm(TorchFunctionMode):
    """Inside it, every `F.batch_norm` in training mode has the statistics of the rows of all processes.

    Args:
        us: The processes.

    Attributes:
        off: Let batch norms alone, as in a loss that sees all rows already.
    """

    def __init__(self, us: Processes) -> None:
        super().__init__()
        self.us, self.off = us, False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Pass every call on, but for batch norms in training mode."""
        if func is not F.batch_norm or self.off:
            return func(*args, **kwargs or {})
        given = inspect.signature(F.batch_norm).bind(*args, **kwargs or {})
        given.apply_defaults()
        named = dict(given.arguments)
        return self._normalise(**named) if named.pop("training") else func(*args, **kwargs or {})

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
        """Return the normalised ``input`` ``(b, c, ...)``, and move the running statistics."""
        x = input if input.dtype == torch.float64 else input.float()
        shape, axes = [1, -1] + [1] * (x.ndim - 2), [0, *range(2, x.ndim)]
        own = x.new_full((1,), x.numel() / x.shape[1])
        sums = self._sum(torch.cat([x.sum(axes), own]))
        total, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        var = self._sum((x - mean.reshape(shape)).square().sum(axes)) / total
        with torch.no_grad():
            for buffer, value in ((running_mean, mean), (running_var, var * total / (total - 1))):
                if buffer is not None:
                    buffer.lerp_(value.to(buffer.dtype), momentum)
        return normalised(x, mean, var, weight, bias, eps).to(input.dtype)

    def _sum(self, x: Tensor) -> Tensor:
        found: Tensor = _Sum.apply(x, self.us)  # type: ignore[no-untyped-call]
        return found


@dataclass(frozen=True)
class Team:
    """The processes of a training, and which rows of a batch are this one's.

    Attributes:
        us: The processes.
        size: Rows of a batch.
    """

    us: Processes
    size: int
    norms: SharedBatchNorm = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse batches with too few rows for everyone."""
        if self.size < self.us.count:
            raise InvalidInputError(
                f"a batch of {self.size} samples cannot be shared by {self.us.count} processes: raise the batch size."
            )
        object.__setattr__(self, "norms", SharedBatchNorm(self.us))

    def own(self, chosen: Tensor) -> Tensor:
        """Return this process's part of the samples ``(b,)`` of a step."""
        return chosen[slice(*self.us.span(len(chosen)))]

    def whole(self, Z: Tensor) -> Tensor:
        """Return the rows of all processes, ``(size, ...)``; gradients of the own ones come back."""
        low, high = self.us.span(self.size)
        if len(Z) != high - low:
            raise InvalidInputError(
                f"a loss over several processes needs one row for each of {high - low} samples, and got {len(Z)}."
            )
        found: Tensor = _SideBySide.apply(Z, self.us, low, self.size)  # type: ignore[no-untyped-call]
        return found

    def loss(self, compare: Loss) -> Loss:
        """Return a loss of two projections ``(b, h)`` of this process's rows: that of all rows.

        Args:
            compare: The loss.

        Returns:
            The same for every process.

        Raises:
            InvalidInputError: If the loss has weights of its own, whose gradient every process has whole.
        """
        if isinstance(compare, nn.Module) and any(True for _ in compare.parameters()):
            raise InvalidInputError("a loss with weights of its own cannot be shared by processes. Train with one.")

        def of_all(*Z: Tensor) -> Tensor:
            rows = [self.whole(z) for z in Z]
            self.norms.off = True
            try:
                return compare(*rows)
            finally:
                self.norms.off = False

        return of_all

    def add_up(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients of weights by their sums over processes, sent together."""
        found = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for dtype in dict.fromkeys(grad.dtype for grad in found):
            some = [grad for grad in found if grad.dtype == dtype]
            total = self.us.summed(torch.cat([grad.reshape(-1) for grad in some]))
            for grad, part in zip(some, total.split([grad.numel() for grad in some]), strict=True):
                grad.copy_(part.view_as(grad))
