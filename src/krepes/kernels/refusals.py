"""Encoders whose tangent kernel is not defined, or not what the user thinks it is: refused with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction

from krepes import batches
from krepes._checks import require_finite
from krepes.batches import Batch
from krepes.errors import UnsupportedEncoderError

RECOMPUTES = (
    "the encoder recomputes layers in its backward pass (torch.utils.checkpoint), where they cannot be watched. Switch "
    "gradient checkpointing off: one batch at a time needs little memory."
)
"""Said of an encoder with gradient checkpointing."""
LOOKED_AT = (8, 64)
"""Samples whose embeddings must not all be the same: a few, and more if these are."""
COLLAPSED = 1e-6
"""Embeddings that differ by less than this part of their size are one point."""


def require_supported(encoder: nn.Module) -> None:
    """Raise if the encoder has no parameters, non-finite, complex, quantized or moving ones, or batch statistics."""
    parameters = dict(encoder.named_parameters())
    for name, module in encoder.named_modules():
        kind = type(module)
        if "quantized" in kind.__module__:
            raise UnsupportedEncoderError(
                f"'{name}' is a quantized module ({kind.__name__}): its weights are integers and have no gradient. "
                f"Pass the encoder before quantization."
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise UnsupportedEncoderError(
                f"'{name}' ({kind.__name__}) has max_norm={module.max_norm:g}: it rescales its own rows in every pass "
                f"forward, so that they are not frozen. Rescale them once and switch it off, embeddings stay the same: "
                f"e.weight.data = e.weight.data.renorm({module.norm_type:g}, 0, e.max_norm); e.max_norm = None."
            )
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise UnsupportedEncoderError(
                f"'{name}' is a {kind.__name__} without running statistics: it looks at the whole batch even in eval "
                f"mode, so a sample has no embedding of its own. Use track_running_stats=True or another norm."
            )
    if isinstance(encoder, torch.jit.ScriptModule):
        raise UnsupportedEncoderError(
            "the encoder is a TorchScript module, whose layers cannot be watched. Pass the Python module it was made "
            "from, or nn.Sequential(encoder): slower, for every parameter is then served by per-sample gradients."
        )
    if not any(parameter.dtype.is_floating_point or parameter.dtype.is_complex for parameter in parameters.values()):
        raise UnsupportedEncoderError(
            f"{type(encoder).__name__} has no parameters in floating point, so it has no tangent kernel. Use a classic "
            f"kernel instead."
        )
    for name, parameter in parameters.items():
        if parameter.is_complex():
            raise UnsupportedEncoderError(
                f"parameter '{name}' is complex ({parameter.dtype}): the tangent kernel needs real parameters. "
                f"Store real and imaginary parts as two real parameters."
            )
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedEncoderError(f"parameter '{name}' is not initialised: run the encoder once on a batch.")
        require_finite(parameter.detach(), f"parameter '{name}'")


def require_watchable(name: str, device: torch.device) -> None:
    """Raise if a layer runs where its gradient is not what it seems.

    Args:
        name: A parameter that takes part.
        device: Where it is.

    Raises:
        UnsupportedEncoderError: Inside autocast, or inside a checkpoint of the older kind, which hides the graph.
    """
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        raise UnsupportedEncoderError(
            f"the layer of '{name}' runs under autocast ({torch.get_autocast_dtype(device.type)}), which the encoder "
            f"switches on inside its forward pass: gradients of so few digits are noise to a kernel. Switch it off "
            f"there (torch.autocast(..., enabled=False)) and pass the encoder in float32."
        )
    frame = None if torch.is_grad_enabled() else sys._getframe()
    while frame is not None:
        if frame.f_code is CheckpointFunction.forward.__code__:
            raise UnsupportedEncoderError(RECOMPUTES)
        frame = frame.f_back


@torch.no_grad()
def require_batch_free(embed: Callable[[Batch], Tensor], X: Batch) -> None:
    """Raise unless the embeddings repeat, are finite, and do not depend on what else is in the batch.

    Args:
        embed: The encoder in eval mode, batch to ``(n, d)``.
        X: A few samples.

    Raises:
        UnsupportedEncoderError: If the forward pass is random or couples the samples of a batch.
    """
    together, again = embed(X), embed(X)
    require_finite(together, "the encoder's output")
    scale = float(together.abs().max()) or 1.0
    # Types of few digits would let anything pass, so both tolerances are capped.
    eps = torch.finfo(together.dtype).eps
    random = float((together - again).abs().max()) / scale
    if random > min(100 * eps, 1e-2):
        raise UnsupportedEncoderError(
            f"two forward passes of the same samples differ by {random:.1e} relative: the encoder draws random numbers "
            f"even in eval mode. Remove the noise or tie dropout to self.training."
        )
    alone = torch.cat([embed(batches.take(X, slice(i, i + 1))) for i in range(batches.count(X))])
    coupled = float((together - alone).abs().max()) / scale
    if coupled > min(1e4 * eps, 1e-1):
        raise UnsupportedEncoderError(
            f"a sample's embedding changes by {coupled:.1e} relative when it is alone in its batch: a layer looks at "
            f"the whole batch. Use running statistics, or a per-sample norm."
        )


def require_spread(Z: Tensor, X: Batch) -> None:
    """Raise if an encoder gives all samples one embedding: there is nothing to explain, and no kernel after centring.

    Args:
        Z: Embeddings, ``(n, d)``.
        X: The samples, for the message.

    Raises:
        UnsupportedEncoderError: If the embeddings are equal to ``COLLAPSED`` of their size.
    """
    size, apart = float(Z.abs().max()), float((Z - Z.mean(0)).abs().max())
    if len(Z) < 2 or apart > COLLAPSED * size:
        return
    inputs = [leaf.double() for leaf in batches.leaves(X) if isinstance(leaf, Tensor)]
    spread = max((float((leaf - leaf.mean(0)).abs().max()) for leaf in inputs), default=0.0)
    cause = "the encoder is collapsed" if spread > 0 else "the samples are all the same"
    raise UnsupportedEncoderError(
        f"all embeddings of {len(Z)} samples are equal to {COLLAPSED:.0e}: they differ by at most {apart:.1e} at a "
        f"size of {size:.1e}, while the samples differ by {spread:.1e}. Either {cause}, or they are scaled so that it "
        f"does not tell them apart: check its weights and how samples are normalised."
    )


def require_apart(encode: Callable[[Batch], Tensor], samples: Batch) -> None:
    """Refuse an encoder that gives all samples one embedding: a few are looked at, and more if these are alike."""
    few, many = (batches.take(samples, slice(0, size)) for size in LOOKED_AT)
    try:
        require_spread(encode(few), few)
    except UnsupportedEncoderError:
        require_spread(encode(many), many)
