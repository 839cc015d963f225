"""What a forward and backward pass keeps in memory, counted on the first samples.

Until the backward pass has gone by, autograd keeps what it needs and the watch over calls keeps their inputs: often the
same tensors, and tensors often share their memory. After it the output gradients are kept, one for each call and head.
"""

from __future__ import annotations

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from krepes.batches import Batch
from krepes.encoders.frozen import FrozenEncoder
from krepes.kernels.capture import Captured, capture

BESIDE = 1.4
"""The whole of the memory by what is kept: beside it there is what one operation needs for a moment, and gaps.

The peak was 0.7 to 1.2 times what is kept on twelve networks of `benchmarks.architectures` where freed memory goes back
to the system at once, and 1.4 times on a plain stack of convolutions where it does not (`tests/test_kept.py`)."""


def capture_and_count(
    encoder: FrozenEncoder,
    X: Batch,
    names: dict[int, str],
    cotangents: Tensor,
    singles: list[bool] | None = None,
) -> tuple[Captured, float]:
    """Capture a batch by the first head and count the memory that all of them take.

    Args:
        encoder: The network.
        X: A batch of ``n`` samples.
        names: Name of each tracked parameter by its ``id``.
        cotangents: Head weights, ``(r, d)``.
        singles: Which attentions had a single token on the first samples.

    Returns:
        What `capture` returns, and bytes, of the whole batch.
    """
    kept: dict[int, tuple[Tensor, int]] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = x.detach(), storage.nbytes()  # held, so that its place is not given away
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        captured = capture(encoder, X, names, cotangents[:1], singles)
    for call in captured.calls:
        keep(call.site.x)
    module = encoder.module
    own = {x.untyped_storage().data_ptr() for group in (module.parameters(), module.buffers()) for x in group}
    held = sum(size for place, (_, size) in kept.items() if place not in own)
    gradients = len(cotangents) * cotangents.element_size() * sum(call.shape.numel() for call in captured.calls)
    return captured, BESIDE * (held + gradients)
