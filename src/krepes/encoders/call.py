"""The one place that calls an encoder: kernels, audits, probes, reports and pre-training all come through here.

Samples are a tensor, a tuple or list (passed by position) or a mapping (by keyword), moved to the encoder's device and,
in floating point, to its type. `krepes.encoders.frozen` puts these few functions together for an encoder that is only
looked at; pre-training uses them as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from krepes import batches
from krepes.batches import Batch
from krepes.encoders.outputs import Output, pick
from krepes.errors import InvalidInputError
from krepes.linalg import without_autocast


def call(encoder: Callable[..., Any], X: Batch, output: Output = None) -> Tensor:
    """Return the embeddings of a batch, as the encoder is: in its mode, with its graph.

    Args:
        encoder: A module, or its forward pass with other parameters.
        X: ``n`` samples, on its device and in its type.
        output: Where in the result the embedding is.

    Returns:
        ``(n, d, ...)``.

    Raises:
        InvalidInputError: If the encoder does not take such samples.
        TypeError: From inside the forward pass, as it is.
    """
    X = batches.plain(X)
    args: tuple[Any, ...] = tuple(X) if isinstance(X, (tuple, list)) else () if isinstance(X, dict) else (X,)
    kwargs: dict[str, Any] = X if isinstance(X, dict) else {}
    try:
        result = encoder(*args, **kwargs)
    except TypeError as error:
        reason = _misfit(encoder, args, kwargs)
        if reason is None:
            raise
        raise InvalidInputError(
            f"the encoder does not take these samples: {reason}. A tensor is passed as its only argument, a tuple by "
            f"position, a dict by keyword: pass what its forward pass is called with."
        ) from error
    return pick(result, output)


def cast(X: Batch, device: torch.device, dtype: torch.dtype | None) -> Batch:
    """Return a batch on a device, its floating-point parts in a type (``None`` leaves them), detached."""

    def to(leaf: Tensor) -> Tensor:
        return leaf.detach().to(device, dtype if leaf.is_floating_point() else None)

    return batches.map_tensors(to, batches.take(X, slice(None)))


def home(module: nn.Module) -> tuple[torch.device, torch.dtype | None]:
    """Return device and type of a module's first floating-point parameter or buffer; CPU and ``None`` without one."""
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.dtype.is_floating_point:
            return tensor.device, tensor.dtype
    return torch.device("cpu"), None


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside `DataParallel`, `DistributedDataParallel` and ``torch.compile``."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
            module = inner
        else:
            return module


@contextmanager
def evaluation(module: nn.Module) -> Generator[None, None, None]:
    """Put a module in eval mode, parameters constant, attention's fused path and autocast off; restore it all after.

    The fused path returns zeros at padded tokens where the plain one does not: with it, an embedding would depend on
    whether gradients are on.
    """
    in_training = [part for part in module.modules() if part.training]
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        if in_training:
            with suppress(NotImplementedError):  # an exported graph has one mode
                module.eval()
        for parameter in trainable:
            parameter.requires_grad_(False)
        torch.backends.mha.set_fastpath_enabled(False)
        with without_autocast():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for part in in_training:
            part.training = True
        for parameter in trainable:
            parameter.requires_grad_(True)


def _misfit(encoder: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return why the arguments do not fit the forward pass, or ``None`` if they do."""
    function = encoder.forward if isinstance(encoder, nn.Module) else encoder
    try:
        signature = inspect.signature(function)
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = f"{len(args)} by position" if args else f"the keywords {', '.join(map(str, kwargs))}"
        return f"forward{signature} was given {given} ({error})"
    except ValueError:  # no signature to be had
        return None
    return None
