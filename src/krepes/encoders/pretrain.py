"""A compact pre-trainer, so that every example can make its encoder from data: seeded, and it notices collapse."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from tqdm import tqdm

from krepes._checks import require_range
from krepes.batches import Batch
from krepes.encoders.losses import LOSSES, Loss
from krepes.errors import InvalidInputError, KrepesError
from krepes.views import ViewStream


class CollapsedEncoderError(KrepesError, RuntimeError):
    """Training whose loss is not finite or whose embeddings became one point."""


def pretrain(
    encoder: nn.Module,
    stream: ViewStream,
    *,
    loss: str | Loss = "barlow_twins",
    projector: tuple[int, ...] = (256, 256),
    epochs: int = 20,
    lr: float = 1e-3,
    weight_decay: float = 1e-4,
    seed: int = 0,
    min_spread: float = 1e-3,
    progress: bool = True,
) -> nn.Module:
    """Train ``encoder`` on two views of each sample by AdamW with a cosine schedule.

    Each epoch draws its own views: the stream's, with another seed. Same seeds, same machine, same number of threads
    give the same weights. The last incomplete batch of an epoch is left out, since these losses are batch statistics.
    A loss that is no longer finite, or embeddings that became one point, end the training with an error.

    Args:
        encoder: Trained in place; ``(b, ...) -> (b, d)``.
        stream: Its first two views are compared; its batch size is the training batch.
        loss: ``"barlow_twins"``, ``"simclr"``, ``"vicreg"``, or a function of two projections ``(b, h)``.
        projector: Widths of the head that the loss sees; empty to train on the embedding itself.
        epochs: Passes over the data.
        lr: Peak learning rate.
        weight_decay: Of AdamW.
        seed: Of the head's weights, the order of samples, the views and the encoder's own dropout.
        min_spread: Training stops with an error when the embeddings' mean standard deviation over a batch falls below
            this part of their root mean square.
        progress: Show a bar with loss and spread.

    Returns:
        The encoder, in eval mode, without the projector.
    """
    compare = _loss(loss)
    require_range(stream.p, "the number of views p", low=2)
    require_range(min(stream.batch_size, stream.n), "samples in a batch", low=2)
    require_range(epochs, "epochs", low=1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = _head(encoder, stream, projector)
        parameters = [p for p in (*encoder.parameters(), *head.parameters()) if p.requires_grad]
        optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
        steps = epochs * (stream.n // min(stream.batch_size, stream.n))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.1)
        encoder.train()
        bar = tqdm(_batches(stream, epochs, seed), total=steps, disable=not progress, desc="pretrain")
        for step, views in enumerate(bar):
            Y = [encoder(pytree.tree_map(lambda leaf, u=u: leaf[u], views)) for u in range(2)]
            value = compare(head(Y[0]), head(Y[1]))
            spread = _spread(Y[0].detach())
            _require_alive(value.item(), spread, step, min_spread)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            schedule.step()
            bar.set_postfix(loss=f"{value.item():.4g}", spread=f"{spread:.2g}")
    return encoder.eval()


def _loss(loss: str | Loss) -> Loss:
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise InvalidInputError(f"loss={loss!r} is unknown. Pass one of {', '.join(LOSSES)}, or a function.")
    return LOSSES[loss]


def _head(encoder: nn.Module, stream: ViewStream, widths: tuple[int, ...]) -> nn.Sequential:
    """Return linear layers of ``widths`` on top of the encoder, with batch norm and ReLU between them."""
    encoder.eval()
    with torch.no_grad():
        Y = encoder(stream.plain(torch.tensor([0])))
    if Y.ndim != 2:
        raise InvalidInputError(
            f"the encoder must return (b, d), got {tuple(Y.shape)} for one sample. Pool or flatten."
        )
    sizes = [Y.shape[1], *widths]
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(fan_in, fan_out), nn.BatchNorm1d(fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-2]).to(device=Y.device, dtype=Y.dtype)


def _batches(stream: ViewStream, epochs: int, seed: int) -> Iterator[Batch]:
    """Yield the views of whole batches, in a new order and with new noise each epoch."""
    b = min(stream.batch_size, stream.n)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        fresh = stream.with_seed(stream.seed + int(torch.randint(1, 2**62, (1,), generator=generator)))
        for indices in torch.randperm(stream.n, generator=generator).split(b):
            if len(indices) == b:
                yield fresh.views_of(indices)


def _spread(Y: Tensor) -> float:
    """Return the standard deviation over the batch, averaged over coordinates, as a part of the root mean square."""
    size = float(Y.square().mean().sqrt())
    return float(Y.std(0).mean()) / size if size > 0 else 0.0


def _require_alive(value: float, spread: float, step: int, min_spread: float) -> None:
    if not math.isfinite(value):
        raise CollapsedEncoderError(f"the loss became {value} at step {step}. Lower lr, or check the views' scale.")
    if spread < min_spread:
        raise CollapsedEncoderError(
            f"the embeddings collapsed to a point at step {step}: their deviation over a batch is {spread:.1e} of "
            f"their size, at least {min_spread:.1e} is required. Lower lr, use larger batches, or another loss."
        )
